"""Finds waits that can never end: the waiting attempts hold what the jobs that they wait for need.

The answer is for certain or there is none. An attempt that waits for several results counts as blocked only
if each of them is out of reach, and every job that could still end by itself makes the answer "no"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemill.contract.reader import LOOKS
from tidemill.contract.store import Store
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.pools import in_force
from tidemill.core.queues import QueueSettings
from tidemill.core.states import LIVE, PENDING, State
from tidemill.core.waits import Capacity, WaitTarget, capacities, stuck_holders, waits_in

MAX_JOBS = 1000
"""Of a flow, or of the holders of a limit. With more there is no answer."""
MAX_DEPTH = 50
"""Attempts that wait for one another in a row."""


class MayEnd(Exception):
    """A job on the way can still end by itself, as far as is known."""


class Deadlock:
    """`reason` is a part of a sentence. `by_notes` says that it relies on notes of other workers, which may
    be half a second old."""

    def __init__(self, reason: str, *, by_notes: bool) -> None:
        self.reason, self.by_notes = reason, by_notes


class DeadlockSearch:
    """One look. `here` are the open waits of this worker's attempts by job; the waits of others are read from
    the notes of their jobs."""

    def __init__(self, store: Store, here: Mapping[str, Sequence[WaitTarget]]) -> None:
        self._store, self._here = store, here
        self._by_notes = False

    async def find(self, waiter: str) -> Deadlock | None:
        """Why the wait of the running job `waiter` can never end; None when it may."""
        [job] = await self._store.get([waiter])
        if job is None:
            return None
        try:
            awaited = await self._pending(job, {job.id})
        except MayEnd:
            return None
        if not awaited:
            return self._found("the attempts wait for one another")
        for capacity in await self._capacities(awaited[0]):
            needed = capacity.share(job) > 0 and all(capacity.share(each) > 0 for each in awaited)
            if needed and job.id in await self._stuck(capacity):
                return self._found(f"it needs {capacity.name}, held by waiting attempts")
        return None

    def _found(self, reason: str) -> Deadlock:
        return Deadlock(reason, by_notes=self._by_notes)

    async def _capacities(self, job: Job) -> list[Capacity]:
        settings = {info.name: info.settings for info in await self._store.queues()}
        pools = {}
        if job.needs:
            wall = (await self._store.read_clock()).wall
            views = [view for view in await self._store.pools() if view.key is None]
            pools = {view.name: in_force(view.declared, view.override, wall) for view in views}
        return capacities(job, settings.get(job.queue, QueueSettings()), pools)

    async def _stuck(self, capacity: Capacity) -> set[str]:
        holders = []
        for job in await self._running(capacity):
            try:
                holders.append((job, await self._pending(job, {job.id})))
            except MayEnd:
                continue
        return stuck_holders(capacity, holders)

    async def _running(self, capacity: Capacity) -> Sequence[Job]:
        if capacity.after is not None:
            return [job for job in await self._store.get([capacity.after]) if job is not None]
        key = None if capacity.pool is not None else capacity.key
        wanted = Filter(queue=capacity.queue, key=key, states=(State.RUNNING,))
        found = (await self._store.find(wanted, MAX_JOBS, looks=LOOKS)).jobs
        return [job for job in found if capacity.share(job) > 0]

    async def _pending(self, job: Job, seen: set[str]) -> list[Job]:
        """The jobs at the ends of all that a running job waits for, none of which has started. Attempts that
        wait for one another in a circle have none."""
        found: list[Job] = []
        for target in self._targets(job):
            for awaited in await self._jobs(target):
                if awaited.state in PENDING:
                    found.append(awaited)
                elif awaited.state is not State.RUNNING or len(seen) > MAX_DEPTH:
                    raise MayEnd
                elif awaited.id not in seen:
                    seen.add(awaited.id)
                    found += await self._pending(awaited, seen)
        return found

    def _targets(self, job: Job) -> Sequence[WaitTarget]:
        if job.id in self._here:
            return self._here[job.id]
        noted = waits_in(job.note) if job.state is State.RUNNING else None
        if noted is None or noted.more:
            raise MayEnd
        self._by_notes = True
        return noted.targets

    async def _jobs(self, target: WaitTarget) -> list[Job]:
        if target.kind == "job":
            jobs = [job for job in await self._store.get([target.id]) if job is not None]
        else:
            wanted = Filter(flow=target.id, states=tuple(sorted(LIVE)))
            page = await self._store.find(wanted, MAX_JOBS, looks=LOOKS)
            jobs = [] if page.cursor is not None else list(page.jobs)
        if not jobs:  # gone, more than are looked at, or the next step of a flow is being made
            raise MayEnd
        return jobs
