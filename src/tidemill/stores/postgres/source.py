"""Where a step finds its rows: one transaction, in which it is the only one that takes its time.

Steps that look, decide and write go one after the other (`tidemill.begin_step`), so what they read stays as
it is until they have written. Only the hot path goes on beside them, and it moves nothing but plain jobs and
the rows of workers: those are locked as they are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tidemill.engine import wants
from tidemill.engine.changes import Changes
from tidemill.engine.wants import Numbers, Rows, Want
from tidemill.stores.postgres import courses, look_books, look_jobs, look_lanes
from tidemill.stores.postgres.commit import commit
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.step import Step
from tidemill.stores.postgres.view import Found, View

SQL = load("look")
Answer = Callable[[View, dict[Any, int], Found], Awaitable[None]]

# Jobs before workers, as everybody locks them.
_ANSWERS: dict[type[Want], Answer] = {
    wants.Ahead: look_lanes.ahead,
    wants.JobOf: look_jobs.jobs,
    wants.RunningOf: look_jobs.running_of,
    wants.Overdue: look_jobs.overdue,
    wants.HoldersOf: look_jobs.holders,
    wants.SuccessorsOf: look_jobs.successors,
    wants.Recalled: look_jobs.recalled,
    wants.RunningIn: look_jobs.running_in,
    wants.CountOf: look_jobs.counts,
    wants.StepsOf: look_jobs.checkpoints,
    wants.ArrivalOf: look_jobs.arrivals,
    wants.QueueOf: look_lanes.queues,
    wants.LaneOf: look_lanes.lanes,
    wants.OpenLanes: look_lanes.open_lanes,
    wants.Scheduled: look_lanes.scheduled,
    wants.Wakes: look_lanes.wakes,
    wants.ShutLanes: look_lanes.shut_lanes,
    wants.WaitingFor: look_lanes.waiting_for,
    wants.PoolOf: look_books.pools,
    wants.PoolNames: look_books.names,
    wants.AccountOf: look_books.accounts,
    wants.PlacesOf: look_books.places,
    wants.ReservedBy: look_books.reserved,
    wants.ReservedAt: look_books.reserved_at,
    wants.ClaimsOn: look_books.claims_on,
    wants.LeftOver: look_books.left_over,
    wants.UnheardOf: look_books.unheard,
    wants.CourseOf: courses.look,
    wants.WorkerOf: look_jobs.workers,
}


class Source:
    """A `engine.steps.Source`. Begin before you look."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._view: View | None = None

    async def begin(self) -> None:
        clock = self._step.clock
        sent = clock.own()
        row = await self._step.first(SQL.begin, *clock.asked())
        assert row is not None  # noqa: S101 - a function call has one row
        wall, boot, epoch, picks, seq, fence, waited = row
        # Somebody may have set the server's clock meanwhile: it waited no longer than we did.
        self._step.decided = sent + min(max(0.0, waited or 0.0), clock.own() - sent)
        clock.heard(wall, boot, epoch)
        numbers = Numbers(wall, boot, self._step.clock.boot_id, picks, seq, fence)
        self._view = View(self._step, numbers)

    async def look(self, wanted: Mapping[Want, int]) -> tuple[Rows, Numbers]:
        by_kind: dict[type[Want], dict[Want, int]] = defaultdict(dict)
        for want, count in wanted.items():
            by_kind[type(want)][want] = count
        view = self._at()
        found: Found = {}
        for kind, answer in _ANSWERS.items():
            if of_kind := by_kind.get(kind):
                await answer(view, of_kind, found)
        return found, view.numbers

    async def take_seqs(self, count: int) -> list[int]:
        return [row[0] for row in await self._step.fetch(SQL.take_places, count)]

    async def take_fence(self) -> int:
        return int(await self._step.value(SQL.take_fence))

    async def commit(self, changes: Changes, rows: Rows) -> bool:
        await commit(self._at(), changes, rows)
        return True

    def _at(self) -> View:
        assert self._view is not None, "begin first"  # noqa: S101 - an invariant of this file
        return self._view
