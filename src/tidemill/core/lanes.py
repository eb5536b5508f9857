"""Which jobs a claim takes from the lanes of one queue.

The next job is the head of the lane with the most urgent head; on a tie the lane
served longest ago, then the older head. A new lane counts as served when it was born,
so a stream of new lanes never starves an old one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Generic, Protocol, TypeVar

import msgspec


class Entry(Protocol):
    """A ready job as the order sees it."""

    @property
    def priority(self) -> int: ...
    @property
    def seq(self) -> int: ...


E = TypeVar("E", bound=Entry)


class OpenLane(msgspec.Struct, frozen=True):
    """A lane with something ready. `room` is how many of its jobs may start now. Lanes of one `group` need
    the same pools."""

    name: str
    served: int
    priority: int
    seq: int
    room: int
    group: str = ""


class Gate(Enum):
    """Why a job that is next has to wait."""

    LANE_SHUT = "lane shut"  # a keyed pool refused, or it waits for company: its lane has to wait
    GROUP_SHUT = "group shut"  # one of its other pools refused: so has every lane that needs it
    ASIDE = "aside"  # it is larger than a limit: it alone has to wait, in a lane of its own


PASS_AT_ONCE = 1000
"""How many jobs one claim sets aside at most: a night of expired jobs is cleared in many claims."""


GIVE_WAY_AT_ONCE = 64
"""How many lanes give way to others in one claim at most: the next one goes on behind them."""


class Picked(msgspec.Struct, Generic[E]):
    """`served` holds the last pick of each lane that got one; `picks` goes on counting them. `calls` is how
    many were made of the jobs: one each, but for batches.
    `stopped` says that PASS_AT_ONCE was reached before the lanes were exhausted. `aside` are to make way for
    the others of their lane. What the pools refused is in `shut_lanes`, and in `shut_groups` with the
    priority from which on it holds."""

    jobs: list[E]
    passed: list[E]
    served: dict[str, int]
    picks: int
    calls: int = 0
    stopped: bool = False
    aside: list[E] = msgspec.field(default_factory=list)
    shut_lanes: list[str] = msgspec.field(default_factory=list)
    shut_groups: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def gave_way(self) -> bool:
        """Enough lanes have, for one claim."""
        return len(self.shut_lanes) >= GIVE_WAY_AT_ONCE

    @property
    def set_aside(self) -> int:
        return len(self.passed) + len(self.aside)

    def add(self, lane: str, jobs: Sequence[E]) -> int:
        """A call; which one it is."""
        self.jobs += jobs
        self.calls += 1
        self.picks += 1
        self.served[lane] = self.picks
        return self.picks


Fetch = Callable[[str, int, int], Sequence[E]]
"""(lane, offset, count) → that many ready jobs of the lane in its order."""

Ahead = Callable[[int], Sequence[E]]
"""That many of the jobs that are next in a lane, the head first."""

Admits = Callable[[E, Ahead[E], int], int | Gate]
"""(head, who is next in its lane, how many may start) → how many of them start as one call."""


Following = Callable[[str], OpenLane | None]
"""The next lane of a group that was not given yet."""


def pick(
    lanes: Iterable[OpenLane],
    limit: int,
    picks: int,
    fetch: Fetch[E],
    passes: Callable[[E], bool],
    *,
    admits: Admits[E] | None = None,
    following: Following | None = None,
    most: int | None = None,
) -> Picked[E]:
    """Take up to `limit` calls, and up to `most` jobs. Jobs for which `passes` is true are set aside, not
    taken. `admits` takes what a call needs of its pools, or says who has to wait: heads come by priority,
    so whatever else of a group follows is no more urgent than the one that was refused. A call that is
    taken makes at most one lane give way, so the first `limit` lanes of each group are enough to begin
    with; `following` gives the next one of a group when a lane gave way without a job."""
    most = limit if most is None else most
    taking = _Taking(fetch, passes, admits, following, limit=limit, most=most, picks=picks)
    for lane in lanes:
        taking.open(lane)
    return taking.all()


class _Taking(Generic[E]):
    """One claim: who is next among the lanes, and what was taken so far."""

    def __init__(
        self,
        fetch: Fetch[E],
        passes: Callable[[E], bool],
        admits: Admits[E] | None,
        following: Following | None,
        *,
        limit: int,
        most: int,
        picks: int,
    ) -> None:
        self._fetch, self._passes, self._admits, self._following = fetch, passes, admits, following
        self._limit, self._most = limit, most
        self._order: list[tuple[int, int, int, str, int]] = []
        self._lanes: dict[str, _Lane[E]] = {}
        self._picked: Picked[E] = Picked([], [], {}, picks)
        self._chunk = self._chunk_behind = 0

    def open(self, lane: OpenLane) -> None:
        self._lanes[lane.name] = _Lane(lane.name, lane.group, self._fetch)
        heapq.heappush(self._order, (lane.priority, lane.served, lane.seq, lane.name, lane.room))

    def all(self) -> Picked[E]:
        order, picked, lanes = self._order, self._picked, self._lanes
        chunk = self._limit + 1 if len(order) == 1 else max(2, self._limit // max(1, len(order)) + 1)
        self._chunk = self._chunk_behind = chunk
        while order and not self._is_full and not picked.gave_way and not picked.stopped:
            _, served, _, name, room = heapq.heappop(order)
            if lanes[name].group not in picked.shut_groups:
                self._take_from(lanes[name], served, room)
        return picked

    @property
    def _is_full(self) -> bool:
        return self._picked.calls >= self._limit or len(self._picked.jobs) >= self._most

    def _take_from(self, lane: _Lane[E], served: int, room: int) -> None:
        """Only a strictly more urgent head lets a lane go twice in a row."""
        picked, order, admits = self._picked, self._order, self._admits
        head = lane.head(self._chunk)
        while head is not None:
            if self._passes(head):
                self._set_aside(lane, picked.passed)
            elif admits is None:
                served, room = picked.add(lane.name, lane.take(1)), room - 1
            else:
                count = admits(head, lane.ahead, min(room, self._most - len(picked.jobs)))
                if isinstance(count, int):
                    served, room = picked.add(lane.name, lane.take(count)), room - count
                elif count is Gate.ASIDE:
                    self._set_aside(lane, picked.aside)
                else:
                    self._shut(lane, count, head.priority)
                    return
            head = None if picked.stopped else lane.head(self._chunk_behind)
            if head is None or room == 0:
                return
            if self._is_full or (order and head.priority >= order[0][0]):
                heapq.heappush(order, (head.priority, served, head.seq, lane.name, room))
                return

    def _set_aside(self, lane: _Lane[E], where: list[E]) -> None:
        where += lane.take(1)
        self._bring(lane.group)
        self._chunk_behind = max(self._chunk, self._picked.set_aside)
        self._picked.stopped = self._picked.set_aside >= PASS_AT_ONCE

    def _shut(self, lane: _Lane[E], gate: Gate, priority: int) -> None:
        if gate is Gate.GROUP_SHUT:
            self._picked.shut_groups[lane.group] = priority
        else:
            self._picked.shut_lanes.append(lane.name)
            self._bring(lane.group)

    def _bring(self, group: str) -> None:
        if self._following is not None and (lane := self._following(group)) is not None:
            self.open(lane)


class _Lane(Generic[E]):
    """A lane read in chunks, so that a long lane costs what is taken from it."""

    def __init__(self, name: str, group: str, fetch: Fetch[E]) -> None:
        self.name, self.group, self._fetch = name, group, fetch
        self._jobs: list[E] = []
        self._at, self._ended = 0, False

    def head(self, chunk: int) -> E | None:
        if self._at == len(self._jobs):
            self._read(chunk)
        return self._jobs[self._at] if self._at < len(self._jobs) else None

    def ahead(self, count: int) -> Sequence[E]:
        lacking = self._at + count - len(self._jobs)
        if lacking > 0:
            self._read(lacking)
        return self._jobs[self._at : self._at + count]

    def take(self, count: int) -> Sequence[E]:
        self._at += count
        return self._jobs[self._at - count : self._at]

    def _read(self, count: int) -> None:
        if not self._ended:
            more = self._fetch(self.name, len(self._jobs), count)
            self._jobs.extend(more)
            self._ended = len(more) < count
