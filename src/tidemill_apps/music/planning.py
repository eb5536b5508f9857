"""What a start would do, before anything is sent or paid: jobs, calls, time and money."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tidemill import JobRequest, Plan, State, Task, Tidemill
from tidemill_apps.music.enqueuing import Enqueuer, Work
from tidemill_apps.music.halves import CALLED_BY, Half, simulated_halves
from tidemill_apps.music.limits import FULL
from tidemill_apps.music.settings import MusicSettings
from tidemill_apps.music.syncing import Foreseen

USUAL = 5
LIVE = (State.READY, State.WAITING, State.SCHEDULED, State.RUNNING)


class Preview(Struct, frozen=True, kw_only=True, rename="camel"):
    """Of what `start` would send now. `new` are songs that its sync would bring first. `starts_at` is when
    the first job would start, and `ends_at` when the last would be done, None when never as things are, or
    nothing is sent. `ahead` are jobs that wait already. `waits` says what is paused, closed or served by
    nobody. `simulated` are the halves a simulator stands in for: `cost` is that of the others, and 0 as long
    as nobody has said what they cost (`priced`)."""

    songs: int
    new: int
    jobs: int
    calls: int
    ahead: int
    starts_at: datetime | None
    ends_at: datetime | None
    seconds: float | None
    cost: float
    currency: str
    priced: bool
    simulated: list[Half]
    bottleneck: str | None
    waits: list[str]


class Planner:
    def __init__(
        self,
        app: Tidemill,
        settings: MusicSettings,
        enqueuer: Enqueuer,
        tasks: Mapping[str, Task[Any, Any]],
        one_call: Task[[str], Any],
    ) -> None:
        """`one_call` is a task that makes one call and nothing else."""
        self._app, self._settings, self._enqueuer, self._tasks = app, settings, enqueuer, tasks
        self._one_call = one_call

    async def preview(self, work: Work, limit: int | None, after: Foreseen) -> Preview:
        by_queue = await self._enqueuer.foreseen(work, limit, after)
        songs, batches = sum(by_queue.values()), await self._enqueuer.batches(by_queue)
        requests = [self._request(queue) for queue, jobs in batches.items() for _ in range(jobs)]
        calls = sum(jobs * len(CALLED_BY[queue]) for queue, jobs in batches.items())
        plan = await self._plan(requests, calls) if requests else None
        price = self._settings.price
        return Preview(
            songs=songs,
            new=after.new,
            jobs=len(requests),
            calls=calls,
            ahead=0 if plan is None else plan.ahead,
            starts_at=None if plan is None else moment(plan.starts_at),
            ends_at=None if plan is None else moment(plan.done_at),
            seconds=None if plan is None else plan.seconds,
            cost=self._cost(by_queue, batches),
            currency=price.currency,
            priced=bool(price.per_call or price.per_1k_tokens),
            simulated=list(simulated_halves(self._settings)),
            bottleneck=None if plan is None or plan.bottleneck is None else str(plan.bottleneck),
            waits=[] if plan is None else [wait.told(None, plan.now) for wait in plan.waits],
        )

    def _cost(self, songs: Mapping[str, int], batches: Mapping[str, int]) -> float:
        """Of calls that somebody is paid for, and of the songs in them."""
        price, simulated = self._settings.price, simulated_halves(self._settings)
        cost = 0.0
        for queue, jobs in batches.items():
            if real := [half for half in CALLED_BY[queue] if half not in simulated]:
                tokens = songs[queue] * price.tokens_per_song
                cost += jobs * len(real) * price.per_call + tokens / 1000 * price.per_1k_tokens
        return round(cost, 6)

    async def _plan(self, requests: list[JobRequest[Any]], calls: int) -> Plan:
        """Twice, because the claim of a full job takes its first call only: once as jobs, which are held up
        by their starts and by who runs them, and once as calls, with the second ones of jobs that wait
        already, which the store does not know of. Whatever takes longer is how long it takes."""
        jobs = await self._planned(requests)
        call = self._one_call.using(priority=USUAL).job("")
        bare = await self._planned([call] * (calls + await self._full_jobs_waiting()))
        slowest = bare.bottleneck
        if jobs.seconds is None or slowest is None:
            return jobs
        if slowest.seconds is None:
            return replace(jobs, done_at=None, seconds=None, bottleneck=slowest)
        seconds = slowest.seconds + (bare.takes or 0.0)
        if seconds <= jobs.seconds:
            return jobs
        return replace(jobs, done_at=jobs.now + seconds, seconds=seconds, bottleneck=slowest)

    async def _planned(self, requests: list[JobRequest[Any]]) -> Plan:
        """Done jobs are removed at once, so often nobody knows what one takes: then as long as its calls are
        expected to."""
        plan = await self._app.plan(requests)
        if plan.takes is not None:
            return plan
        return await self._app.plan(requests, takes=2 * self._settings.call_seconds)

    async def _full_jobs_waiting(self) -> int:
        counts = (await self._app.inspect.counts()).get(FULL, {})
        return sum(counts.get(state, 0) for state in LIVE)

    def _request(self, queue: str) -> JobRequest[Any]:
        return self._tasks[queue].job(correlationId="preview", songs=[])


def moment(wall: float | None) -> datetime | None:
    return None if wall is None else datetime.fromtimestamp(wall, UTC)
