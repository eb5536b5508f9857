"""An application with one pool and one handler, and a simulated provider over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tidemill import Limit, Pool, Tidemill
from tidemill.clock import SystemClock
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.telemetry.events import Event
from tidemill.testing.simulator import Dialect, Quota, SimulatedProvider, SimulatorOptions, SimulatorServer

WIDE = (Limit.requests(100, per="minute"), Limit.tokens(10_000, per="minute"))
QUOTAS = (Quota.rolling("requests", 100), Quota.rolling("tokens", 10_000))


class Metered:
    """The application. `run` is the handler: it calls the provider and returns the values that a test
    checks."""

    def __init__(
        self, provider: SimulatedProvider, url: str, limits: Sequence[Limit], **options: Any
    ) -> None:
        self.provider, self.url = provider, url
        self.app = Tidemill("memory://")
        self.pool: Pool = self.app.pool("api", *limits, **options)
        self.events: list[Event] = []
        self.app.signals.subscribe(self.events.append)

    async def run(self, handler: Callable[..., Awaitable[Any]], *, cost: Any = None) -> Job:
        task = self.app.task(name="call", pool=self.pool, cost=cost or {"tokens": 1_000})(handler)
        async with self.app:
            await task.enqueue()
            await self.app.worker(until_idle=True, heartbeat_thread=False, isolation=False).run()
            [job] = (await self.app.store.find(Filter(), limit=2)).jobs
            [self.view] = await self.app.store.pools()
        return job

    @property
    def used(self) -> dict[str, float]:
        return {limit.unit: limit.used for limit in self.view.limits}

    def events_of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def metered(
    dialect: Dialect,
    *,
    limits: Sequence[Limit] = WIDE,
    quotas: Sequence[Quota] = QUOTAS,
    provider_options: SimulatorOptions | None = None,
    **options: Any,
) -> AsyncIterator[Metered]:
    provider = SimulatedProvider(
        dialect, quotas, provider_options or SimulatorOptions(jitter=0.0), clock=SystemClock()
    )
    async with SimulatorServer(provider) as server:
        yield Metered(provider, server.url, limits, **options)
