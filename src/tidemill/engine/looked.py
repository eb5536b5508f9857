"""Queues, lanes and books of which only what was looked up is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from tidemill.clock import Clock
from tidemill.core.accounts import Account
from tidemill.core.job import Job
from tidemill.core.ledger import PLACE, Reserved
from tidemill.core.needs import is_aside
from tidemill.engine import wants
from tidemill.engine.lanes import Lane, Lanes
from tidemill.engine.ledger import Books, Claim, Left, Pool
from tidemill.engine.order import Order
from tidemill.engine.partial import Partial
from tidemill.engine.queue import ENDS, Queue
from tidemill.engine.tables import Looked, LookedIndex, LookedTally, Table, Written
from tidemill.engine.wants import UNKNOWN, LaneRow, QueueRow, Unloaded


class LookedQueue(Queue):
    """`ended` and `ended_parts` are only added to."""

    def __init__(self, name: str, row: QueueRow, clock: Clock, looked: Looked) -> None:
        super().__init__(name, clock)
        self.declared, self.override, self.pause = row.declared, row.override, row.pause
        self.counts = LookedTally(looked, lambda state: wants.CountOf(name, state))
        self.running_in = LookedTally(looked, lambda key: wants.RunningIn(name, key))
        self.lanes: LookedLanes = LookedLanes(name, row, looked)
        scheduled = wants.Scheduled(name)
        self.scheduled = Partial(looked.beginning(scheduled), scheduled)
        self.ended = {state: Partial(UNKNOWN, scheduled) for state in ENDS}
        self.ended_parts = Partial(UNKNOWN, scheduled)


class LookedLanes(Lanes):
    def __init__(self, queue: str, row: QueueRow, looked: Looked) -> None:
        super().__init__()
        self._queue, self._wake_times = queue, looked.beginning(wants.Wakes(queue))
        self._lanes: Table[str, Lane] = Table(looked, lambda name: wants.LaneOf(queue, name), self._lane_of)
        self._orders: dict[str, Order] = {}
        self._sizes = Counter({group: known.size for group, known in row.groups.items() if known.size})
        for group in self._sizes:
            want = wants.OpenLanes(queue, group)
            self._orders[group] = Partial(looked.beginning(want), want)
        self.shut_groups = {group: known.shut for group, known in row.groups.items() if known.shut}
        self._shut: LookedIndex[PLACE] = LookedIndex(looked, lambda place: wants.ShutLanes(queue, place))
        self._wakes = [(again, name) for again, name in self._wake_times.first]

    def _lane_of(self, name: str, row: LaneRow) -> Lane:
        lane = Lane(name, row.served)
        lane.jobs = Partial(row.jobs, wants.LaneOf(self._queue, name))
        lane.shut, lane.lacks, lane.ripe = row.shut, row.lacks, row.ripe
        return lane

    def add(self, job: Job, picks: int, *, fresh: bool) -> None:
        """A job that was set aside is alone in its lane: nobody has to look whether it is there."""
        if is_aside(job.lane):
            self._lanes.is_new(job.lane)
        super().add(job, picks, fresh=fresh)

    def has_shut(self, place: PLACE) -> bool:
        """Whether this step has made somebody wait for it, or knows of a group that waits."""
        return self._shut.added(place) or any(mark.place == place for mark in self.shut_groups.values())

    def _next_wake(self) -> tuple[float, str] | None:
        first = super()._next_wake()
        if first is None and not self._wake_times.complete:
            raise Unloaded(wants.Wakes(self._queue), 2 * len(self._wake_times.first) + 1)
        return first

    def after(self) -> dict[str, LaneRow | None]:
        """Lanes that were looked at, as they are now; None for one that is forgotten."""
        return {name: None if lane is None else _row_of(lane) for name, lane in self._lanes.after()}


def _row_of(lane: Lane) -> LaneRow:
    return LaneRow(lane.served, lane.shut, lane.lacks, lane.ripe)


class LookedBooks(Books):
    def __init__(
        self, clock: Clock, freed: Callable[[PLACE], None], looked: Looked, new_fence: int | None
    ) -> None:
        super().__init__(clock, freed)
        self._ask, self._new_fence = looked, new_fence
        self.pools: Table[str, Pool] = Table(looked, wants.PoolOf, lambda _, pool: replace(pool))
        self.accounts: Table[PLACE, Account] = Table(looked, wants.AccountOf, lambda _, account: account)
        self.reserved: Table[Claim, list[Reserved]] = Table(
            looked, wants.ReservedBy, lambda _, held: list(held)
        )
        self.left: Written[Claim, Left] = Written()
        self.unheard: Table[Claim, float] = Table(looked, wants.UnheardOf, lambda _, since: since)
        self._open = LookedTally(looked, wants.ReservedAt)

    def hold(self, claim: Claim, taken: Any) -> None:
        if claim[1] == self._new_fence:
            self.reserved.is_new(claim)
        super().hold(claim, taken)

    def count_anew(self, claim: Claim) -> None:
        if self.reserved.get(claim):
            super().count_anew(claim)

    def names(self) -> list[str]:
        return list(self._ask(wants.PoolNames()) or ())

    def places_of(self, pool: str) -> list[PLACE]:
        known = list(self._ask(wants.PlacesOf(pool)) or ())
        return known + [place for place in self.accounts if place[0] == pool and place not in known]

    def claims_on(self, pool: str) -> list[Claim]:
        return list(self._ask(wants.ClaimsOn(pool)) or ())

    def left_over(self, boot: float, dead: frozenset[str]) -> list[Claim]:  # noqa: ARG002 - the store has looked
        return list(self._ask(wants.LeftOver(tuple(sorted(dead)))) or ())
