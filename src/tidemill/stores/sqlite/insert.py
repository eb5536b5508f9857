"""insert: groups of new jobs, each accepted or refused as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from tidemill.contract.wakeups import queue_topic
from tidemill.core.job import Group, NewJob, lane_of, problem_with
from tidemill.core.queues import Inserted, Verdict
from tidemill.core.states import PENDING, State
from tidemill.core.uniqueness import Unique
from tidemill.stores.sqlite.pools import problem_with_needs
from tidemill.stores.sqlite.queues import appear
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction
from tidemill.stores.sqlite.unique import insert_unique

SQL = load("insert")
Row = tuple[Any, ...]
"""As `insert.sql: add_plain` takes it, without the place in line."""

_ACCEPTED, _EXISTING, _FULL, _INVALID = (
    Verdict.ACCEPTED,
    Verdict.EXISTING,
    Verdict.FULL,
    Verdict.INVALID,
)


def insert(transaction: Transaction, groups: Sequence[Group]) -> list[list[Inserted]]:
    problems = [problem_with(group) for group in groups]
    valid = [group for group, problem in zip(groups, problems, strict=True) if problem is None]
    answers = _already_answered(transaction, valid)
    incoming = _Incoming(transaction, limited=True)
    results = [
        incoming.take(group, answers) if problem is None else _refused(group, problem)
        for group, problem in zip(groups, problems, strict=True)
    ]
    incoming.write()
    return results


def insert_admitted(transaction: Transaction, group: Group) -> list[Inserted]:
    """Jobs whose problems the caller has looked for. Length limits are for callers who can be refused; an
    arrival has nobody to tell."""
    incoming = _Incoming(transaction, limited=False)
    inserted = incoming.take(group, _already_answered(transaction, [group]))
    incoming.write()
    return inserted


def _refused(group: Group, problem: str) -> list[Inserted]:
    return [Inserted(_INVALID, job.id, problem) for job in group.jobs]


def _already_answered(transaction: Transaction, groups: Sequence[Group]) -> dict[str, Inserted]:
    """What ids seen before were told the first time."""
    ids = tuple(job.id for group in groups for job in group.jobs)
    if not ids:
        return {}
    return {
        name: Inserted(Verdict(verdict), job)
        for name, verdict, job in transaction.execute(
            SQL.answered, (apsw.carray(ids), transaction.now, transaction.boot)
        )
    }


class _Incoming:
    """Collects the rows of one insert so that they are written together."""

    def __init__(self, transaction: Transaction, *, limited: bool) -> None:
        self._transaction = transaction
        self._limited = limited
        self._rows: list[Row] = []
        self._queues: dict[str, int | None] = {}
        self._taken: set[tuple[str, str]] = set()  # unique keys of jobs that come in with this insert

    def take(self, group: Group, answers: dict[str, Inserted]) -> list[Inserted]:
        fresh = [job for job in group.jobs if job.id not in answers]
        if problem := problem_with_needs(self._transaction, fresh):
            return [answers.get(job.id) or Inserted(_INVALID, job.id, problem) for job in group.jobs]
        if fresh and (refusal := self._no_room(group.queue, fresh)):
            return [answers.get(job.id) or Inserted(_FULL, job.id, refusal) for job in group.jobs]
        held = self._held(group.queue, fresh)
        return [answers.get(job.id) or self._accept(job, group.queue, held, answers) for job in group.jobs]

    def _held(self, queue: str, jobs: Sequence[NewJob]) -> set[str]:
        """Keys there may be a holder of."""
        keys = tuple({job.unique.key for job in jobs if job.unique is not None})
        if not keys:
            return set()
        return {key for (key,) in self._transaction.execute(SQL.held, (queue, apsw.carray(keys)))}

    def _no_room(self, queue: str, fresh: list[NewJob]) -> str | None:
        if queue not in self._queues:
            appear(self._transaction, queue)
            self._queues[queue] = self._transaction.settings(queue).max_length
        limit = self._queues[queue]
        if limit is None or not self._limited:
            return None
        # Jobs already taken by this insert must be counted before the next group is judged.
        self.write()
        pending = self._transaction.count(queue, *PENDING)
        if pending + len(fresh) <= limit:
            return None
        return (
            f"queue {queue!r} holds {pending} pending jobs of at most {limit}, {len(fresh)} more do not fit"
        )

    def _accept(self, job: NewJob, queue: str, held: set[str], answers: dict[str, Inserted]) -> Inserted:
        """A key nobody holds stands in nobody's way: its job goes in with the others."""
        place = None if job.unique is None else (queue, job.unique.key)
        if place is None or (place not in self._taken and place[1] not in held):
            self._add_plain(job, queue)
            answer = Inserted(_ACCEPTED, job.id)
        else:
            self.write()
            answer = insert_unique(self._transaction, job, queue)
        if place is not None:
            self._taken.add(place)
        answers[job.id] = answer
        return answer

    def _add_plain(self, job: NewJob, queue: str) -> None:
        now = self._transaction.now
        due = job.at if job.at is not None else now + job.delay
        state = State.SCHEDULED if due > now else State.READY
        expires = None if job.expires is None else now + job.expires
        tags = text_of(job.tags) if job.tags else None
        self._rows.append(
            (job.id, queue, job.task, job.payload.decode(), state.value, job.priority,
             lane_of(job), now, max(due, now), expires, job.timeout, job.trace, tags,
             text_of(job.needs) if job.needs else None,
             None if job.batching is None else text_of(job.batching),
             None if job.flow is None else text_of(job.flow), *_uniqueness(job.unique, now))
        )  # fmt: skip

    def write(self) -> None:
        rows, self._rows = self._rows, []
        write_rows(self._transaction, rows)


def _uniqueness(unique: Unique | None, now: float) -> tuple[str | None, float | None, bool]:
    if unique is None:
        return None, None, False
    return unique.key, None if (lasts := unique.lasts) is None else now + lasts, unique.period is not None


def known_ids(transaction: Transaction, ids: Iterable[str]) -> set[str]:
    """Those of which there is a job."""
    return {name for (name,) in transaction.execute(SQL.known, (apsw.carray(tuple(ids)),))}


def write_rows(transaction: Transaction, rows: Sequence[Row]) -> None:
    """Plain jobs take their places in line, with their counts and their lanes."""
    if not rows:
        return
    first = transaction.next_seq()
    transaction.connection.executemany(SQL.add_plain, [(seq, *row) for seq, row in enumerate(rows, first)])
    for (queue, state), count in Counter((row[1], row[4]) for row in rows).items():
        transaction.counted(queue, None, State(state), count)
        transaction.topics.add(queue_topic(queue))
    heads: dict[tuple[str, str], tuple[int, float, int]] = {}
    ready = [(seq, row) for seq, row in enumerate(rows, first) if row[4] == "ready"]
    for seq, row in ready:
        at, place = (row[1], row[6]), (row[5], row[8], seq)
        if (head := heads.get(at)) is None or place < head:
            heads[at] = place
    jobs = Counter((row[1], row[6]) for _, row in ready)
    for (queue, lane), place in heads.items():
        transaction.arrived(queue, lane, place, jobs[queue, lane])
