"""What a start would do, before anything is sent or paid: jobs, calls, time and money."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from tidemill import JobRequest, Plan, Pool, Task, Tidemill
from tidemill_apps.music.enqueuing import Enqueuer, Work
from tidemill_apps.music.limits import EMBEDDING, FULL, METADATA
from tidemill_apps.music.settings import MusicSettings

CALLS_A_JOB = {FULL: 2, METADATA: 1, EMBEDDING: 1}


class Preview(Struct, frozen=True, kw_only=True, rename="camel"):
    """Of what `start` would send now. `starts_at` is when the first of it would start, and
    `ends_at` when the last would be done, None when never as things are, or nothing is sent. `ahead` are jobs
    that wait already. `waits` says what is paused, closed or served by nobody."""

    songs: int
    jobs: int
    calls: int
    ahead: int
    starts_at: datetime | None
    ends_at: datetime | None
    seconds: float | None
    cost: float
    currency: str
    bottleneck: str | None
    waits: list[str]


class Planner:
    def __init__(
        self,
        app: Tidemill,
        settings: MusicSettings,
        enqueuer: Enqueuer,
        tasks: Mapping[str, Task[Any, Any]],
        calls: Pool,
    ) -> None:
        self._app, self._settings, self._enqueuer, self._tasks = app, settings, enqueuer, tasks
        self._calls = calls

    async def preview(self, work: Work, limit: int | None) -> Preview:
        songs = await self._enqueuer.waiting(work, limit)
        batches = await self._enqueuer.batches(work, limit)
        requests = [self._request(queue) for queue, jobs in batches.items() for _ in range(jobs)]
        calls = sum(jobs * CALLS_A_JOB[queue] for queue, jobs in batches.items())
        plan = await self._plan(requests) if requests else None
        price = self._settings.price
        return Preview(
            songs=songs,
            jobs=len(requests),
            calls=calls,
            ahead=0 if plan is None else plan.ahead,
            starts_at=None if plan is None else moment(plan.starts_at),
            ends_at=None if plan is None else moment(plan.done_at),
            seconds=None if plan is None else plan.seconds,
            cost=round(
                calls * price.per_call + songs * price.tokens_per_song / 1000 * price.per_1k_tokens, 6
            ),
            currency=price.currency,
            bottleneck=None if plan is None or plan.bottleneck is None else str(plan.bottleneck),
            waits=[] if plan is None else [wait.told(None, plan.now) for wait in plan.waits],
        )

    async def _plan(self, requests: list[JobRequest[Any]]) -> Plan:
        """Done jobs are removed at once, so often nobody knows what one takes: then as long as its calls are
        expected to."""
        plan = await self._app.plan(requests)
        if plan.takes is not None:
            return plan
        return await self._app.plan(requests, takes=2 * self._settings.call_seconds)

    def _request(self, queue: str) -> JobRequest[Any]:
        """The claim of a job takes its first call only, the handler the second: a plan counts both."""
        cost = {self._calls: {"requests": CALLS_A_JOB[queue]}}
        return self._tasks[queue].using(cost=cost).job(correlationId="preview", songs=[])


def moment(wall: float | None) -> datetime | None:
    return None if wall is None else datetime.fromtimestamp(wall, UTC)
