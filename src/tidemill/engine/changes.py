"""What a step made of the rows it looked up: all a store has to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from tidemill.contract.reader import AttemptRecord, LogLine
from tidemill.core.accounts import Account
from tidemill.core.checkpoints import Checkpoint, Step
from tidemill.core.courses import Course, Kind
from tidemill.core.job import Job
from tidemill.core.ledger import PLACE, Reserved, Shut
from tidemill.core.pool_history import Remark
from tidemill.engine import wants
from tidemill.engine.ledger import Claim, Left, Pool
from tidemill.engine.looked import LookedQueue
from tidemill.engine.records import KnownWorker, Remembered, Stir
from tidemill.engine.tables import Table
from tidemill.engine.wants import LaneRow, QueueRow, Rows, Want
from tidemill.engine.workspace import Workspace

K = TypeVar("K")
V = TypeVar("V")


class Moved(msgspec.Struct, frozen=True):
    """`before` is None for a job that comes into being, `after` for one that is gone: with it go its logs,
    attempts and checkpoints."""

    before: Job | None
    after: Job | None


class Changes(msgspec.Struct, kw_only=True):
    """None stands for a row that goes. `read` is what the step rests on.

    jobs: where they stand in lanes, orders, counts and indexes is the store's to keep, by their fields.
    queues: new ones, and those of which something was set; `groups` of the row mean nothing here.
    lanes: new, changed or forgotten ones, by queue and lane; `jobs` of the row mean nothing here.
    groups: marks on groups of lanes, by queue and group.
    arrivals: those that were admitted.
    courses: with one that goes goes all that has stirred it.
    stirs: to be added, each with a number of its own, but for courses there are none of. taken: numbers of
    those that go.
    attempts, logs: to be added to what is kept of each job.
    history, pool_history: to be added, by queue or pool and minute.
    picked: to be added to the picks.
    """

    read: tuple[Want, ...]
    jobs: list[Moved]
    remembered: dict[str, Remembered]
    queues: dict[str, QueueRow]
    lanes: dict[tuple[str, str], LaneRow | None]
    groups: dict[tuple[str, str], Shut | None]
    arrivals: list[int]
    workers: dict[str, KnownWorker]
    checkpoints: dict[str, tuple[Checkpoint, ...]]
    courses: dict[tuple[Kind, str], Course | None]
    stirs: list[Stir]
    taken: list[int]
    pools: dict[str, Pool]
    accounts: dict[PLACE, Account]
    reserved: dict[Claim, tuple[Reserved, ...]]
    left: dict[Claim, Left | None]
    unheard: dict[Claim, float | None]
    attempts: dict[str, list[AttemptRecord]]
    logs: dict[str, list[LogLine]]
    history: dict[tuple[str, float], dict[str, int]]
    pool_history: dict[tuple[str, float], Remark]
    picked: int
    topics: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return not any(
            getattr(self, field) for field in self.__struct_fields__ if field not in ("read", "topics")
        )


def changes_of(space: Workspace, rows: Rows) -> Changes:
    """The step is over."""
    space.end_step()
    books = space.books
    queues = {name: queue for name, queue in space.queues.after() if isinstance(queue, LookedQueue)}
    return Changes(
        read=tuple(space.looked.read),
        jobs=_moved(space.jobs, rows),
        remembered=_written(space.memory, rows, wants.Recalled),
        queues=_queues(queues, rows),
        lanes=_lanes(queues, rows),
        groups=_marked(queues, rows),
        arrivals=[seq for seq, left in space.arrivals.after() if left is None and rows[wants.ArrivalOf(seq)]],
        workers=_written(space.workers, rows, wants.WorkerOf),
        checkpoints=_checkpoints(space.checkpoints, rows),
        courses=_changed(space.courses, rows, lambda at: wants.CourseOf(*at)),
        stirs=space.stirred,
        taken=space.taken,
        pools=_written(books.pools, rows, wants.PoolOf),
        accounts=_written(books.accounts, rows, wants.AccountOf),
        reserved=_reserved(books.reserved, rows),
        left=dict(books.left.after()),
        unheard=_changed(books.unheard, rows, wants.UnheardOf),
        attempts={job: list(kept) for job, kept in space.attempts.items()},
        logs={job: [line for of in kept.values() for line in of] for job, kept in space.logs.items()},
        history={(name, at): dict(of) for name, queue in queues.items() for at, of in queue.history.items()},
        pool_history={
            (pool, at): of for pool, minutes in books.history.items() for at, of in minutes.items()
        },
        picked=space.picked,
        topics=tuple(space.topics),
    )


def _moved(jobs: Table[str, Job], rows: Rows) -> list[Moved]:
    return [
        Moved(before, after) for id_, after in jobs.after() if after != (before := rows.get(wants.JobOf(id_)))
    ]


def _queues(queues: Mapping[str, LookedQueue], rows: Rows) -> dict[str, QueueRow]:
    """Those that are new, too."""
    settings = {name: QueueRow(one.declared, one.override, one.pause) for name, one in queues.items()}
    before = {name: rows.get(wants.QueueOf(name)) for name in queues}
    return {name: row for name, row in settings.items() if row != _settings(before[name])}


def _lanes(queues: Mapping[str, LookedQueue], rows: Rows) -> dict[tuple[str, str], LaneRow | None]:
    return {
        (name, lane): row
        for name, queue in queues.items()
        for lane, row in queue.lanes.after().items()
        if row != _without_jobs(rows.get(wants.LaneOf(name, lane)))
    }


def _marked(queues: Mapping[str, LookedQueue], rows: Rows) -> dict[tuple[str, str], Shut | None]:
    return {
        (name, group): mark
        for name, queue in queues.items()
        for group, mark in _marks(rows.get(wants.QueueOf(name)) or QueueRow(), queue).items()
    }


def _checkpoints(table: Table[str, dict[Step, Checkpoint]], rows: Rows) -> dict[str, tuple[Checkpoint, ...]]:
    return {
        job: after
        for job, kept in table.after()
        if (after := tuple((kept or {}).values())) != tuple(rows[wants.StepsOf(job)] or ())
    }


def _reserved(table: Table[Claim, list[Reserved]], rows: Rows) -> dict[Claim, tuple[Reserved, ...]]:
    return {
        claim: reserved
        for claim, held in table.after()
        if (reserved := tuple(held or ())) != tuple(rows.get(wants.ReservedBy(claim)) or ())
    }


def _changed(table: Table[K, V], rows: Rows, want: Callable[[K], Want]) -> dict[K, V | None]:
    return {key: value for key, value in table.after() if value != rows.get(want(key))}


def _written(table: Table[K, V], rows: Rows, want: Callable[[K], Want]) -> dict[K, V]:
    """Of rows that no step takes away."""
    changed = _changed(table, rows, want)
    return {key: row for key, row in changed.items() if row is not None}


def _settings(row: QueueRow | None) -> QueueRow | None:
    return None if row is None else QueueRow(row.declared, row.override, row.pause)


def _without_jobs(row: LaneRow | None) -> LaneRow | None:
    return None if row is None else LaneRow(row.served, row.shut, row.lacks, row.ripe)


def _marks(before: QueueRow, queue: LookedQueue) -> dict[str, Shut | None]:
    known = {group: row.shut for group, row in before.groups.items() if row.shut is not None}
    now = queue.lanes.shut_groups
    return {
        group: now.get(group) for group in known.keys() | now.keys() if now.get(group) != known.get(group)
    }
