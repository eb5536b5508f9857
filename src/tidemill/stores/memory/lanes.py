"""The ready jobs of one queue, filed by lane.

A lane is born with its first ready job. When it is born it counts as served just now
(`served` = the store's pick counter), so that a stream of new lanes never starves an old
one. It is forgotten when a step ends without a ready job in it: a job that is replaced
within one step does not cost its lane the turn. A claim's steps are its promotions and
each taking of jobs from a queue; any other verb is one step.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.core.job import Job
from tidemill.core.lanes import OpenLane
from tidemill.stores.memory.order import Key, Order


class Lane:
    __slots__ = ("jobs", "served")

    def __init__(self, served: int) -> None:
        self.jobs = Order()
        self.served = served


class Lanes:
    """`_order` keeps the lanes as a claim meets them: by head priority, then longest unserved."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}
        self._order = Order()
        self._emptied: set[str] = set()

    def __len__(self) -> int:
        return len(self._lanes)

    def add(self, job: Job, picks: int) -> None:
        lane = self._lanes.get(job.lane)
        if lane is None:
            lane = self._lanes[job.lane] = Lane(picks)
        elif len(lane.jobs):
            self._order.remove(_place(job.lane, lane))
        lane.jobs.add(_key(job))
        self._order.add(_place(job.lane, lane))

    def remove(self, job: Job) -> None:
        lane = self._lanes[job.lane]
        self._order.remove(_place(job.lane, lane))
        lane.jobs.remove(_key(job))
        if len(lane.jobs):
            self._order.add(_place(job.lane, lane))
        else:
            self._emptied.add(job.lane)

    def forget_empty(self) -> None:
        for name in self._emptied:
            if not len(self._lanes[name].jobs):
                del self._lanes[name]
        self._emptied.clear()

    def serve(self, name: str, served: int) -> None:
        """Remember the lane's last pick."""
        lane = self._lanes[name]
        if not len(lane.jobs):
            lane.served = served
            return
        self._order.remove(_place(name, lane))
        lane.served = served
        self._order.add(_place(name, lane))

    def in_order(self) -> Iterator[tuple[int, int, int, str]]:
        """(head priority, served, head seq, name) of every lane, the next to be served first."""
        for at in range(len(self._order)):
            priority, served, seq, name = self._order[at]
            yield priority, served, seq, name

    def oldest_dues(self) -> Iterator[float]:
        """Of each lane and priority the earliest due: the jobs between are passed over."""
        for lane in self._lanes.values():
            at = 0
            while at < len(lane.jobs):
                priority, due, _, _ = lane.jobs[at]
                yield due
                at = lane.jobs.place((priority + 1,))

    def place_of(self, job: Job) -> int:
        """How many of its lane stand before a ready job."""
        return self._lanes[job.lane].jobs.place(_key(job))

    def ids(self, name: str, offset: int, count: int) -> list[str]:
        return [key[-1] for key in self._lanes[name].jobs.slice(offset, count)]


def open_lane(place: tuple[int, int, int, str], room: int) -> OpenLane:
    priority, served, seq, name = place
    return OpenLane(name, served, priority, seq, room)


def _key(job: Job) -> Key:
    return (job.priority, job.due, job.seq, job.id)


def _place(name: str, lane: Lane) -> Key:
    head = lane.jobs.head()
    assert head is not None, "a lane without jobs is forgotten"  # noqa: S101 - an invariant of this file
    priority, _, seq, _ = head
    return (priority, lane.served, seq, name)
