"""Attempts that wait for the result of another job or flow. Their slots are lent to other jobs, and deadlocks
are detected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tidemill.contract.reader import DEFAULT_SCAN_LIMIT
from tidemill.contract.store import Store
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.core.overrides import apply_override
from tidemill.core.queues import QueueSettings
from tidemill.core.result_waits import (
    SharedCapacity,
    WaitTarget,
    find_stuck_jobs,
    parse_wait_note,
    shared_capacities,
    wait_note,
)
from tidemill.core.states import LIVE, PENDING, State
from tidemill.errors import WaitRefused
from tidemill.telemetry.current_attempt import CURRENT_ATTEMPT
from tidemill.worker.attempt import Attempt
from tidemill.worker.batch_attempt import BatchAttempt
from tidemill.worker.in_flight import InFlight, Slots

MAX_DEADLOCK_JOBS = 1000
"""Jobs of a flow, or holders of a limit, that a search examines. With more it finds no deadlock."""
MAX_WAIT_DEPTH = 50
"""Length of a chain of attempts that wait for one another."""


class NoDeadlock(Exception):
    """Raised to end a search for a deadlock, because one of the awaited jobs may still end by itself."""


class Deadlock:
    """A wait that can never end. `reason` is the last part of an error message.

    `by_notes`: True if the search used notes of other workers. These may be old, so the deadlock is not
    certain."""

    def __init__(self, reason: str, *, by_notes: bool) -> None:
        self.reason, self.by_notes = reason, by_notes


class DeadlockSearch:
    """One search for a deadlock. `local_waits` maps ids of jobs on this worker to the targets that they wait
    for."""

    def __init__(self, store: Store, local_waits: Mapping[str, Sequence[WaitTarget]]) -> None:
        self._store, self._local_waits = store, local_waits
        self._by_notes = False

    async def find(self, waiter: str) -> Deadlock | None:
        """Returns the deadlock if the running job `waiter` waits for something that can never end. Returns
        None if the wait may end."""
        [job] = await self._store.get([waiter])
        if job is None:
            return None
        try:
            awaited = await self._pending(job, {job.id})
        except NoDeadlock:
            return None
        if not awaited:
            return self._found("the attempts wait for one another")
        for capacity in await self._capacities(awaited[0]):
            needed = capacity.share(job) > 0 and all(capacity.share(other) > 0 for other in awaited)
            if needed and job.id in await self._stuck(capacity):
                return self._found(f"it needs {capacity.name}, held by waiting attempts")
        return None

    def _found(self, reason: str) -> Deadlock:
        return Deadlock(reason, by_notes=self._by_notes)

    async def _capacities(self, job: Job) -> list[SharedCapacity]:
        settings = {info.name: info.settings for info in await self._store.queues()}
        pools = {}
        if job.needs:
            wall = (await self._store.read_clock()).wall
            views = [view for view in await self._store.pools() if view.key is None]
            pools = {view.name: apply_override(view.declared, view.override, wall) for view in views}
        return shared_capacities(job, settings.get(job.queue, QueueSettings()), pools)

    async def _stuck(self, capacity: SharedCapacity) -> set[str]:
        holders = []
        for job in await self._running(capacity):
            try:
                holders.append((job, await self._pending(job, {job.id})))
            except NoDeadlock:
                continue
        return find_stuck_jobs(capacity, holders)

    async def _running(self, capacity: SharedCapacity) -> Sequence[Job]:
        if capacity.after is not None:
            return [job for job in await self._store.get([capacity.after]) if job is not None]
        key = None if capacity.pool is not None else capacity.key
        job_filter = Filter(queue=capacity.queue, key=key, states=(State.RUNNING,))
        found = (await self._store.find(job_filter, MAX_DEADLOCK_JOBS, scan_limit=DEFAULT_SCAN_LIMIT)).jobs
        return [job for job in found if capacity.share(job) > 0]

    async def _pending(self, job: Job, seen: set[str]) -> list[Job]:
        """Returns the jobs that have not started and for which `job` waits, directly or through running jobs.
        An empty list means a cycle of running jobs.

        Raises `NoDeadlock` if one of the jobs may still end by itself. `seen` has the visited job ids."""
        found: list[Job] = []
        for target in self._targets(job):
            for awaited in await self._jobs(target):
                if awaited.state in PENDING:
                    found.append(awaited)
                elif awaited.state is not State.RUNNING or len(seen) > MAX_WAIT_DEPTH:
                    raise NoDeadlock
                elif awaited.id not in seen:
                    seen.add(awaited.id)
                    found += await self._pending(awaited, seen)
        return found

    def _targets(self, job: Job) -> Sequence[WaitTarget]:
        if job.id in self._local_waits:
            return self._local_waits[job.id]
        noted = parse_wait_note(job.note) if job.state is State.RUNNING else None
        if noted is None or noted.more:
            raise NoDeadlock
        self._by_notes = True
        return noted.targets

    async def _jobs(self, target: WaitTarget) -> list[Job]:
        if target.kind == "job":
            jobs = [job for job in await self._store.get([target.id]) if job is not None]
        else:
            job_filter = Filter(flow=target.id, states=tuple(sorted(LIVE)))
            page = await self._store.find(job_filter, MAX_DEADLOCK_JOBS, scan_limit=DEFAULT_SCAN_LIMIT)
            jobs = [] if page.cursor is not None else list(page.jobs)
        if not jobs:  # gone, more than the limit, or a flow's next step is just being created
            raise NoDeadlock
        return jobs


STALE_NOTE_SECONDS = 1.0
"""Other workers write notes every half a second, so a deadlock seen twice in this time is real."""
FLOW_ADVICE = "let a flow run one job after the other: docs/how-to/flows.md"


class SlotLender:
    """Lends slots: while an attempt only waits for the result of a job, another job may use its slot.

    - `on_slot_free`: is called when a slot is lent.
    - `open`: maps each waiting attempt to the jobs and flows that it waits for."""

    def __init__(self, in_flight: InFlight, slots: Slots, *, on_slot_free: Callable[[], None]) -> None:
        self._in_flight, self._slots, self._on_slot_free = in_flight, slots, on_slot_free
        self._loop = asyncio.get_running_loop()
        self._noted: dict[Attempt, str] = {}
        self.open: dict[Attempt, list[WaitTarget]] = {}

    async def begin(self, target: WaitTarget) -> SlotLoan | None:
        attempt = self._current()
        if attempt is None:
            return None
        if asyncio.get_running_loop() is not self._loop:
            raise wait_refused(attempt.job.id, target, "a thread")
        return self.lend(attempt, target)

    def lend(self, attempt: Attempt, target: WaitTarget) -> SlotLoan | None:
        """Lends the attempt's slot for one wait and returns an object for this wait.

        Returns None if the attempt was cancelled. Raises `WaitRefused` if as many attempts wait as there are
        slots."""
        if attempt.stop is not None:
            return None
        if attempt not in self.open:
            if len(self.open) >= (concurrency := self._slots.concurrency):
                raise WaitRefused(
                    f"job {attempt.job.id} cannot wait for {target} now: as many attempts of this worker "
                    f"wait for other jobs as its concurrency allows ({concurrency}); {FLOW_ADVICE}",
                    lasting=False,
                )
            self.open[attempt] = []
            self._slots.running -= 1
            self._on_slot_free()
        self.open[attempt].append(target)
        return SlotLoan(
            attempt.job.id,
            target,
            by_job=self.by_job,
            note=partial(self.note, attempt),
            end=partial(self._end, attempt, target),
        )

    def _end(self, attempt: Attempt, target: WaitTarget) -> None:
        targets = self.open.get(attempt)
        if targets is None or target not in targets:
            return  # the attempt ended before its wait
        targets.remove(target)
        if not targets:
            is_noted = attempt in self._noted
            self.attempt_ended(attempt)
            if is_noted:
                _show_wait(attempt, None)

    def attempt_ended(self, attempt: Attempt) -> None:
        """Takes the lent slot back, because the attempt resumes or has ended. For a short time more jobs than
        `concurrency` may run."""
        if self.open.pop(attempt, None) is not None:
            self._noted.pop(attempt, None)
            self._slots.running += 1

    def note(self, attempt: Attempt) -> None:
        """Sends the store a note of what the attempt waits for, if that has changed."""
        targets = self.open.get(attempt)
        if targets and self._noted.get(attempt) != (note := wait_note(list(dict.fromkeys(targets)))):
            self._noted[attempt] = note
            _show_wait(attempt, note)

    def by_job(self) -> dict[str, Sequence[WaitTarget]]:
        return {
            member.job.id: tuple(targets)
            for attempt, targets in self.open.items()
            for member in _member_attempts(attempt)
        }

    def _current(self) -> Attempt | None:
        """Returns the attempt whose handler runs this code. Returns None if there is none, or if the attempt
        has ended."""
        claimed = CURRENT_ATTEMPT.get()
        attempt = None if claimed is None else self._in_flight.held.get(claimed.id)
        if claimed is None or attempt is None or not self._in_flight.knows(claimed):
            return None
        attempt = attempt.batch or attempt
        return None if attempt.outcome is not None or attempt.ended else attempt


class SlotLoan:
    """One wait of an attempt whose slot another job may use.

    - `job`: the waiting job.
    - `target`: the job or flow for which it waits.
    - `by_job`: returns all waits in this process, by job id.
    - `note`: writes to the store what the job waits for.
    - `end`: ends the wait and takes the slot back."""

    def __init__(
        self,
        job: str,
        target: WaitTarget,
        *,
        by_job: Callable[[], Mapping[str, Sequence[WaitTarget]]],
        note: Callable[[], None],
        end: Callable[[], None],
    ) -> None:
        self._job, self.target = job, target
        self._by_job, self._note, self.end = by_job, note, end
        self._checks = 0
        self._suspected: float | None = None

    async def check(self, store: Store) -> None:
        """Raises `WaitRefused` if the wait is a deadlock. Callers repeat the check during the wait.

        A deadlock that was found through notes of other workers is reported only if it lasts for a second."""
        if self._checks:
            self._note()
        self._checks += 1
        found = await DeadlockSearch(store, self._by_job()).find(self._job)
        now = asyncio.get_running_loop().time()
        if found is None:
            self._suspected = None
        elif not found.by_notes:
            raise deadlock_error(self._job, self.target, found.reason)
        elif self._suspected is None:
            self._suspected = now
        elif now - self._suspected >= STALE_NOTE_SECONDS:
            raise deadlock_error(self._job, self.target, found.reason)


def wait_refused(job: str, target: WaitTarget, where: str) -> WaitRefused:
    return WaitRefused(
        f"job {job} cannot wait for {target} in {where}: the wait would keep a slot that {target} may need; "
        f"wait in an async handler, or {FLOW_ADVICE}"
    )


def deadlock_error(job: str, target: WaitTarget, reason: str) -> WaitRefused:
    return WaitRefused(
        f"job {job} waits for {target}, which cannot end before job {job} does: {reason}; {FLOW_ADVICE}"
    )


def _member_attempts(attempt: Attempt) -> Sequence[Attempt]:
    return attempt.runs if isinstance(attempt, BatchAttempt) else (attempt,)


def _show_wait(attempt: Attempt, note: str | None) -> None:
    for member in _member_attempts(attempt):
        member.show_wait(note)
