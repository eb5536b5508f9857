"""Jobs of all three kinds on a kit, against the provider simulator over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tidemill import Context, Job, JobHandle, Limit, Pool, Retry, Task, Tidemill, testing
from tidemill.testing import AsyncKit
from tidemill.testing.providers import Faults, Ledger, Options, Quota
from tidemill_apps.common.providers.account import Account
from tidemill_apps.common.providers.chosen import chat, embeddings
from tidemill_apps.common.simulation import at_simulator, simulated
from tidemill_apps.music import analysis
from tidemill_apps.music.library import Library
from tidemill_apps.music.simulated import describe_songs
from tidemill_apps.music.songs import Song

Between = Callable[[], Awaitable[None]]


class Setting:
    """`before` are called at the next calls of a kind, before they are made: to fail, or to wait."""

    def __init__(self, library: Library, account: Account, per_minute: int) -> None:
        self.library = library
        self.app = Tidemill("memory://")
        self.calls: Pool = self.app.pool("calls", Limit.requests(per_minute, per="minute"), jitter=5.0)
        self.chat, self.embeddings = chat(account), embeddings(account)
        self.before: dict[str, list[Between]] = {"chat": [], "embeddings": []}
        self.kit: AsyncKit
        self.ledger: Ledger
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
        async def full(ctx: Context, songs: list[Song]) -> analysis.Counted:
            return await analysis.analyse(ctx, library, self.chat, self.embeddings, calls, songs)

        @self.app.task(name="metadata", **options)
        async def metadata(ctx: Context, songs: list[Song]) -> analysis.Counted:
            return await analysis.describe(ctx, library, self.chat, calls, songs)

        @self.app.task(name="vectors", **options)
        async def vectors(ctx: Context, songs: list[Song]) -> analysis.Counted:
            return await analysis.embed(ctx, library, self.embeddings, calls, songs)

        return full, metadata, vectors

    async def run(self, task: Task[..., Any], songs: Sequence[Song], *, check: bool = True) -> Job:
        handle = await task.enqueue(list(songs))
        self._handles[handle.id] = handle
        await self.kit.run_for(600, check=check)
        return self.kit.job(handle)

    def count(self, job: Job) -> int:
        """What the job says it did."""
        return int(self.kit.result(self._handles[job.id])["count"])

    @property
    def billed(self) -> list[str]:
        """Which calls were paid for, in their order."""
        return [bill.kind for bill in self.ledger.bills]


@asynccontextmanager
async def setting(
    library: Library,
    *,
    faults: Faults | None = None,
    per_minute: int = 1000,
    dimensions: int = 64,
    **options: Any,
) -> AsyncIterator[Setting]:
    given = Options(faults=faults or Faults(), **options)
    quotas = [Quota.rolling("requests", 100_000)]
    probe = Tidemill("memory://")
    async with simulated(
        "gemini", quotas, clock=probe.clock, replies=describe_songs, options=given
    ) as server:
        account = at_simulator(Account(model="m", dimensions=dimensions), server.url)
        made = Setting(library, account, per_minute)
        made.ledger = server.provider.ledger
        async with testing.kit(made.app) as kit:
            made.kit = kit
            yield made
        await made.chat.close()
        await made.embeddings.close()
