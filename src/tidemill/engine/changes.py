"""The changes that an engine function made to the loaded rows: everything that a database store has to
write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from tidemill.contract.reader import AttemptRecord, LogLine
from tidemill.core.accounts import Account
from tidemill.core.checkpoints import Checkpoint, StepKey
from tidemill.core.documents import Document, DocumentKind
from tidemill.core.jobs import Job
from tidemill.core.ledger import AccountKey, HeldReservation, LaneBlock
from tidemill.core.pool_statistics import PoolHistoryEntry
from tidemill.engine import queries
from tidemill.engine.ledger import AbandonedClaim, ClaimKey, PoolRecord
from tidemill.engine.loaded_tables import LoadedTable
from tidemill.engine.queries import LaneRow, QueueSettingsRow, RowQuery, Rows
from tidemill.engine.records import KnownId, KnownWorker, WorkMark
from tidemill.engine.transaction_records import LoadedQueue, Workspace

K = TypeVar("K")
V = TypeVar("V")


class JobUpdate(msgspec.Struct, frozen=True):
    """The change of one job. `before` is None for a new job. `after` is None for a deleted job; its logs,
    attempts and checkpoints are deleted with it."""

    before: Job | None
    after: Job | None


class Changes(msgspec.Struct, kw_only=True):
    """Everything that a store has to write after an engine function has run. In a mapping, None means that
    the row has to be deleted.

    - `read`: the queries whose answers the function has used.
    - `jobs`: new, changed and deleted jobs. The store also updates its counts and indexes from them.
    - `queues`: new and changed queues, without their field `groups`.
    - `lanes`: new, changed and deleted lanes, by queue and lane, without their field `jobs`.
    - `groups`: blocks on groups of lanes, by queue and group.
    - `arrivals`: the numbers of arrivals to delete.
    - `documents`: new, changed and deleted documents. A deleted document loses its worklist entries.
    - `work_marks`: worklist entries to add. The store numbers them, and skips entries of missing documents.
    - `taken`: numbers of worklist entries to delete.
    - `left`: claims of jobs that were cancelled while they ran.
    - `attempts`, `logs`: records to add, by job.
    - `history`, `pool_history`: counters to add, by queue or pool and minute.
    - `picked`: how many turns lanes got.
    - `topics`: topics that get a wake-up after the commit."""

    read: tuple[RowQuery, ...]
    jobs: list[JobUpdate]
    known_ids: dict[str, KnownId]
    queues: dict[str, QueueSettingsRow]
    lanes: dict[tuple[str, str], LaneRow | None]
    groups: dict[tuple[str, str], LaneBlock | None]
    arrivals: list[int]
    workers: dict[str, KnownWorker]
    checkpoints: dict[str, tuple[Checkpoint, ...]]
    documents: dict[tuple[DocumentKind, str], Document | None]
    work_marks: list[WorkMark]
    taken: list[int]
    pools: dict[str, PoolRecord]
    accounts: dict[AccountKey, Account]
    reserved: dict[ClaimKey, tuple[HeldReservation, ...]]
    left: dict[ClaimKey, AbandonedClaim | None]
    unconfirmed_units: dict[ClaimKey, float | None]
    attempts: dict[str, list[AttemptRecord]]
    logs: dict[str, list[LogLine]]
    history: dict[tuple[str, float], dict[str, int]]
    pool_history: dict[tuple[str, float], PoolHistoryEntry]
    picked: int
    topics: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return not any(
            getattr(self, field) for field in self.__struct_fields__ if field not in ("read", "topics")
        )


def collect_changes(space: Workspace, rows: Rows) -> Changes:
    """Compares the workspace with the loaded rows after an engine function has run. Returns everything that
    the store has to write."""
    space.forget_empty_lanes()
    pool_ledger = space.pool_ledger
    queues = {name: queue for name, queue in space.queues.after() if isinstance(queue, LoadedQueue)}
    return Changes(
        read=tuple(space.loaded.read),
        jobs=_job_updates(space.jobs, rows),
        known_ids=_written_rows(space.memory, rows, queries.KnownIdByRequest),
        queues=_queue_changes(queues, rows),
        lanes=_lane_changes(queues, rows),
        groups=_group_changes(queues, rows),
        arrivals=[
            seq for seq, left in space.arrivals.after() if left is None and rows[queries.ArrivalBySeq(seq)]
        ],
        workers=_written_rows(space.workers, rows, queries.WorkerById),
        checkpoints=_checkpoint_changes(space.checkpoints, rows),
        documents=_changed_rows(space.documents, rows, lambda at: queries.DocumentById(*at)),
        work_marks=space.work_items,
        taken=space.taken,
        pools=_written_rows(pool_ledger.pools, rows, queries.PoolByName),
        accounts=_written_rows(pool_ledger.accounts, rows, queries.AccountByKey),
        reserved=_reservation_changes(pool_ledger.reserved, rows),
        left=dict(pool_ledger.left.after()),
        unconfirmed_units=_changed_rows(pool_ledger.unconfirmed_units, rows, queries.UnconfirmedSince),
        attempts={job: list(entries) for job, entries in space.attempts.items()},
        logs={job: [line for of in entries.values() for line in of] for job, entries in space.logs.items()},
        history={(name, at): dict(of) for name, queue in queues.items() for at, of in queue.history.items()},
        pool_history={
            (pool, at): of for pool, minutes in pool_ledger.history.items() for at, of in minutes.items()
        },
        picked=space.picked,
        topics=tuple(space.topics),
    )


def _job_updates(jobs: LoadedTable[str, Job], rows: Rows) -> list[JobUpdate]:
    return [
        JobUpdate(before, after)
        for id_, after in jobs.after()
        if after != (before := rows.get(queries.JobById(id_)))
    ]


def _queue_changes(queues: Mapping[str, LoadedQueue], rows: Rows) -> dict[str, QueueSettingsRow]:
    """Returns the new queues and the queues whose settings, override or pause changed, by name."""
    settings = {
        name: QueueSettingsRow(queue.declared, queue.override, queue.pause) for name, queue in queues.items()
    }
    before = {name: rows.get(queries.QueueByName(name)) for name in queues}
    return {name: row for name, row in settings.items() if row != _queue_settings_row(before[name])}


def _lane_changes(queues: Mapping[str, LoadedQueue], rows: Rows) -> dict[tuple[str, str], LaneRow | None]:
    return {
        (name, lane): row
        for name, queue in queues.items()
        for lane, row in queue.lanes.after().items()
        if row != _lane_row_without_jobs(rows.get(queries.LaneByName(name, lane)))
    }


def _group_changes(queues: Mapping[str, LoadedQueue], rows: Rows) -> dict[tuple[str, str], LaneBlock | None]:
    return {
        (name, group): mark
        for name, queue in queues.items()
        for group, mark in _changed_group_blocks(
            rows.get(queries.QueueByName(name)) or QueueSettingsRow(), queue
        ).items()
    }


def _checkpoint_changes(
    table: LoadedTable[str, dict[StepKey, Checkpoint]], rows: Rows
) -> dict[str, tuple[Checkpoint, ...]]:
    return {
        job: after
        for job, checkpoints in table.after()
        if (after := tuple((checkpoints or {}).values())) != tuple(rows[queries.JobCheckpoints(job)] or ())
    }


def _reservation_changes(
    table: LoadedTable[ClaimKey, list[HeldReservation]], rows: Rows
) -> dict[ClaimKey, tuple[HeldReservation, ...]]:
    return {
        claim: reserved
        for claim, held in table.after()
        if (reserved := tuple(held or ())) != tuple(rows.get(queries.ClaimReservations(claim)) or ())
    }


def _changed_rows(table: LoadedTable[K, V], rows: Rows, query: Callable[[K], RowQuery]) -> dict[K, V | None]:
    return {key: value for key, value in table.after() if value != rows.get(query(key))}


def _written_rows(table: LoadedTable[K, V], rows: Rows, query: Callable[[K], RowQuery]) -> dict[K, V]:
    """Returns the rows of `table` that were added or changed. Store methods delete no rows of this table."""
    changed = _changed_rows(table, rows, query)
    return {key: row for key, row in changed.items() if row is not None}


def _queue_settings_row(row: QueueSettingsRow | None) -> QueueSettingsRow | None:
    return None if row is None else QueueSettingsRow(row.declared, row.override, row.pause)


def _lane_row_without_jobs(row: LaneRow | None) -> LaneRow | None:
    return None if row is None else LaneRow(row.served, row.block, row.missing_jobs, row.batch_due)


def _changed_group_blocks(before: QueueSettingsRow, queue: LoadedQueue) -> dict[str, LaneBlock | None]:
    known = {group: row.block for group, row in before.groups.items() if row.block is not None}
    now = queue.lanes.blocked_groups
    return {
        group: now.get(group) for group in known.keys() | now.keys() if now.get(group) != known.get(group)
    }
