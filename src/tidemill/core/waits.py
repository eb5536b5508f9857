"""Attempts that wait for the result of another job or flow: how the wait is written down, and when it can
never end because the waiting attempts hold what the awaited jobs need."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from tidemill.core.states import State
from tidemill.core.units import IMPLIED

if TYPE_CHECKING:
    from tidemill.core.job import Job
    from tidemill.core.pools import PoolSettings
    from tidemill.core.queues import QueueSettings

IDS_IN_NOTE = 5
_BEGINNING = "waits for the result of "
_TARGETS = re.compile(_BEGINNING + r"((?:job|flow) .+?)(?: and ([0-9]+) more)?")


class WaitTarget(msgspec.Struct, frozen=True):
    """The job or the flow whose result an attempt waits for."""

    kind: Literal["job", "flow"]
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class NotedWait(NamedTuple):
    """What a note says: some of the targets, and how many more there are."""

    targets: tuple[WaitTarget, ...]
    more: int = 0


def note_of(targets: Sequence[WaitTarget]) -> str:
    """The note of a running job that waits; `waits_in` reads it."""
    named = ", ".join(map(str, targets[:IDS_IN_NOTE]))
    more = len(targets) - IDS_IN_NOTE
    return f"{_BEGINNING}{named}" + (f" and {more} more" if more > 0 else "")


def waits_in(note: str | None) -> NotedWait | None:
    """None when the note is the handler's own."""
    if note is None or (read := _TARGETS.fullmatch(note)) is None:
        return None
    pairs = (part.partition(" ") for part in read[1].split(", "))
    targets = [
        WaitTarget("job" if kind == "job" else "flow", id_)
        for kind, _, id_ in pairs
        if kind in ("job", "flow")
    ]
    return NotedWait(tuple(targets), int(read[2] or 0))


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """A limit whose shares jobs hold for as long as they run: the running jobs of a `queue` or of one of its
    keys, units of a pool at once, or the turn of a unique key, for which a job waits until the job `after`
    has ended. `name` is for people."""

    name: str
    amount: float
    queue: str | None = None
    key: str | None = None
    pool: str | None = None
    unit: str = ""
    after: str | None = None

    def share(self, job: Job) -> float:
        """How much the job takes while it runs. 0: it takes nothing, or the amount is not known."""
        if self.after is not None:
            return float(self.after in (job.id, job.after))
        if self.pool is not None:
            return 0.0 if job.call else self._units(job)
        return float(job.queue == self.queue and self.key in (None, job.key))

    def _units(self, job: Job) -> float:
        needs = [need for need in job.needs if (need.pool, need.key) == (self.pool, self.key)]
        return sum(need.units.get(self.unit, IMPLIED.get(self.unit, 0.0)) for need in needs)


def capacities(job: Job, queue: QueueSettings, pools: dict[str, PoolSettings]) -> list[Capacity]:
    """What a pending job takes a share of when it starts. `pools` are settings by name."""
    found = []
    if job.after is not None and job.state is State.WAITING:
        found.append(Capacity(name=f"the unique key of job {job.after}", amount=1, after=job.after))
    if queue.concurrency is not None:
        name = f"concurrency={queue.concurrency} of the queue {job.queue!r}"
        found.append(Capacity(name=name, amount=queue.concurrency, queue=job.queue))
    if queue.key_concurrency is not None and job.key:
        name = f"key_concurrency={queue.key_concurrency} of the key {job.key!r} in the queue {job.queue!r}"
        found.append(Capacity(name=name, amount=queue.key_concurrency, queue=job.queue, key=job.key))
    for need in job.needs:
        for limit in pools[need.pool].limits if need.pool in pools else ():
            if limit.per is None:
                name = f"the limit of {limit.amount:g} {limit.name} in the pool {need.name}"
                found.append(
                    Capacity(name=name, amount=limit.amount, pool=need.pool, key=need.key, unit=limit.unit)
                )
    return found


def stuck_holders(capacity: Capacity, holders: Sequence[tuple[Job, Sequence[Job]]]) -> set[str]:
    """The running jobs that never give their share back. Each comes with the pending jobs that it waits for:
    it is stuck when each of those needs more than the stuck ones leave of the capacity."""
    stuck = [
        (capacity.share(job), job.id, [capacity.share(each) for each in waits]) for job, waits in holders
    ]
    stuck = [one for one in stuck if one[0] > 0 and one[2] and min(one[2]) > 0]
    while True:
        left = capacity.amount - sum(share for share, _, _ in stuck)
        kept = [one for one in stuck if min(one[2]) > left]
        if len(kept) == len(stuck):
            return {id_ for _, id_, _ in stuck}
        stuck = kept
