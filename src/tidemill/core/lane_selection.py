"""Selects the jobs that a claim takes from the lanes of one queue.

The lane whose next job is the most urgent gets the next turn. On a tie, the lane that was served longest ago
wins. A new lane counts as served when it was created, so new lanes never starve an old one."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Generic, Protocol, TypeVar

import msgspec


class ReadyJob(Protocol):
    """A ready job, with the fields that decide its order. `seq` is the job's number in the order of
    arrival."""

    @property
    def priority(self) -> int: ...
    @property
    def seq(self) -> int: ...


E = TypeVar("E", bound=ReadyJob)


class OpenLane(msgspec.Struct, frozen=True):
    """A lane with ready jobs, as a claim sees it. Turns of lanes are numbered.

    - `served`: the number of the lane's last turn.
    - `priority`, `seq`: the priority and the arrival number of the lane's next job.
    - `room`: how many jobs of the lane may start now.
    - `group`: the lane's group."""

    name: str
    served: int
    priority: int
    seq: int
    room: int
    group: str = ""


class BlockScope(Enum):
    """Which jobs have to wait if the next job of a lane cannot start.

    - LANE_BLOCKED: the jobs of this lane.
    - GROUP_BLOCKED: the jobs of every lane that needs the same pools.
    - ASIDE: only this job, which moves into a separate lane."""

    LANE_BLOCKED = "lane blocked"  # a keyed pool denied, or the lane waits for more jobs: this lane waits
    GROUP_BLOCKED = "group blocked"  # another pool denied: every lane that needs it waits
    ASIDE = "aside"  # the job is larger than a limit: it waits alone, in a separate lane


MAX_EXPIRED_PER_CLAIM = 1000
"""The most jobs that one claim sets aside: thousands of expired jobs are removed in several claims."""


MAX_BLOCKED_LANES_PER_CLAIM = 64
"""The most lanes that one claim blocks; the next claim continues after them."""


class LaneSelection(msgspec.Struct, Generic[E]):
    """The jobs that a claim takes from the lanes of a queue, and the lanes that it blocks. Turns of lanes are
    numbered.

    - `jobs`: the jobs that start.
    - `calls`: the number of calls that these jobs make.
    - `passed`: expired jobs, which do not start.
    - `aside`: jobs that move into a separate lane, because they would block their lane.
    - `picks`: the number of the last turn.
    - `served`: by lane, the number of the lane's last turn.
    - `stopped`: True if the claim ended early, because it met too many expired or moved jobs.
    - `blocked_lanes`: lanes that a pool denied, or whose batch waits for more jobs.
    - `blocked_groups`: the groups that a pool denied, each with the priority of the denied job."""

    jobs: list[E]
    passed: list[E]
    served: dict[str, int]
    picks: int
    calls: int = 0
    stopped: bool = False
    aside: list[E] = msgspec.field(default_factory=list)
    blocked_lanes: list[str] = msgspec.field(default_factory=list)
    blocked_groups: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def has_blocked_enough(self) -> bool:
        """True if the claim has to end, because it has blocked MAX_BLOCKED_LANES_PER_CLAIM lanes."""
        return len(self.blocked_lanes) >= MAX_BLOCKED_LANES_PER_CLAIM

    @property
    def set_aside(self) -> int:
        return len(self.passed) + len(self.aside)

    def add(self, lane: str, jobs: Sequence[E]) -> int:
        """Adds a call with these `jobs` of a lane. Returns the number of the lane's turn."""
        self.jobs += jobs
        self.calls += 1
        self.picks += 1
        self.served[lane] = self.picks
        return self.picks


FetchJobs = Callable[[str, int, int], Sequence[E]]
"""(lane, offset, count) → that many ready jobs of the lane, in order."""

PeekJobs = Callable[[int], Sequence[E]]
"""Returns that many of the next jobs of a lane, the head first."""

AdmitCall = Callable[[E, PeekJobs[E], int], int | BlockScope]
"""(head, next jobs of its lane, how many may start) → how many of them start as one call."""


NextLane = Callable[[str], OpenLane | None]
"""Returns the next lane of a group that was not offered yet."""


