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


Fetch = Callable[[str, int, int], Sequence[E]]
"""(lane, offset, count) → that many ready jobs of the lane in its order."""

Ahead = Callable[[int], Sequence[E]]
"""That many of the jobs that are next in a lane, the head first."""

Admits = Callable[[E, Ahead[E], int], int | Gate]
"""(head, who is next in its lane, how many may start) → how many of them start as one call."""


def pick(  # noqa: C901 - one rule after the other, and all of them about the head that is next
    lanes: Iterable[OpenLane],
    limit: int,
    picks: int,
    fetch: Fetch[E],
    passes: Callable[[E], bool],
    *,
    admits: Admits[E] | None = None,
    following: Callable[[str], OpenLane | None] | None = None,
    most: int | None = None,
) -> Picked[E]:
    """Take up to `limit` calls, and up to `most` jobs. Jobs for which `passes` is true are set aside, not
    taken. `admits` takes what a call needs of its pools, or says who has to wait: heads come by priority,
    so whatever else of a group follows is no more urgent than the one that was refused. A call that is
    taken makes at most one lane give way, so the first `limit` lanes of each group are enough to begin
    with; `following` gives the next one of a group when a lane gave way without a job."""
    opened, most = list(lanes), limit if most is None else most
    order = [(lane.priority, lane.served, lane.seq, lane.name, lane.room) for lane in opened]
    heapq.heapify(order)
    picked: Picked[E] = Picked([], [], {}, picks)
    queues = {lane.name: _Lane(lane.name, fetch) for lane in opened}
    groups = {lane.name: lane.group for lane in opened}

    def bring(group: str) -> None:
        if following is not None and (lane := following(group)) is not None:
            queues[lane.name], groups[lane.name] = _Lane(lane.name, fetch), group
            heapq.heappush(order, (lane.priority, lane.served, lane.seq, lane.name, lane.room))

    chunk = limit + 1 if len(order) == 1 else max(2, limit // max(1, len(order)) + 1)
    while order and picked.calls < limit and len(picked.jobs) < most and not picked.gave_way:
        _, served, _, name, room = heapq.heappop(order)
        rival = order[0][0] if order else None
        lane, group = queues[name], groups[name]
        if group in picked.shut_groups:
            continue
        while (head := lane.head(chunk)) is not None:
            expired = passes(head)
            count: int | Gate = 1
            if admits is not None and not expired:
                count = admits(head, lane.ahead, min(room, most - len(picked.jobs)))
            if expired or count is Gate.ASIDE:
                (picked.passed if expired else picked.aside).extend(lane.take(1))
                bring(group)
                rival = order[0][0] if order else None
                if picked.set_aside >= PASS_AT_ONCE:
                    picked.stopped = True
                    return picked
            elif isinstance(count, Gate):
                if count is Gate.GROUP_SHUT:
                    picked.shut_groups[group] = head.priority
                else:
                    picked.shut_lanes.append(name)
                    bring(group)
                break
            else:
                picked.jobs += lane.take(count)
                picked.calls += 1
                picked.picks += 1
                served, room = picked.picks, room - count
                picked.served[name] = served
            behind = lane.head(max(chunk, picked.set_aside))
            if behind is None or room == 0:
                break
            # Only a strictly more urgent head lets a lane go twice in a row.
            full = picked.calls == limit or len(picked.jobs) == most
            if full or (rival is not None and behind.priority >= rival):
                heapq.heappush(order, (behind.priority, served, behind.seq, name, room))
                break
    return picked


class _Lane(Generic[E]):
    """A lane read in chunks, so that a long lane costs what is taken from it."""

    def __init__(self, name: str, fetch: Fetch[E]) -> None:
        self._name, self._fetch = name, fetch
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
            more = self._fetch(self._name, len(self._jobs), count)
            self._jobs.extend(more)
            self._ended = len(more) < count
