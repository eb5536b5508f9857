"""Attempts that wait for the result of another job or flow, and a search for deadlocks.

In a deadlock, the waiting attempts hold the capacity that the awaited jobs need."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from tidemill.core.needs import IMPLIED
from tidemill.core.states import State

if TYPE_CHECKING:
    from tidemill.core.jobs import Job
    from tidemill.core.pools import PoolSettings
    from tidemill.core.queues import QueueSettings


MAX_IDS_IN_NOTE = 5
_NOTE_PREFIX = "waits for the result of "
_TARGETS = re.compile(_NOTE_PREFIX + r"((?:job|flow) .+?)(?: and ([0-9]+) more)?")


class WaitTarget(msgspec.Struct, frozen=True):
    """The job or flow whose result an attempt waits for."""

    kind: Literal["job", "flow"]
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class NotedWait(NamedTuple):
    """The content of a note about a wait: some of the awaited jobs and flows (`targets`), and how many more
    there are."""

    targets: tuple[WaitTarget, ...]
    more: int = 0


def wait_note(targets: Sequence[WaitTarget]) -> str:
    """Returns the note of a running job that waits for the results of `targets`. `parse_wait_note` reads the
    note."""
    named = ", ".join(map(str, targets[:MAX_IDS_IN_NOTE]))
    more = len(targets) - MAX_IDS_IN_NOTE
    return f"{_NOTE_PREFIX}{named}" + (f" and {more} more" if more > 0 else "")


def parse_wait_note(note: str | None) -> NotedWait | None:
    """Returns the content of a note that `wait_note` wrote; None if the note is the handler's own text."""
    if note is None or (read := _TARGETS.fullmatch(note)) is None:
        return None
    pairs = (part.partition(" ") for part in read[1].split(", "))
    targets = [
        WaitTarget("job" if kind == "job" else "flow", id_)
        for kind, _, id_ in pairs
        if kind in ("job", "flow")
    ]
    return NotedWait(tuple(targets), int(read[2] or 0))


class SharedCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """A limited capacity that running jobs share, such as the concurrency of a queue. `name` is for people.
    The set fields say what the capacity is:

    - `queue`, `key`: the concurrency of a queue, or of one key of the queue.
    - `pool`, `unit`, `key`: a concurrency limit of a pool, or of one key of the pool.
    - `after`: a unique key: the id of the job that must end before its successor can run."""

    name: str
    amount: float
    queue: str | None = None
    key: str | None = None
    pool: str | None = None
    unit: str = ""
    after: str | None = None

    def share(self, job: Job) -> float:
        """Returns how much of the capacity the job takes while it runs; 0 if it takes nothing or the amount
        is unknown."""
        if self.after is not None:
            return float(self.after in (job.id, job.after))
        if self.pool is not None:
            return 0.0 if job.call else self._units(job)
        return float(job.queue == self.queue and self.key in (None, job.key))

    def _units(self, job: Job) -> float:
        needs = [need for need in job.needs if (need.pool, need.key) == (self.pool, self.key)]
        return sum(need.units.get(self.unit, IMPLIED.get(self.unit, 0.0)) for need in needs)


def shared_capacities(job: Job, queue: QueueSettings, pools: dict[str, PoolSettings]) -> list[SharedCapacity]:
    """Returns the capacities of which a pending job takes a share when it starts. `queue` has the settings of
    its queue, and `pools` has pool settings by name."""
    found = []
    if job.after is not None and job.state is State.WAITING:
        found.append(SharedCapacity(name=f"the unique key of job {job.after}", amount=1, after=job.after))
    if queue.concurrency is not None:
        name = f"concurrency={queue.concurrency} of the queue {job.queue!r}"
        found.append(SharedCapacity(name=name, amount=queue.concurrency, queue=job.queue))
    if queue.key_concurrency is not None and job.key:
        name = f"key_concurrency={queue.key_concurrency} of the key {job.key!r} in the queue {job.queue!r}"
        found.append(SharedCapacity(name=name, amount=queue.key_concurrency, queue=job.queue, key=job.key))
    for need in job.needs:
        for limit in pools[need.pool].limits if need.pool in pools else ():
            if limit.per is None:
                name = f"the limit of {limit.amount:g} {limit.name} in the pool {need.name}"
                found.append(
                    SharedCapacity(
                        name=name, amount=limit.amount, pool=need.pool, key=need.key, unit=limit.unit
                    )
                )
    return found


def find_stuck_jobs(capacity: SharedCapacity, holders: Sequence[tuple[Job, Sequence[Job]]]) -> set[str]:
    """Returns the ids of the running jobs that can never end. A job is stuck if none of its pending jobs
    fits, even after all jobs that are not stuck have ended. `holders` has each running job with the pending
    jobs that it waits for."""
    stuck = [
        (capacity.share(job), job.id, [capacity.share(awaited) for awaited in waits])
        for job, waits in holders
    ]
    stuck = [holder for holder in stuck if holder[0] > 0 and holder[2] and min(holder[2]) > 0]
    while True:
        left = capacity.amount - sum(share for share, _, _ in stuck)
        still_stuck = [holder for holder in stuck if min(holder[2]) > left]
        if len(still_stuck) == len(stuck):
            return {id_ for _, id_, _ in stuck}
        stuck = still_stuck