def select_jobs(
    lanes: Iterable[OpenLane],
    limit: int,
    picks: int,
    fetch: FetchJobs[E],
    passes: Callable[[E], bool],
    *,
    admits: AdmitCall[E] | None = None,
    following: NextLane | None = None,
    most: int | None = None,
) -> LaneSelection[E]:
    """Selects jobs from the lanes of a queue: at most `limit` calls with at most `most` jobs in total.

    - `lanes`: at least the first `limit` lanes of each group.
    - `picks`: the number of the last turn that a lane got in earlier claims.
    - `fetch`: reads jobs of a lane.
    - `passes`: returns True for a job that must not start (`LaneSelection.passed`).
    - `admits`: reserves the units of a call. It returns how many jobs start, or which jobs have to wait.
    - `following`: returns the next lane of a group, after a turn in which no job started."""
    most = limit if most is None else most
    taking = _Selector(fetch, passes, admits, following, limit=limit, most=most, picks=picks)
    for lane in lanes:
        taking.open(lane)
    return taking.all()


class _Selector(Generic[E]):
    """The work of one call of `select_jobs`: the lanes in order, and the jobs taken so far."""

    def __init__(
        self,
        fetch: FetchJobs[E],
        passes: Callable[[E], bool],
        admits: AdmitCall[E] | None,
        following: NextLane | None,
        *,
        limit: int,
        most: int,
        picks: int,
    ) -> None:
        self._fetch, self._passes, self._admits, self._following = fetch, passes, admits, following
        self._limit, self._most = limit, most
        self._order: list[tuple[int, int, int, str, int]] = []
        self._lanes: dict[str, _LaneReader[E]] = {}
        self._picked: LaneSelection[E] = LaneSelection([], [], {}, picks)
        self._chunk = self._chunk_behind = 0

    def open(self, lane: OpenLane) -> None:
        self._lanes[lane.name] = _LaneReader(lane.name, lane.group, self._fetch)
        heapq.heappush(self._order, (lane.priority, lane.served, lane.seq, lane.name, lane.room))

    def all(self) -> LaneSelection[E]:
        order, picked, lanes = self._order, self._picked, self._lanes
        chunk = self._limit + 1 if len(order) == 1 else max(2, self._limit // max(1, len(order)) + 1)
        self._chunk = self._chunk_behind = chunk
        while order and not self._is_full and not picked.has_blocked_enough and not picked.stopped:
            _, served, _, name, room = heapq.heappop(order)
            if lanes[name].group not in picked.blocked_groups:
                self._take_from(lanes[name], served, room)
        return picked

    @property
    def _is_full(self) -> bool:
        return self._picked.calls >= self._limit or len(self._picked.jobs) >= self._most

    def _take_from(self, lane: _LaneReader[E], served: int, room: int) -> None:
        """Takes jobs from a lane. `served` is the number of the lane's last turn, and `room` is how many of
        its jobs may start."""
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
                elif count is BlockScope.ASIDE:
                    self._set_aside(lane, picked.aside)
                else:
                    self._block(lane, count, head.priority)
                    return
            head = None if picked.stopped else lane.head(self._chunk_behind)
            if head is None or room == 0:
                return
            if self._is_full or (order and head.priority >= order[0][0]):
                heapq.heappush(order, (head.priority, served, head.seq, lane.name, room))
                return

    def _set_aside(self, lane: _LaneReader[E], where: list[E]) -> None:
        where += lane.take(1)
        self._bring(lane.group)
        self._chunk_behind = max(self._chunk, self._picked.set_aside)
        self._picked.stopped = self._picked.set_aside >= MAX_EXPIRED_PER_CLAIM

    def _block(self, lane: _LaneReader[E], gate: BlockScope, priority: int) -> None:
        if gate is BlockScope.GROUP_BLOCKED:
            self._picked.blocked_groups[lane.group] = priority
        else:
            self._picked.blocked_lanes.append(lane.name)
            self._bring(lane.group)

    def _bring(self, group: str) -> None:
        if self._following is not None and (lane := self._following(group)) is not None:
            self.open(lane)


class _LaneReader(Generic[E]):
    """Reads the jobs of a lane in chunks, so that a long lane is read only as far as needed."""

    def __init__(self, name: str, group: str, fetch: FetchJobs[E]) -> None:
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
