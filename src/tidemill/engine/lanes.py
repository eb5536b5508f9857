"""The ready jobs of one queue, filed by lane.

A lane is born with its first ready job. When it is born it counts as served just now
(`served` = the store's pick counter), so that a stream of new lanes never starves an old
one. It is forgotten when a step ends without a ready job in it: a job that is replaced
within one step does not cost its lane the turn. A claim's steps are its promotions and
each taking of jobs from a queue; any other verb is one step.

Lanes whose jobs share pools are a group, kept in an order of its own: when one of the pools refuses,
one mark passes over all of them. A lane that a keyed pool refused is taken out of the order, and so is
one whose batch waits for company.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator

from tidemill.core.calls import UNRIPE
from tidemill.core.job import Job
from tidemill.core.lanes import OpenLane
from tidemill.core.ledger import PLACE, Shut
from tidemill.core.needs import group_of_lane, key_of
from tidemill.engine.indexes import Index
from tidemill.engine.order import Key, Order

UNPOOLED = ""


class Lane:
    """`lacks`: how many new jobs open it while it waits for company; `ripe`: the boot time when it has
    waited enough, kept until a call is taken from it."""

    __slots__ = ("group", "jobs", "lacks", "ripe", "served", "shut")

    def __init__(self, name: str, served: int) -> None:
        self.jobs = Order()
        self.served = served
        self.group = group_of_lane(name)
        self.shut: Shut | None = None
        self.lacks = 0
        self.ripe: float | None = None

    @property
    def is_unripe(self) -> bool:
        return self.shut is not None and self.shut.place == UNRIPE


class Lanes:
    """`_orders` keeps the open lanes of each group as a claim meets them: by head priority, then longest
    unserved."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}
        self._orders: dict[str, Order] = {}
        self._sizes: Counter[str] = Counter()  # lanes of each group, the shut ones too
        self._emptied: set[str] = set()
        self.shut_groups: dict[str, Shut] = {}
        self._shut: Index[PLACE] = Index()
        self._wakes: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._lanes)

    @property
    def is_pooled(self) -> bool:
        return len(self._orders) > (UNPOOLED in self._orders)

    def add(self, job: Job, picks: int, *, fresh: bool) -> None:
        """`fresh`: it comes into being. A lane that waits for company counts those, and is looked at when
        there are enough of them, or when anything else becomes of its jobs."""
        lane = self._lanes.get(job.lane)
        if lane is None:
            lane = self._lanes[job.lane] = Lane(job.lane, picks)
            self._sizes[lane.group] += 1
            self._orders.setdefault(lane.group, Order())
        elif head := lane.jobs.head():
            self._take_out(job.lane, lane)
            lane.lacks -= lane.is_unripe  # else nothing changes of the lane, and nobody need decide anew
            if job.priority < head[0] or (lane.is_unripe and (lane.lacks <= 0 or not fresh)):
                self._unmark(job.lane, lane)
        lane.jobs.add(_key(job))
        self._put_in(job.lane, lane)

    def remove(self, job: Job) -> None:
        lane = self._lanes[job.lane]
        self._take_out(job.lane, lane)
        head = lane.jobs.head()
        lane.jobs.remove(_key(job))
        if lane.is_unripe or lane.jobs.head() != head:
            self._unmark(job.lane, lane)
        if lane.jobs.head() is not None:
            self._put_in(job.lane, lane)
        else:
            self._emptied.add(job.lane)

    def forget_empty(self) -> None:
        for name in self._emptied:
            lane = self._lanes[name]
            if lane.jobs.head() is None:
                self._unmark(name, lane)
                del self._lanes[name]
                self._sizes[lane.group] -= 1
                if not self._sizes[lane.group]:
                    del self._orders[lane.group], self._sizes[lane.group]
        self._emptied.clear()

    def serve(self, name: str, served: int) -> None:
        """Remember the lane's last pick."""
        lane = self._lanes[name]
        lane.ripe = None
        if lane.jobs.head() is None:
            lane.served = served
            return
        self._take_out(name, lane)
        lane.served = served
        self._put_in(name, lane)

    def shut(self, name: str, mark: Shut, lacks: int = 0) -> None:
        """One of its keyed pools refused the head, or its batch is not ripe."""
        lane = self._lanes[name]
        self._take_out(name, lane)
        lane.shut, lane.lacks = mark, lacks
        lane.ripe = mark.again if mark.place == UNRIPE else None
        self._shut.add(mark.place, name)
        heapq.heappush(self._wakes, (mark.again, name))

    def reopen(self, place: PLACE) -> bool:
        """Units of that account came free, or its limits are others. Answers whether anybody waited."""
        names = sorted(self._shut.of(place))
        for name in names:
            self._open(name)
        groups = [group for group, mark in self.shut_groups.items() if mark.place == place]
        for group in groups:
            del self.shut_groups[group]
        return bool(names or groups)

    def reopen_all(self) -> None:
        """Another boot: the times of the last one mean nothing."""
        for place in self._shut.keys():  # noqa: SIM118 - an index is no mapping
            self.reopen(place)
        self.shut_groups.clear()
        for lane in self._lanes.values():
            lane.ripe = None

    def wake(self, boot: float) -> None:
        """Open the lanes whose wait is over."""
        while (first := self._next_wake()) is not None and first[0] <= boot:
            self._open(first[1])

    def waits(self, boot: float) -> Iterator[float]:
        """Boot times when asking again may be answered otherwise, of those for whom somebody waits."""
        if (first := self._next_wake()) is not None:
            yield first[0]
        for group, mark in self.shut_groups.items():
            if self._sizes[group] and mark.holds(boot):
                yield mark.until

    def open_groups(self, boot: float, room_in: Callable[[str], float]) -> list[str]:
        return [group for group in self._orders if not self._is_shut(group, boot, room_in)]

    @property
    def lingers(self) -> bool:
        """A batch waits for company."""
        return bool(self._shut.of(UNRIPE))

    def ripe_at(self, name: str) -> float | None:
        return self._lanes[name].ripe

    def group(self, name: str) -> str:
        return self._lanes[name].group

    def in_order(self, group: str) -> Iterator[tuple[int, int, int, str]]:
        """(head priority, served, head seq, name) of every open lane, the next to be served first. Whoever
        asks may open others meanwhile: an override that ends does."""
        order, at = self._orders[group], 0
        while (place := order.at(at)) is not None:
            priority, served, seq, name = place
            yield priority, served, seq, name
            at = order.place((priority, served, seq, name)) + 1

    def _is_shut(self, group: str, boot: float, room_in: Callable[[str], float]) -> bool:
        """A head that is more urgent than the one that was refused is not meant, if it may start."""
        mark = self.shut_groups.get(group)
        if mark is None or not mark.holds(boot):
            return False
        for priority, _, _, name in self.in_order(group):
            if priority >= mark.priority:
                break
            if room_in(key_of(name)) > 0:
                return False
        return True

    def _open(self, name: str) -> None:
        lane = self._lanes[name]
        self._unmark(name, lane)
        if lane.jobs.head() is not None:
            self._put_in(name, lane)

    def _unmark(self, name: str, lane: Lane) -> None:
        if lane.shut is not None:
            self._shut.discard(lane.shut.place, name)
            lane.shut = None

    def _next_wake(self) -> tuple[float, str] | None:
        """A lane that was opened or forgotten before leaves its entry behind: it is dropped here."""
        while self._wakes:
            again, name = self._wakes[0]
            lane = self._lanes.get(name)
            if lane is not None and lane.shut is not None and lane.shut.again == again:
                return again, name
            heapq.heappop(self._wakes)
        return None

    def _put_in(self, name: str, lane: Lane) -> None:
        if lane.shut is None:
            self._orders[lane.group].add(_place(name, lane))

    def _take_out(self, name: str, lane: Lane) -> None:
        if lane.shut is None:
            self._orders[lane.group].remove(_place(name, lane))

    def oldest_dues(self) -> Iterator[float]:
        """Of each lane and priority the earliest due: the jobs between are passed over."""
        for lane in self._lanes.values():
            at = 0
            while at < len(lane.jobs):
                priority, due, _, _ = lane.jobs[at]
                yield due
                at = lane.jobs.place((priority + 1,))

    def pooled(self) -> list[str]:
        """The lanes whose jobs need pools or share calls, and have some ready."""
        return sorted(name for name, lane in self._lanes.items() if lane.group and len(lane.jobs))

    def priorities(self, name: str) -> Iterator[tuple[int, int]]:
        """The priorities in a lane, each with how many jobs have it."""
        jobs, at = self._lanes[name].jobs, 0
        while at < len(jobs):
            priority = jobs[at][0]
            end = jobs.place((priority + 1,))
            yield priority, end - at
            at = end

    def ids_of(self, name: str, priority: int, count: int) -> list[str]:
        """The first of a lane with that priority."""
        jobs = self._lanes[name].jobs
        begin, end = jobs.place((priority,)), jobs.place((priority + 1,))
        return [key[-1] for key in jobs.slice(begin, min(count, end - begin))]

    def place_of(self, job: Job) -> int:
        """How many of its lane stand before a ready job."""
        return self._lanes[job.lane].jobs.place(_key(job))

    def ids(self, name: str, offset: int, count: int) -> list[str]:
        return [key[-1] for key in self._lanes[name].jobs.slice(offset, count)]


def open_lane(place: tuple[int, int, int, str], room: int, group: str) -> OpenLane:
    priority, served, seq, name = place
    return OpenLane(name, served, priority, seq, room, group)


def _key(job: Job) -> Key:
    return (job.priority, job.due, job.seq, job.id)


def _place(name: str, lane: Lane) -> Key:
    head = lane.jobs.head()
    assert head is not None, "a lane without jobs is forgotten"  # noqa: S101 - an invariant of this file
    priority, _, seq, _ = head
    return (priority, lane.served, seq, name)
