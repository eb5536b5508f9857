"""One SQLite transaction: reads and writes jobs, lanes, counters and wake-ups for all methods of the
store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apsw
from msgspec.structs import replace

from tidemill.contract import jobs as contract
from tidemill.contract.coordination import queue_topic, worklist_topic
from tidemill.core import ledger as core_ledger
from tidemill.core import transitions
from tidemill.core.documents import DocumentKind
from tidemill.core.jobs import Error, Job
from tidemill.core.needs import is_batch_lane, lane_group, lane_key
from tidemill.core.pool_statistics import PoolChange
from tidemill.core.queues import InsertVerdict, QueueSettings
from tidemill.core.states import FINAL, LIVE, State
from tidemill.core.windows import Instant
from tidemill.stores.sqlite.ledger import SqliteLedger
from tidemill.stores.sqlite.rows import job_of, row_of, text_of
from tidemill.stores.sqlite.settings_cache import CachedQueueRow, SettingsCache
from tidemill.stores.sqlite.statements import load_statements

SQL = load_statements("transaction")
_MINUTE_COUNTERS = ("done", "failed", "cancelled", "retried", "reclaimed", "dropped_early")


class SqliteTransaction:
    def __init__(
        self, connection: apsw.Connection, wall: float, boot: float, boot_id: str, settings: SettingsCache
    ) -> None:
        self.connection = connection
        self.now = wall
        self.boot = boot
        self.topics: set[str] = set()
        self.ended: list[str] = []
        self._settings, self._boot_id = settings, boot_id
        self._ledger: SqliteLedger | None = None
        self._queues: dict[str, CachedQueueRow] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._history: dict[tuple[str, str], int] = {}
        self._lanes: dict[tuple[str, str], int | None] = {}

    @property
    def has_wakeups(self) -> bool:
        return bool(self.topics or self.ended)

    @property
    def ledger(self) -> SqliteLedger:
        """The accounts of pools in this transaction, created at the first use."""
        if self._ledger is None:
            now = Instant(self.now, self.boot)
            pools = self._settings.pools
            self._ledger = SqliteLedger(self.connection, now, self._boot_id, pools, self.topics)
        return self._ledger

    @property
    def has_reserved(self) -> bool:
        """True if this transaction reserved units. Its commit must then be on disk before the answer, because
        the caller may spend the units at once."""
        return self._ledger is not None and self._ledger.has_reserved

    def take_pool_changes(self) -> tuple[PoolChange, ...]:
        """Returns the changes of pools in this transaction and clears the list, so that each change is
        returned once."""
        return () if self._ledger is None else self._ledger.take_pool_changes()

    # -- reading

    def execute(self, sql: str, values: Any = ()) -> Any:
        """Runs an SQL statement with `values` and returns its cursor. Rows are untyped."""
        return self.connection.execute(sql, values)

    def jobs(self, sql: str, values: Any = ()) -> list[Job]:
        return [job_of(row) for row in self.connection.execute(sql, values)]

    def by_id(self, ids: Iterable[str]) -> dict[str, Job]:
        requested = tuple(ids)
        if not requested:
            return {}
        return {job.id: job for job in self.jobs(SQL.by_id, (apsw.carray(requested),))}

    def queue(self, name: str) -> CachedQueueRow:
        row = self._queues.get(name)
        if row is None:
            row = self._queues[name] = self._settings.read(self.connection, name)
        return row

    def settings(self, queue: str) -> QueueSettings:
        return self.queue(queue).in_force(self.now)

    def queue_changed(self, name: str) -> None:
        """Forgets the loaded row of a queue, after the row has changed in the database. Also opens the lanes
        that a concurrency limit has blocked."""
        self._queues.pop(name, None)
        self.connection.execute(SQL.reopen_lanes, (name,))

    def number(self, name: str) -> int:
        """Returns the value of the store-wide counter `name`; 0 if it was never increased."""
        value = self.connection.execute(SQL.counter, ("", name)).get
        return int(value or 0)

    def count(self, queue: str, *states: State) -> int:
        """Returns the number of jobs of a queue in these states, including the changes of this
        transaction."""
        total = 0
        for state in states:
            stored = self.connection.execute(SQL.counter, (queue, state.value)).get
            total += (stored or 0) + self._counts.get((queue, state.value), 0)
        return total

    def droppable(self, queue: str, state: State) -> int:
        """Returns how many ended jobs in `state` the queue's retention may delete. Jobs of flows are not
        counted: the flow decides how long its jobs stay."""
        counter = f"{state.value}_flow_jobs"
        stored = self.connection.execute(SQL.counter, (queue, counter)).get
        return self.count(queue, state) - (stored or 0) - self._counts.get((queue, counter), 0)

    def counts(self) -> Iterator[tuple[str, State, int]]:
        """Yields (queue, state, number of jobs) as stored, without the changes of this transaction."""
        for queue, state, jobs in self.connection.execute(SQL.counters):
            yield str(queue), State(state), int(jobs)

    # -- changing jobs

    def advance(self, name: str, by: int) -> int:
        """Increases the store-wide counter `name` by `by` and returns its new value."""
        return int(self.execute(SQL.advance, (name, by)).get)

    def add(self, job: Job) -> None:
        """Inserts a new job and gives it the next sequence number (`seq`). Updates counters and its lane, and
        wakes its queue."""
        job = replace(job, seq=self.next_seq())
        self.connection.execute(SQL.add, row_of(job))
        self.count_change(job.queue, None, job.state, 1)
        self._count_flow_job(None, job)
        self._wake_queue(job)
        if job.state is State.READY:
            self.add_to_lane(job.queue, job.lane, (job.priority, job.due, job.seq))

    def add_to_lane(self, queue: str, lane: str, position: tuple[int, float, int], jobs: int = 1) -> None:
        """Updates a lane that got `jobs` new ready jobs. `position`: (priority, due time, sequence number) of
        the first new job."""
        group = lane_group(lane)
        if group:
            self.connection.execute(SQL.unblock_for_priority, (queue, lane, position[0]))
        if group and is_batch_lane(lane):
            self.connection.execute(SQL.add_to_batch, (queue, lane, jobs))
        self.connection.execute(SQL.add_to_lane, (queue, lane, group, *position))

    def _wake_queue(self, job: Job) -> None:
        """Wakes the queue of a job that is ready or scheduled."""
        if job.state is State.READY or job.state is State.SCHEDULED:
            self.topics.add(queue_topic(job.queue))

    def save(self, before: Job, after: Job) -> None:
        self.connection.execute(SQL.save, row_of(after))
        self._wake_queue(after)
        if before.state is not after.state:
            self.count_change(before.queue, before.state, after.state, 1)
            self._count_flow_job(before, after)
            self._handle_state_change(before, after)
        for job in (before, after):
            if job.state is State.READY:
                self.touch(job.queue, job.lane)

    def _handle_state_change(self, before: Job, after: Job) -> None:
        if before.state is State.RUNNING:
            self.free_slot(before.queue, before.lane)
        if after.flow is not None and (before.state in FINAL) is not (after.state in FINAL):
            self.mark_document(DocumentKind.FLOW, after.flow.id, after.id)
        if after.state in FINAL:
            self.ended.append(after.id)
            self._release_holds(before)
            if transitions.counts_in_history(before.state, after.state):
                self.count_minute(after.queue, after.state.value, 1)

    def next_seq(self) -> int:
        return int(self.execute(SQL.next_seq).get)

    def keep_seq(self, seq: int) -> None:
        """Makes sure that the sequence number of a deleted job is not used again."""
        self.connection.execute(SQL.keep_seq, (seq,))

    def drop(self, job: Job) -> None:
        """Deletes a job with its log lines, attempts and checkpoints. Its id stays known for an hour."""
        self.remember_id(job.id, InsertVerdict.ACCEPTED, job.id, job.fence, job.claim)
        self.keep_seq(job.seq)
        for sql in (SQL.delete, SQL.delete_logs, SQL.delete_attempts, SQL.delete_checkpoints):
            self.connection.execute(sql, (job.seq,))
        self.count_change(job.queue, job.state, None, 1)
        self._count_flow_job(job, None)
        if job.state is State.READY:
            self.touch(job.queue, job.lane)
        if job.flow is not None:
            self.mark_document(DocumentKind.FLOW, job.flow.id, job.id)
        if job.state in LIVE:
            self.ended.append(job.id)
            self._release_holds(job)

    def mark_document(self, kind: DocumentKind, document: str, job: str = "") -> None:
        """Puts a document on the worklist (F10). `job`: the job that changed; empty means that all jobs of
        the document have to be looked up."""
        self.connection.execute(SQL.mark_document, (kind.value, document, job))
        self.topics.add(worklist_topic(kind))

    def _release_holds(self, job: Job) -> None:
        """Releases the capacity that pools hold for a job, because the job ends without running (P15). Does
        nothing for a running job, because its units are settled."""
        if job.state is not State.RUNNING and (job.needs or job.deferred_needs):
            core_ledger.release_holds(self.ledger, job.id, (*job.needs, *job.deferred_needs))

    def remember_id(
        self, job: str, verdict: InsertVerdict, answered_with: str, fence: int = 0, claim: int = 0
    ) -> None:
        until = (self.now + contract.KNOWN_ID_SECONDS, self.boot + contract.KNOWN_ID_SECONDS)
        self.connection.execute(SQL.remember_id, (job, verdict.value, answered_with, fence, claim, *until))

    def find_known_id(self, job: str) -> tuple[int, int] | None:
        """Returns (fence, claim id) of the last claim of a deleted job, while its id is remembered. Returns
        None if the id is not remembered."""
        row = self.connection.execute(SQL.find_known_id, (job, self.now, self.boot)).fetchone()
        return None if row is None else (int(row[0]), int(row[1]))

    def release_successors(self, ended: Iterable[str]) -> None:
        """Releases the successors that wait for the jobs `ended`. A successor becomes ready, or scheduled if
        its time has not come."""
        ids = tuple(ended)
        if not ids:
            return
        for waiting in self.jobs(SQL.successors, (apsw.carray(ids),)):
            self.save(waiting, transitions.release_successor(waiting, self.now))

    def successor_of(self, job: str) -> Job | None:
        return next(iter(self.jobs(SQL.successors, (apsw.carray((job,)),))), None)

    def record_attempt(self, job: Job, outcome: str, error: Error | None) -> None:
        """Stores an attempt that ended without success. `job` is the job as it was before the outcome was
        applied."""
        described = None if error is None else text_of(error)
        attempt = (job.generation, job.attempts + 1, job.started, self.now, job.worker, outcome, described)
        self.connection.execute(SQL.record_attempt, (job.seq, job.seq, *attempt))
        self.connection.execute(SQL.delete_old_attempts, (job.seq, job.seq))

    # -- counts, history and lanes

    def count_change(self, queue: str, before: State | None, after: State | None, jobs: int) -> None:
        counts = self._counts
        if before is not None:
            counts[queue, before.value] = counts.get((queue, before.value), 0) - jobs
        if after is not None:
            counts[queue, after.value] = counts.get((queue, after.value), 0) + jobs

    def count_flow_jobs(self, queue: str, state: State, jobs: int) -> None:
        """Adds `jobs` (may be negative) to the number of ended jobs that belong to flows. A queue's retention
        does not delete these jobs."""
        counter = (queue, f"{state.value}_flow_jobs")
        self._counts[counter] = self._counts.get(counter, 0) + jobs

    def _count_flow_job(self, before: Job | None, after: Job | None) -> None:
        for job, change in ((before, -1), (after, 1)):
            if job is not None and job.flow is not None and job.state in FINAL:
                self.count_flow_jobs(job.queue, job.state, change)

    def count_minute(self, queue: str, column: str, jobs: int) -> None:
        """Adds `jobs` to one counter of the queue's history in the current minute. `column` is the name of
        the counter, such as "done" or "retried"."""
        self._history[queue, column] = self._history.get((queue, column), 0) + jobs

    def touch(self, queue: str, lane: str, served: int | None = None) -> None:
        """Records that the ready jobs of a lane changed; `refresh_lanes` later writes the lane's new first
        job. `served`: the store-wide number of the call that a claim took from the lane."""
        self._lanes[queue, lane] = served or self._lanes.get((queue, lane))

    def free_slot(self, queue: str, lane: str) -> None:
        """Opens the lanes of a key after one of its jobs has stopped running, if `key_concurrency` is set.
        Wakes the queue if it has any concurrency limit."""
        settings = self.settings(queue)
        if settings.key_concurrency is not None and (key := lane_key(lane)):
            self.connection.execute(SQL.unblock, (queue, key))
            self.topics.add(queue_topic(queue))
        if settings.concurrency is not None:
            self.topics.add(queue_topic(queue))

    def finish(self) -> None:
        for (queue, state), change in self._counts.items():
            if change:
                self.connection.execute(SQL.change_counter, (queue, state, change))
        for queue in {queue for queue, _ in self._history}:
            counts = [self._history.get((queue, column), 0) for column in _MINUTE_COUNTERS]
            self.connection.execute(SQL.count_minute, (queue, int(self.now // 60), *counts))
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
        """Writes the new head of a lane, or deletes the lane if it has no ready job."""
        head = self.connection.execute(SQL.head, (queue, lane)).fetchone()
        if head is None:
            self.connection.execute(SQL.delete_lane, (queue, lane))
            return
        if is_batch_lane(lane):
            self.connection.execute(SQL.unblock_batch if served is None else SQL.restart_batch, (queue, lane))
        known = self.connection.execute(SQL.lane, (queue, lane)).fetchone()
        if known is None:
            self.connection.execute(
                SQL.new_lane, (queue, lane, lane_group(lane), *head, self.number("picks"))
            )
        elif head != known or served is not None:
            if served is None and (head[0] < known[0] or head > known) and lane_group(lane):
                self.connection.execute(SQL.unblock_lane, (queue, lane))
            self.connection.execute(SQL.move_lane, (*head, served, queue, lane))


def expire_jobs(transaction: SqliteTransaction, ids: Sequence[str]) -> None:
    for name in ids:
        # Read one by one: the job before may have released this one.
        job = transaction.by_id([name])[name]
        transaction.save(job, transitions.expire_job(job, transaction.now))
        transaction.release_successors([name])
