"""Predicts jobs, calls, time and cost of a start."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tidemill import JobRequest, Plan, Task, Tidemill
from tidemill_apps.common.status import LIVE_STATES, count_jobs
from tidemill_apps.music.batches import BatchEnqueuer, Work
from tidemill_apps.music.connections import PROVIDERS_BY_QUEUE, ProviderKind, find_simulated_providers
from tidemill_apps.music.limits import FULL_QUEUE
from tidemill_apps.music.settings import MusicSettings
from tidemill_apps.music.sync import SyncPreview

DEFAULT_PRIORITY = 5


class StartPreview(Struct, frozen=True, kw_only=True, rename="camel"):
    """A prediction of what `Pipeline.start` would do now.

    - `new`: songs that the sync would make pending.
    - `ahead`: the number of ready jobs that use the same lane or pools and are at least as urgent.
    - `starts_at`: the start of the first job; None if no job can start.
    - `ends_at`: the end of the last job; None if the jobs never end, or there are none.
    - `seconds`: seconds from now until `ends_at`, or None.
    - `cost`: the cost in `currency`; 0 if no price is set, and `priced` is then False.
    - `simulated`: the simulated providers, which cost nothing.
    - `bottleneck`: the limit that slows the work down most, or None.
    - `waits`: reasons to wait, such as pauses, closed pools or missing workers.
    """

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
    simulated: list[ProviderKind]
    bottleneck: str | None
    waits: list[str]


class PreviewPlanner:
    def __init__(
        self,
        app: Tidemill,
        settings: MusicSettings,
        enqueuer: BatchEnqueuer,
        tasks: Mapping[str, Task[Any, Any]],
        one_call: Task[[str], Any],
    ) -> None:
        """`tasks` maps queue names to tasks. `one_call` is a task that makes exactly one provider call."""
        self._app, self._settings, self._enqueuer, self._tasks = app, settings, enqueuer, tasks
        self._one_call = one_call

    async def preview(self, work: Work, limit: int | None, after: SyncPreview) -> StartPreview:
        by_queue = await self._enqueuer.count_songs(work, limit, after)
        songs, batches = sum(by_queue.values()), await self._enqueuer.count_jobs(by_queue)
        requests = [self._request(queue) for queue, jobs in batches.items() for _ in range(jobs)]
        calls = sum(jobs * len(PROVIDERS_BY_QUEUE[queue]) for queue, jobs in batches.items())
        plan = await self._plan(requests, calls) if requests else None
        price = self._settings.price
        return StartPreview(
            songs=songs,
            new=after.new,
            jobs=len(requests),
            calls=calls,
            ahead=0 if plan is None else plan.ahead,
            starts_at=None if plan is None else to_datetime(plan.starts_at),
            ends_at=None if plan is None else to_datetime(plan.done_at),
            seconds=None if plan is None else plan.seconds,
            cost=self._cost(by_queue, batches),
            currency=price.currency,
            priced=bool(price.per_call or price.per_1k_tokens),
            simulated=list(find_simulated_providers(self._settings)),
            bottleneck=None if plan is None or plan.bottleneck is None else str(plan.bottleneck),
            waits=[] if plan is None else [wait.told(None, plan.now) for wait in plan.waits],
        )

    def _cost(self, songs: Mapping[str, int], batches: Mapping[str, int]) -> float:
        """Returns the predicted cost; calls to a simulator cost nothing. `songs` and `batches` are the
        numbers of songs and of jobs, by queue."""
        price, simulated = self._settings.price, find_simulated_providers(self._settings)
        cost = 0.0
        for queue, jobs in batches.items():
            if real := [provider for provider in PROVIDERS_BY_QUEUE[queue] if provider not in simulated]:
                tokens = songs[queue] * price.tokens_per_song
                cost += jobs * len(real) * price.per_call + tokens / 1000 * price.per_1k_tokens
        return round(cost, 6)

    async def _plan(self, requests: list[JobRequest[Any]], calls: int) -> Plan:
        """Returns the plan of the jobs. It also plans one job per call, because a job may make two calls, and
        uses the later end of both plans."""
        jobs = await self._planned(requests)
        call = self._one_call.using(priority=DEFAULT_PRIORITY).job("")
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
        """Returns the plan of these requests. If the store knows no duration of such jobs, because finished
        jobs are deleted at once, the plan assumes twice the setting `call_seconds` per job."""
        plan = await self._app.plan(requests)
        if plan.takes is not None:
            return plan
        return await self._app.plan(requests, takes=2 * self._settings.call_seconds)

    async def _full_jobs_waiting(self) -> int:
        return await count_jobs(self._app, FULL_QUEUE, LIVE_STATES)

    def _request(self, queue: str) -> JobRequest[Any]:
        return self._tasks[queue].job(correlationId="preview", songs=[])


def to_datetime(wall: float | None) -> datetime | None:
    return None if wall is None else datetime.fromtimestamp(wall, UTC)
