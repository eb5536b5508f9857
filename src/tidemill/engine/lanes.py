"""The ready jobs of one queue, ordered in lanes.

- A new lane counts as just served, so a stream of new lanes never starves an old lane.
- A store method deletes empty lanes at its end. So a lane keeps its place when a new version replaces its
  only job.
- If a pool denies units to a lane, the whole group of the lane is blocked.
- A lane is blocked alone if the pool that denied has keys, or if its batch waits for more jobs."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator

from tidemill.core.batch_start import BATCH_WAIT_KEY
from tidemill.core.jobs import Job
from tidemill.core.lane_selection import OpenLane
from tidemill.core.ledger import AccountKey, LaneBlock
from tidemill.core.needs import lane_group, lane_key
from tidemill.engine.indexes import JobIndex, SortedKeys, SortKey

UNPOOLED_GROUP = ""


class Lane:
    """The ready jobs of one queue that have the same key and need the same pools, in order.

    - `served`: the number of the turn in which a claim last took jobs from the lane.
    - `block`: why the lane is blocked; None if it is open.
    - `missing_jobs`: how many new jobs unblock a lane whose batch waits for more jobs.
    - `batch_due`: the boot-clock time at which the batch has waited long enough."""

    __slots__ = ("batch_due", "block", "group", "jobs", "missing_jobs", "served")

    def __init__(self, name: str, served: int) -> None:
        self.jobs = SortedKeys()
        self.served = served
        self.group = lane_group(name)
        self.block: LaneBlock | None = None
        self.missing_jobs = 0
        self.batch_due: float | None = None

    @property
    def is_batch_waiting(self) -> bool:
        return self.block is not None and self.block.account_key == BATCH_WAIT_KEY


class Lanes:
    """The lanes of one queue. `_orders` has the open lanes of each group, in the order in which a claim takes
    them: by the priority of the first job, then by the last turn."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}
        self._orders: dict[str, SortedKeys] = {}
        self._sizes: Counter[str] = Counter()  # lanes of each group, blocked ones included
        self._emptied: set[str] = set()
        self.blocked_groups: dict[str, LaneBlock] = {}
        self._blocked: JobIndex[AccountKey] = JobIndex()
        self._wakes: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._lanes)

    @property
    def is_pooled(self) -> bool:
        return len(self._orders) > (UNPOOLED_GROUP in self._orders)

    def add(self, job: Job, picks: int, *, fresh: bool) -> None:
        """Adds a ready job to its lane, and creates the lane if necessary. This may unblock the lane.

        - `picks`: the number of turns that lanes have had.
        - `fresh`: True if the job was just inserted, False for a new version of a job."""
        lane = self._lanes.get(job.lane)
        if lane is None:
            lane = self._lanes[job.lane] = Lane(job.lane, picks)
            self._sizes[lane.group] += 1
            self._orders.setdefault(lane.group, SortedKeys())
        elif head := lane.jobs.head():
            self._remove_from_order(job.lane, lane)
            # A lane that does not wait for more jobs stays unchanged, and its block stays valid.
            lane.missing_jobs -= lane.is_batch_waiting
            if job.priority < head[0] or (lane.is_batch_waiting and (lane.missing_jobs <= 0 or not fresh)):
                self._unblock(job.lane, lane)
        lane.jobs.add(_job_key(job))
        self._insert_in_order(job.lane, lane)

    def remove(self, job: Job) -> None:
        lane = self._lanes[job.lane]
        self._remove_from_order(job.lane, lane)
        head = lane.jobs.head()
        lane.jobs.remove(_job_key(job))
        if lane.is_batch_waiting or lane.jobs.head() != head:
            self._unblock(job.lane, lane)
        if lane.jobs.head() is not None:
            self._insert_in_order(job.lane, lane)
        else:
            self._emptied.add(job.lane)

    def forget_empty(self) -> None:
        for name in self._emptied:
            lane = self._lanes[name]
            if lane.jobs.head() is None:
                self._unblock(name, lane)
                del self._lanes[name]
                self._sizes[lane.group] -= 1
                if not self._sizes[lane.group]:
                    del self._orders[lane.group], self._sizes[lane.group]
        self._emptied.clear()

    def serve(self, name: str, served: int) -> None:
        """Records that a claim took jobs from the lane in the turn `served`. A batch of the lane no longer
        waits for more jobs."""
        lane = self._lanes[name]
        lane.batch_due = None
        if lane.jobs.head() is None:
            lane.served = served
            return
        self._remove_from_order(name, lane)
        lane.served = served
        self._insert_in_order(name, lane)

    def block(self, name: str, mark: LaneBlock, missing_jobs: int = 0) -> None:
        """Blocks a lane.

        - `mark`: for which account the lane waits, and until when.
        - `missing_jobs`: how many new jobs unblock a lane whose batch waits for more jobs."""
        lane = self._lanes[name]
        self._remove_from_order(name, lane)
        lane.block, lane.missing_jobs = mark, missing_jobs
        lane.batch_due = mark.retry_at if mark.account_key == BATCH_WAIT_KEY else None
        self._blocked.add(mark.account_key, name)
        heapq.heappush(self._wakes, (mark.retry_at, name))

    def reopen(self, account_key: AccountKey) -> bool:
        """Unblocks the lanes and groups that wait for the account `account_key`. Returns True if there were
        any."""
        names = sorted(self._blocked.of(account_key))
        for name in names:
            self._open(name)
        groups = [group for group, mark in self.blocked_groups.items() if mark.account_key == account_key]
        for group in groups:
            del self.blocked_groups[group]
        return bool(names or groups)

    def reopen_all(self) -> None:
        """Unblocks all lanes and groups. Call it after a restart of the machine, when boot-clock times are no
        longer valid."""
        for account_key in self._blocked.keys():  # noqa: SIM118 - an index is no mapping
            self.reopen(account_key)
        self.blocked_groups.clear()
        for lane in self._lanes.values():
            lane.batch_due = None

    def wake(self, boot: float) -> None:
        """Unblocks the lanes whose waiting time is over at the boot-clock time `boot`."""
        while (first := self._next_wake()) is not None and first[0] <= boot:
            self._open(first[1])

    def waits(self, boot: float) -> Iterator[float]:
        """Yields the boot-clock times at which blocked jobs may be able to start. These are the ends of group
        blocks, and the earliest end of a lane's block."""
        if (first := self._next_wake()) is not None:
            yield first[0]
        for group, mark in self.blocked_groups.items():
            if self._sizes[group] and mark.holds(boot):
                yield mark.until

    def open_groups(self, boot: float, room_in: Callable[[str], float]) -> list[str]:
        return [group for group in self._orders if not self._is_blocked(group, boot, room_in)]

    @property
    def batch_waits(self) -> bool:
        """True if the batch of a lane waits for more jobs."""
        return bool(self._blocked.of(BATCH_WAIT_KEY))

    def batch_due_at(self, name: str) -> float | None:
        return self._lanes[name].batch_due

    def group(self, name: str) -> str:
        return self._lanes[name].group

    def in_order(self, group: str) -> Iterator[tuple[int, int, int, str]]:
        """Yields the open lanes of a group in the order in which a claim takes them. Lanes may be opened
        during the iteration.

        Each lane is a tuple: priority of the first job, number of the last turn, sequence number of the first
        job, name."""
        order, at = self._orders[group], 0
        while (lane_key := order.at(at)) is not None:
            priority, served, seq, name = lane_key
            yield priority, served, seq, name
            at = order.position((priority, served, seq, name)) + 1

    def _is_blocked(self, group: str, boot: float, room_in: Callable[[str], float]) -> bool:
        """True if the group is blocked at the boot-clock time `boot`. A block does not stop a job that is
        more urgent than the denied job. `room_in` returns how many more jobs of a key may run."""
        mark = self.blocked_groups.get(group)
        if mark is None or not mark.holds(boot):
            return False
        for priority, _, _, name in self.in_order(group):
            if priority >= mark.priority:
                break
            if room_in(lane_key(name)) > 0:
                return False
        return True

    def _open(self, name: str) -> None:
        lane = self._lanes[name]
        self._unblock(name, lane)
        if lane.jobs.head() is not None:
            self._insert_in_order(name, lane)

    def _unblock(self, name: str, lane: Lane) -> None:
        if lane.block is not None:
            self._blocked.discard(lane.block.account_key, name)
            lane.block = None

    def _next_wake(self) -> tuple[float, str] | None:
        """Returns the next blocked lane to try again, as (boot-clock time, lane name); None if no lane is
        blocked."""
        while self._wakes:
            retry_at, name = self._wakes[0]
            lane = self._lanes.get(name)
            if lane is not None and lane.block is not None and lane.block.retry_at == retry_at:
                return retry_at, name
            heapq.heappop(self._wakes)
        return None

    def _insert_in_order(self, name: str, lane: Lane) -> None:
        if lane.block is None:
            self._orders[lane.group].add(_lane_order_key(name, lane))

    def _remove_from_order(self, name: str, lane: Lane) -> None:
        if lane.block is None:
            self._orders[lane.group].remove(_lane_order_key(name, lane))

    def oldest_dues(self) -> Iterator[float]:
        """Yields, for each lane and each priority in it, the earliest due time of a job. The cost does not
        grow with the number of jobs."""
        for lane in self._lanes.values():
            at = 0
            while at < len(lane.jobs):
                priority, due, _, _ = lane.jobs[at]
                yield due
                at = lane.jobs.position((priority + 1,))

    def pooled(self) -> list[str]:
        """Returns the names of the lanes whose ready jobs need pools or belong to a batch task, sorted."""
        return sorted(name for name, lane in self._lanes.items() if lane.group and len(lane.jobs))

    def priorities(self, name: str) -> Iterator[tuple[int, int]]:
        """Yields each priority in a lane with its number of jobs."""
        jobs, at = self._lanes[name].jobs, 0
        while at < len(jobs):
            priority = jobs[at][0]
            end = jobs.position((priority + 1,))
            yield priority, end - at
            at = end

    def ids_of(self, name: str, priority: int, count: int) -> list[str]:
        """Returns the ids of the first `count` jobs of a lane that have that priority."""
        jobs = self._lanes[name].jobs
        begin, end = jobs.position((priority,)), jobs.position((priority + 1,))
        return [key[-1] for key in jobs.slice(begin, min(count, end - begin))]

    def place_of(self, job: Job) -> int:
        """Returns how many jobs come before a ready job in its lane."""
        return self._lanes[job.lane].jobs.position(_job_key(job))

    def ids(self, name: str, offset: int, count: int) -> list[str]:
        return [key[-1] for key in self._lanes[name].jobs.slice(offset, count)]


def open_lane(lane_key: tuple[int, int, int, str], room: int, group: str) -> OpenLane:
    priority, served, seq, name = lane_key
    return OpenLane(name, served, priority, seq, room, group)


def _job_key(job: Job) -> SortKey:
    return (job.priority, job.due, job.seq, job.id)


def _lane_order_key(name: str, lane: Lane) -> SortKey:
    head = lane.jobs.head()
    assert head is not None, "an ordered lane has jobs"  # noqa: S101 - an invariant of this file
    priority, _, seq, _ = head
    return (priority, lane.served, seq, name)
