"""Implements `insert` and `admit`: creates jobs, resolves conflicts over unique keys, and turns arrivals into
jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import apsw
from msgspec.structs import replace

from tidemill.contract.coordination import queue_topic
from tidemill.contract.jobs import Admission, Arrival, RejectedArrival
from tidemill.core import transitions
from tidemill.core.documents import DocumentKind
from tidemill.core.jobs import Error, Job, JobGroup, NewJob, job_lane, problem_with_group
from tidemill.core.queues import InsertResult, InsertVerdict
from tidemill.core.states import PENDING, State
from tidemill.core.transitions import rejected_job
from tidemill.core.unique_keys import Conflict, Unique, holds_key, resolve_conflict
from tidemill.stores.sqlite.pools import problem_with_needs
from tidemill.stores.sqlite.queues import add_queue
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load_statements
from tidemill.stores.sqlite.transaction import SqliteTransaction, expire_jobs

UNIQUE_SQL = load_statements("insert")


def insert_unique(transaction: SqliteTransaction, new: NewJob, queue: str) -> InsertResult:
    unique = new.unique
    if unique is None:
        raise ValueError("insert_unique: the job has no unique key; insert it as a plain job")
    with_key = _holders(transaction, queue, unique.key)
    # A waiting successor holds the key only if the job it waits for has lost the key.
    holders = [job for job in with_key if holds_key(job, transaction.now)]
    holder = max(holders, key=lambda job: (job.after is None, job.seq), default=None)
    if holder is None:
        return _accept(transaction, transitions.create_job(new, queue, 0, transaction.now))
    successor = transaction.successor_of(holder.id)
    match resolve_conflict(unique, holder):
        case Conflict.EXISTING:
            return _existing(transaction, new, holder)
        case Conflict.MERGE:
            _replace(transaction, successor)
            transaction.save(
                holder,
                transitions.merge_request(holder, transitions.create_job(new, queue, 0, transaction.now)),
            )
            return _existing(transaction, new, holder)
        case Conflict.REPLACE:
            # The successor first, or the end of the holder would release it beside the new job.
            _replace(transaction, successor)
            _replace(transaction, holder)
            return _accept(transaction, transitions.create_job(new, queue, 0, transaction.now))
        case Conflict.SUCCEED:
            return _add_successor(transaction, new, holder, successor)


def _holders(transaction: SqliteTransaction, queue: str, key: str) -> list[Job]:
    """Returns the jobs of the queue that have this unique key. Pending jobs past their expiry are cancelled
    first, because nothing may be merged into an expired job."""
    found = transaction.jobs(UNIQUE_SQL.holders, (queue, key))
    expired = [
        job.id for job in found if job.state in PENDING and transitions.is_expired(job, transaction.now)
    ]
    if not expired:
        return found
    expire_jobs(transaction, expired)
    return transaction.jobs(UNIQUE_SQL.holders, (queue, key))


def _add_successor(
    transaction: SqliteTransaction, new: NewJob, holder: Job, successor: Job | None
) -> InsertResult:
    """Adds the new job as successor of the running `holder`. If a `successor` waits already, the new job is
    merged into it (`on_conflict="rerun"`) or replaces it."""
    request = transitions.create_job(new, holder.queue, 0, transaction.now)
    if successor is not None and new.unique is not None and new.unique.on_conflict == "rerun":
        transaction.save(successor, transitions.merge_request(successor, request))
        return _existing(transaction, new, successor)
    _replace(transaction, successor)
    return _accept(transaction, transitions.wait_for_holder(request, holder.id))


def _replace(transaction: SqliteTransaction, job: Job | None) -> None:
    if job is not None:
        transaction.save(job, transitions.cancel_job(job, transitions.REPLACED, transaction.now))


def _accept(transaction: SqliteTransaction, job: Job) -> InsertResult:
    transaction.add(job)
    return InsertResult(InsertVerdict.ACCEPTED, job.id)


def _existing(transaction: SqliteTransaction, new: NewJob, holder: Job) -> InsertResult:
    transaction.remember_id(new.id, InsertVerdict.EXISTING, holder.id)
    return InsertResult(InsertVerdict.EXISTING, holder.id)


SQL = load_statements("insert")
PlainJobRow = tuple[Any, ...]
"""A row for `insert.sql: add_plain`, without the seq."""

_ACCEPTED, _EXISTING, _FULL, _INVALID = (
    InsertVerdict.ACCEPTED,
    InsertVerdict.EXISTING,
    InsertVerdict.FULL,
    InsertVerdict.INVALID,
)


def insert(transaction: SqliteTransaction, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
    problems = [problem_with_group(group) for group in groups]
    valid = [group for group, problem in zip(groups, problems, strict=True) if problem is None]
    answers = _already_answered(transaction, valid)
    incoming = _InsertBatch(transaction, limited=True)
    results = [
        incoming.take(group, answers) if problem is None else _refused(group, problem)
        for group, problem in zip(groups, problems, strict=True)
    ]
    incoming.write()
    return results


def insert_admitted(transaction: SqliteTransaction, group: JobGroup) -> list[InsertResult]:
    """Inserts jobs that the caller has validated, even if the queue is over its length limit. The store
    accepted these jobs earlier, as arrivals or in documents."""
    incoming = _InsertBatch(transaction, limited=False)
    inserted = incoming.take(group, _already_answered(transaction, [group]))
    incoming.write()
    return inserted


def _refused(group: JobGroup, problem: str) -> list[InsertResult]:
    return [InsertResult(_INVALID, job.id, problem) for job in group.jobs]


def _already_answered(transaction: SqliteTransaction, groups: Sequence[JobGroup]) -> dict[str, InsertResult]:
    """Returns the insert results of the jobs in `groups` that were inserted before, as a dict by job id. A
    repeated insert gets the same result as the first."""
    ids = tuple(job.id for group in groups for job in group.jobs)
    if not ids:
        return {}
    return {
        name: InsertResult(InsertVerdict(verdict), job)
        for name, verdict, job in transaction.execute(
            SQL.answered, (apsw.carray(ids), transaction.now, transaction.boot)
        )
    }


class _InsertBatch:
    """Collects the rows of one insert and writes them together. `limited=True`: the queue's length limit
    applies."""

    def __init__(self, transaction: SqliteTransaction, *, limited: bool) -> None:
        self._transaction = transaction
        self._limited = limited
        self._rows: list[PlainJobRow] = []
        self._queues: dict[str, int | None] = {}
        self._taken: set[tuple[str, str]] = set()  # unique keys of jobs in this insert

    def take(self, group: JobGroup, answers: dict[str, InsertResult]) -> list[InsertResult]:
        fresh = [job for job in group.jobs if job.id not in answers]
        if problem := problem_with_needs(self._transaction, fresh):
            return [answers.get(job.id) or InsertResult(_INVALID, job.id, problem) for job in group.jobs]
        if fresh and (refusal := self._no_room(group.queue, fresh)):
            return [answers.get(job.id) or InsertResult(_FULL, job.id, refusal) for job in group.jobs]
        held = self._held(group.queue, fresh)
        return [answers.get(job.id) or self._accept(job, group.queue, held, answers) for job in group.jobs]

    def _held(self, queue: str, jobs: Sequence[NewJob]) -> set[str]:
        """Returns the unique keys of `jobs` that a stored job of the queue also has. The caller later finds
        out whether that job still holds the key."""
        keys = tuple({job.unique.key for job in jobs if job.unique is not None})
        if not keys:
            return set()
        return {key for (key,) in self._transaction.execute(SQL.held, (queue, apsw.carray(keys)))}

    def _no_room(self, queue: str, fresh: list[NewJob]) -> str | None:
        if queue not in self._queues:
            add_queue(self._transaction, queue)
            self._queues[queue] = self._transaction.settings(queue).max_length
        limit = self._queues[queue]
        if limit is None or not self._limited:
            return None
        # Jobs of earlier groups must be counted before the limit is checked.
        self.write()
        pending = self._transaction.count(queue, *PENDING)
        if pending + len(fresh) <= limit:
            return None
        return (
            f"queue {queue!r} holds {pending} pending jobs of at most {limit}, {len(fresh)} more do not fit"
        )

    def _accept(
        self, job: NewJob, queue: str, held: set[str], answers: dict[str, InsertResult]
    ) -> InsertResult:
        """Accepts one job, adds the result to `answers` and returns it. Most jobs are only collected here and
        written later together. `held`: the unique keys that stored jobs hold."""
        unique_key = None if job.unique is None else (queue, job.unique.key)
        if unique_key is None or (unique_key not in self._taken and unique_key[1] not in held):
            self._add_plain(job, queue)
            answer = InsertResult(_ACCEPTED, job.id)
        else:
            self.write()
            answer = insert_unique(self._transaction, job, queue)
        if unique_key is not None:
            self._taken.add(unique_key)
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
             job_lane(job), now, max(due, now), expires, job.timeout, job.trace, tags,
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


def known_ids(transaction: SqliteTransaction, ids: Iterable[str]) -> set[str]:
    """Returns those of `ids` that belong to an existing job."""
    return {name for (name,) in transaction.execute(SQL.known, (apsw.carray(tuple(ids)),))}


def write_rows(transaction: SqliteTransaction, rows: Sequence[PlainJobRow]) -> None:
    """Inserts new jobs, given as rows, and updates counters and lanes. The caller has resolved unique keys
    before."""
    if not rows:
        return
    first = transaction.next_seq()
    transaction.connection.executemany(SQL.add_plain, [(seq, *row) for seq, row in enumerate(rows, first)])
    for (queue, state), count in Counter((row[1], row[4]) for row in rows).items():
        transaction.count_change(queue, None, State(state), count)
        transaction.topics.add(queue_topic(queue))
    heads: dict[tuple[str, str], tuple[int, float, int]] = {}
    ready = [(seq, row) for seq, row in enumerate(rows, first) if row[4] == "ready"]
    for seq, row in ready:
        at, position = (row[1], row[6]), (row[5], row[8], seq)
        if (head := heads.get(at)) is None or position < head:
            heads[at] = position
    jobs = Counter((row[1], row[6]) for _, row in ready)
    for (queue, lane), position in heads.items():
        transaction.add_to_lane(queue, lane, position, jobs[queue, lane])


ADMIT_SQL = load_statements("admit")


def list_arrivals(transaction: SqliteTransaction, limit: int, after: int) -> list[Arrival]:
    return [
        Arrival(
            seq=seq,
            id=name.decode(errors="replace"),
            task=task.decode(errors="replace"),
            payload=payload,
            options=options,
            arrived=arrived,
        )
        for seq, name, task, payload, options, arrived in transaction.execute(
            ADMIT_SQL.oldest, (after, limit)
        )
    ]


def admit(transaction: SqliteTransaction, admissions: Sequence[Admission]) -> int:
    admitted = 0
    for admission in admissions:
        if transaction.execute(ADMIT_SQL.take, (admission.arrival.seq,)).fetchone() is None:
            continue
        admitted += 1
        _admit_one(transaction, admission)
    return admitted


def _admit_one(transaction: SqliteTransaction, admission: Admission) -> None:
    arrival, verdict = admission.arrival, admission.verdict
    request = NewJob(id=arrival.id, task=arrival.task, payload=arrival.payload)
    if isinstance(verdict, NewJob):
        group = JobGroup(admission.queue, (verdict,))
        problem = problem_with_group(group) or problem_with_needs(transaction, group.jobs)
        if problem is None:
            insert_admitted(transaction, group)
            return
        request = replace(verdict, id=arrival.id, task=arrival.task, payload=arrival.payload)
        verdict = RejectedArrival(queue=admission.queue, error=Error("InvalidJob", problem))
    insert_failed(transaction, verdict.queue, request, verdict.error)


def insert_failed(transaction: SqliteTransaction, queue: str, request: NewJob, error: Error) -> None:
    """Stores a request that cannot become a job as a failed job, so that its sender can find the reason. Does
    nothing if the id is already known."""
    if transaction.by_id([request.id]) or transaction.find_known_id(request.id) is not None:
        return
    add_queue(transaction, queue)
    failed = rejected_job(request, queue, 0, transaction.now, error)
    transaction.add(failed)
    transaction.ended.append(failed.id)
    transaction.count_minute(queue, "failed", 1)
    if failed.flow is not None:
        transaction.mark_document(DocumentKind.FLOW, failed.flow.id, failed.id)
