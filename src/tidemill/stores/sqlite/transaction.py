"""One atomic transaction: the verbs' common view of the database and of time.

Verbs change jobs through `add`, `save` and `drop`; counts, lanes, history and wake-ups
follow from what changed and are written once, at the end of the transaction, however many jobs
it moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apsw
from msgspec.structs import replace

from tidemill.contract import jobs as contract
from tidemill.contract.wakeups import agenda_topic, queue_topic
from tidemill.core import ledger as books
from tidemill.core import transitions
from tidemill.core.courses import Kind
from tidemill.core.job import Error, Job
from tidemill.core.needs import group_of_lane, is_of_batches, key_of
from tidemill.core.pool_news import PoolNews
from tidemill.core.queues import QueueSettings, Verdict
from tidemill.core.states import FINAL, LIVE, State
from tidemill.core.windows import Instant
from tidemill.stores.sqlite.ledger import StepLedger
from tidemill.stores.sqlite.rows import job_of, row_of, text_of
from tidemill.stores.sqlite.settings import QueueRow, SettingsCache
from tidemill.stores.sqlite.statements import load

SQL = load("transaction")
_REMARKS = ("done", "failed", "cancelled", "retried", "reclaimed", "dropped_early")


class Transaction:
    def __init__(
        self, connection: apsw.Connection, wall: float, boot: float, boot_id: str, settings: SettingsCache
    ) -> None:
        self.connection = connection
        self.now = wall
        self.boot = boot
        self.topics: set[str] = set()
        self.ended: list[str] = []
        self._settings, self._boot_id = settings, boot_id
        self._ledger: StepLedger | None = None
        self._queues: dict[str, QueueRow] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._history: dict[tuple[str, str], int] = {}
        self._lanes: dict[tuple[str, str], int | None] = {}

    @property
    def rings(self) -> bool:
        return bool(self.topics or self.ended)

    @property
    def ledger(self) -> StepLedger:
        """The pools' accounts; a step that is not about any never asks."""
        if self._ledger is None:
            now = Instant(self.now, self.boot)
            pools = self._settings.pools
            self._ledger = StepLedger(self.connection, now, self._boot_id, pools, self.topics)
        return self._ledger

    @property
    def has_reserved(self) -> bool:
        """Units were taken: whoever gets them may spend them, so they must be on the disk."""
        return self._ledger is not None and self._ledger.has_reserved

    def take_news(self) -> tuple[PoolNews, ...]:
        """What this step did to pools, told once."""
        return () if self._ledger is None else self._ledger.take_news()

    # -- reading

    def execute(self, sql: str, values: Any = ()) -> Any:
        """A cursor; what its rows hold is known where they are unpacked."""
        return self.connection.execute(sql, values)

    def jobs(self, sql: str, values: Any = ()) -> list[Job]:
        return [job_of(row) for row in self.connection.execute(sql, values)]

    def by_id(self, ids: Iterable[str]) -> dict[str, Job]:
        wanted = tuple(ids)
        if not wanted:
            return {}
        return {job.id: job for job in self.jobs(SQL.by_id, (apsw.carray(wanted),))}

    def queue(self, name: str) -> QueueRow:
        row = self._queues.get(name)
        if row is None:
            row = self._queues[name] = self._settings.read(self.connection, name)
        return row

    def settings(self, queue: str) -> QueueSettings:
        return self.queue(queue).in_force(self.now)

    def queue_changed(self, name: str) -> None:
        """Its row was written by this step: it is read anew, and its limits are tried again."""
        self._queues.pop(name, None)
        self.connection.execute(SQL.reopen_lanes, (name,))

    def number(self, name: str) -> int:
        """A store-wide counter's value."""
        value = self.connection.execute(SQL.counter, ("", name)).get
        return int(value or 0)

    def count(self, queue: str, *states: State) -> int:
        """Jobs of a queue in these states, this step's changes included."""
        total = 0
        for state in states:
            stored = self.connection.execute(SQL.counter, (queue, state.value)).get
            total += (stored or 0) + self._counts.get((queue, state.value), 0)
        return total

    def droppable(self, queue: str, state: State) -> int:
        """Ended jobs that the queue's retention may drop: those of no flow."""
        parts = f"{state.value}_parts"
        stored = self.connection.execute(SQL.counter, (queue, parts)).get
        return self.count(queue, state) - (stored or 0) - self._counts.get((queue, parts), 0)

    def counts(self) -> Iterator[tuple[str, State, int]]:
        """(queue, state, jobs), without this step's changes."""
        for queue, state, jobs in self.connection.execute(SQL.counters):
            yield str(queue), State(state), int(jobs)

    # -- changing jobs

    def advance(self, name: str, by: int) -> int:
        """Move a store-wide counter on; answers where it stands now."""
        return int(self.execute(SQL.advance, (name, by)).get)

    def add(self, job: Job) -> None:
        """A new job gets its place (`seq`) here."""
        job = replace(job, seq=self.next_seq())
        self.connection.execute(SQL.add, row_of(job))
        self.counted(job.queue, None, job.state, 1)
        self._counted_part(None, job)
        self._tell_queue(job)
        if job.state is State.READY:
            self.arrived(job.queue, job.lane, (job.priority, job.due, job.seq))

    def arrived(self, queue: str, lane: str, place: tuple[int, float, int], jobs: int = 1) -> None:
        """New jobs are ready, the first at that place of its lane: it may be the new head."""
        group = group_of_lane(lane)
        if group:
            self.connection.execute(SQL.try_again, (queue, lane, place[0]))
        if group and is_of_batches(lane):
            self.connection.execute(SQL.joined, (queue, lane, jobs))
        self.connection.execute(SQL.arrived, (queue, lane, group, *place))

    def _tell_queue(self, job: Job) -> None:
        """A parked worker has to know what it may start, and when something will be due."""
        if job.state is State.READY or job.state is State.SCHEDULED:
            self.topics.add(queue_topic(job.queue))

    def save(self, before: Job, after: Job) -> None:
        self.connection.execute(SQL.save, row_of(after))
        self._tell_queue(after)
        if before.state is not after.state:
            self.counted(before.queue, before.state, after.state, 1)
            self._counted_part(before, after)
            self._moved(before, after)
        for job in (before, after):
            if job.state is State.READY:
                self.touch(job.queue, job.lane)

    def _moved(self, before: Job, after: Job) -> None:
        if before.state is State.RUNNING:
            self.freed(before.queue, before.lane)
        if after.flow is not None and (before.state in FINAL) is not (after.state in FINAL):
            self.stir(Kind.FLOW, after.flow.id, after.id)
        if after.state in FINAL:
            self.ended.append(after.id)
            self._withdraw(before)
            if transitions.is_counted(before.state, after.state):
                self.remark(after.queue, after.state.value, 1)

    def next_seq(self) -> int:
        return int(self.execute(SQL.next_seq).get)

    def keep_place(self, seq: int) -> None:
        """The job with that place in line goes; the place is not given again."""
        self.connection.execute(SQL.gave_seq, (seq,))

    def drop(self, job: Job) -> None:
        """The record goes, its id is remembered."""
        self.remember(job.id, Verdict.ACCEPTED, job.id, job.fence, job.claim)
        self.keep_place(job.seq)
        for sql in (SQL.drop, SQL.drop_logs, SQL.drop_attempts, SQL.drop_checkpoints):
            self.connection.execute(sql, (job.seq,))
        self.counted(job.queue, job.state, None, 1)
        self._counted_part(job, None)
        if job.state is State.READY:
            self.touch(job.queue, job.lane)
        if job.flow is not None:
            self.stir(Kind.FLOW, job.flow.id, job.id)
        if job.state in LIVE:
            self.ended.append(job.id)
            self._withdraw(job)

    def stir(self, kind: Kind, course: str, job: str = "") -> None:
        """F10."""
        self.connection.execute(SQL.stir, (kind.value, course, job))
        self.topics.add(agenda_topic(kind))

    def _withdraw(self, job: Job) -> None:
        """P15: a job that ends while it waits keeps no place in a pool; what one that runs has is settled."""
        if job.state is not State.RUNNING and (job.needs or job.extra):
            books.withdraw(self.ledger, job.id, (*job.needs, *job.extra))

    def remember(self, job: str, verdict: Verdict, stands_for: str, fence: int = 0, claim: int = 0) -> None:
        until = (self.now + contract.MEMORY_OF_IDS, self.boot + contract.MEMORY_OF_IDS)
        self.connection.execute(SQL.remember, (job, verdict.value, stands_for, fence, claim, *until))

    def recall(self, job: str) -> tuple[int, int] | None:
        """The last claim of a job that is gone, while its id is remembered."""
        row = self.connection.execute(SQL.recall, (job, self.now, self.boot)).fetchone()
        return None if row is None else (int(row[0]), int(row[1]))

    def release_successors(self, ended: Iterable[str]) -> None:
        """Jobs that waited for these to end become ready or scheduled."""
        ids = tuple(ended)
        if not ids:
            return
        for waiting in self.jobs(SQL.successors, (apsw.carray(ids),)):
            self.save(waiting, transitions.released(waiting, self.now))

    def successor_of(self, job: str) -> Job | None:
        return next(iter(self.jobs(SQL.successors, (apsw.carray((job,)),))), None)

    def record_attempt(self, job: Job, outcome: str, error: Error | None) -> None:
        """How an attempt of `job` (as it was before) ended without success."""
        described = None if error is None else text_of(error)
        attempt = (job.generation, job.attempts + 1, job.started, self.now, job.worker, outcome, described)
        self.connection.execute(SQL.record_attempt, (job.seq, job.seq, *attempt))
        self.connection.execute(SQL.forget_attempts, (job.seq, job.seq))

    # -- what follows from the changes

    def counted(self, queue: str, before: State | None, after: State | None, jobs: int) -> None:
        counts = self._counts
        if before is not None:
            counts[queue, before.value] = counts.get((queue, before.value), 0) - jobs
        if after is not None:
            counts[queue, after.value] = counts.get((queue, after.value), 0) + jobs

    def counted_parts(self, queue: str, state: State, jobs: int) -> None:
        """Ended jobs of flows, which no queue's retention drops."""
        counter = (queue, f"{state.value}_parts")
        self._counts[counter] = self._counts.get(counter, 0) + jobs

    def _counted_part(self, before: Job | None, after: Job | None) -> None:
        for job, change in ((before, -1), (after, 1)):
            if job is not None and job.flow is not None and job.state in FINAL:
                self.counted_parts(job.queue, job.state, change)

    def remark(self, queue: str, what: str, jobs: int) -> None:
        """For the queue's history: `what` is one of its columns."""
        self._history[queue, what] = self._history.get((queue, what), 0) + jobs

    def touch(self, queue: str, lane: str, served: int | None = None) -> None:
        """The lane's ready jobs changed: its head must be looked at again. `served` is its last pick."""
        self._lanes[queue, lane] = served or self._lanes.get((queue, lane))

    def freed(self, queue: str, lane: str) -> None:
        """A running job ended: a lane or queue at its limit has room again."""
        settings = self.settings(queue)
        if settings.key_concurrency is not None and (key := key_of(lane)):
            self.connection.execute(SQL.unblock, (queue, key))
            self.topics.add(queue_topic(queue))
        if settings.concurrency is not None:
            self.topics.add(queue_topic(queue))

    def finish(self) -> None:
        for (queue, state), change in self._counts.items():
            if change:
                self.connection.execute(SQL.change_counter, (queue, state, change))
        for queue in {queue for queue, _ in self._history}:
            remarks = [self._history.get((queue, what), 0) for what in _REMARKS]
            self.connection.execute(SQL.remark, (queue, int(self.now // 60), *remarks))
        self.refresh_lanes()
        if self._ledger is not None:
            self._ledger.write()

    def refresh_lanes(self) -> None:
        if self._ledger is not None:
            self._ledger.reopen()
        for (queue, lane), served in self._lanes.items():
            self._refresh_lane(queue, lane, served)
        self._lanes.clear()

    def _refresh_lane(self, queue: str, lane: str, served: int | None) -> None:
        """Write the lane's head, or forget the lane when nothing of it is ready."""
        head = self.connection.execute(SQL.head, (queue, lane)).fetchone()
        if head is None:
            self.connection.execute(SQL.forget_lane, (queue, lane))
            return
        if is_of_batches(lane):
            self.connection.execute(SQL.look_again if served is None else SQL.begin_anew, (queue, lane))
        known = self.connection.execute(SQL.lane, (queue, lane)).fetchone()
        if known is None:
            self.connection.execute(
                SQL.new_lane, (queue, lane, group_of_lane(lane), *head, self.number("picks"))
            )
        elif head != known or served is not None:
            if served is None and (head[0] < known[0] or head > known) and group_of_lane(lane):
                self.connection.execute(SQL.try_anew, (queue, lane))
            self.connection.execute(SQL.move_lane, (*head, served, queue, lane))
