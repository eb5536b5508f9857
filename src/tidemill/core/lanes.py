"""Which jobs a claim takes from the lanes of one queue.

The next job is the head of the lane with the most urgent head; on a tie the lane
served longest ago, then the older head. A new lane counts as served when it was born,
so a stream of new lanes never starves an old one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
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
    """A lane with something ready. `room` is how many of its jobs may start now."""

    name: str
    served: int
    priority: int
    seq: int
    room: int


PASS_AT_ONCE = 1000
"""How many jobs one claim sets aside at most: a night of expired jobs is cleared in many claims."""


class Picked(msgspec.Struct, Generic[E]):
    """`served` holds the last pick of each lane that got one; `picks` goes on counting them.
    `stopped` says that PASS_AT_ONCE was reached before the lanes were exhausted."""

    jobs: list[E]
    passed: list[E]
    served: dict[str, int]
    picks: int
    stopped: bool = False


Fetch = Callable[[str, int, int], Sequence[E]]
"""(lane, offset, count) → that many ready jobs of the lane in its order."""


def pick(
    lanes: Iterable[OpenLane],
    limit: int,
    picks: int,
    fetch: Fetch[E],
    passes: Callable[[E], bool],
) -> Picked[E]:
    """Take up to `limit` jobs. Jobs for which `passes` is true are set aside, not taken."""
    order = [(lane.priority, lane.served, lane.seq, lane.name, lane.room) for lane in lanes]
    heapq.heapify(order)
    picked: Picked[E] = Picked([], [], {}, picks)
    queues = {lane: _Lane(lane, fetch) for _, _, _, lane, _ in order}
    chunk = limit + 1 if len(order) == 1 else max(2, limit // max(1, len(order)) + 1)
    while order and len(picked.jobs) < limit:
        _, served, _, name, room = heapq.heappop(order)
        rival = order[0][0] if order else None
        lane = queues[name]
        while (head := lane.head(chunk)) is not None:
            lane.advance()
            if passes(head):
                picked.passed.append(head)
                if len(picked.passed) >= PASS_AT_ONCE:
                    picked.stopped = True
                    return picked
            else:
                picked.jobs.append(head)
                picked.picks += 1
                served, room = picked.picks, room - 1
                picked.served[name] = served
            following = lane.head(max(chunk, len(picked.passed)))
            if following is None or room == 0:
                break
            # Only a strictly more urgent head lets a lane go twice in a row.
            if len(picked.jobs) == limit or (rival is not None and following.priority >= rival):
                heapq.heappush(order, (following.priority, served, following.seq, name, room))
                break
    return picked


class _Lane(Generic[E]):
    """A lane read in chunks, so that a long lane costs what is taken from it."""

    def __init__(self, name: str, fetch: Fetch[E]) -> None:
        self._name, self._fetch = name, fetch
        self._jobs: list[E] = []
        self._at, self._ended = 0, False

    def head(self, chunk: int) -> E | None:
        if self._at == len(self._jobs) and not self._ended:
            more = self._fetch(self._name, self._at, chunk)
            self._jobs.extend(more)
            self._ended = len(more) < chunk
        return self._jobs[self._at] if self._at < len(self._jobs) else None

    def advance(self) -> None:
        self._at += 1
