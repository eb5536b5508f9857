"""Jobs of all three kinds on a kit, against the provider simulator over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tidemill import Context, Job, JobHandle, Limit, Pool, Retry, Task, Tidemill, testing
from tidemill.testing import AsyncKit
from tidemill.testing.simulator import Quota, ReplyFaults, RequestLog, SimulatorOptions
from tidemill_apps.common.model_clients import ProviderAccount
from tidemill_apps.common.providers import open_chat_model, open_embedding_model, run_simulator, use_simulator
from tidemill_apps.music import tasks
from tidemill_apps.music.connections import simulate_descriptions
from tidemill_apps.music.library import Library
from tidemill_apps.music.tables import Song

Between = Callable[[], Awaitable[None]]


class AnalysisEnvironment:
    """The environment of a test. The next calls of a kind run the functions in `before` first: to fail, or
    to wait."""

    def __init__(self, library: Library, account: ProviderAccount, per_minute: int) -> None:
        self.library = library
        self.app = Tidemill("memory://")
        self.calls: Pool = self.app.pool("calls", Limit.requests(per_minute, per="minute"), jitter=5.0)
        self.chat, self.embeddings = open_chat_model(account), open_embedding_model(account)
        self.before: dict[str, list[Between]] = {"chat": [], "embeddings": []}
        self.kit: AsyncKit
        self.request_log: RequestLog
        self.running: asyncio.Task[list[Job]]
        self._handles: dict[str, JobHandle[Any]] = {}
        self._hook("chat", self.chat, "complete")
        self._hook("embeddings", self.embeddings, "embed")
        self.full, self.metadata, self.vectors = self._tasks()

    def _hook(self, kind: str, client: Any, method: str) -> None:
        call = getattr(client, method)

        async def hooked(*args: Any, **kwargs: Any) -> Any:
            if self.before[kind]:
                await self.before[kind].pop(0)()
            return await call(*args, **kwargs)

        setattr(client, method, hooked)

    def _tasks(self) -> tuple[Task[..., Any], ...]:
        options: dict[str, Any] = {"pool": self.calls, "retry": Retry(attempts=3, first=5)}
        library, calls = self.library, self.calls

        @self.app.task(name="full", **options)
        async def full(ctx: Context, songs: list[Song]) -> tasks.BatchCount:
            return await tasks.analyze_songs(ctx, library, self.chat, self.embeddings, calls, songs)

        @self.app.task(name="metadata", **options)
        async def metadata(ctx: Context, songs: list[Song]) -> tasks.BatchCount:
            return await tasks.describe_songs(ctx, library, self.chat, calls, songs)

        @self.app.task(name="vectors", **options)
        async def vectors(ctx: Context, songs: list[Song]) -> tasks.BatchCount:
            return await tasks.embed_songs(ctx, library, self.embeddings, calls, songs)

        return full, metadata, vectors

    async def run(self, task: Task[..., Any], songs: Sequence[Song], *, check: bool = True) -> Job:
        handle = await task.enqueue(list(songs))
        self._handles[handle.id] = handle
        await self.kit.run_for(600, check=check)
        return self.kit.job(handle)

    def count(self, job: Job) -> int:
        """Returns the number of songs in the job's result."""
        return int(self.kit.result(self._handles[job.id])["count"])

    @property
    def billed(self) -> list[str]:
        """Returns the billed calls in order."""
        return [bill.kind for bill in self.request_log.bills]


@asynccontextmanager
async def analysis_environment(
    library: Library,
    *,
    faults: ReplyFaults | None = None,
    per_minute: int = 1000,
    dimensions: int = 64,
    **options: Any,
) -> AsyncIterator[AnalysisEnvironment]:
    given = SimulatorOptions(faults=faults or ReplyFaults(), **options)
    quotas = [Quota.rolling("requests", 100_000)]
    probe = Tidemill("memory://")
    async with run_simulator(
        "gemini", quotas, clock=probe.clock, replies=simulate_descriptions, options=given
    ) as server:
        account = use_simulator(ProviderAccount(model="m", dimensions=dimensions), server.url)
        environment = AnalysisEnvironment(library, account, per_minute)
        environment.request_log = server.provider.request_log
        async with testing.kit(environment.app) as kit:
            environment.kit = kit
            yield environment
        await environment.chat.close()
        await environment.embeddings.close()
