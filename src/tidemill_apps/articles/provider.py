"""Who makes the vectors: the provider that is set, or without a key the simulator of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tidemill.testing.providers import Clock, Options, Quota
from tidemill_apps.articles.settings import ArticlesSettings
from tidemill_apps.common.providers.chosen import embeddings
from tidemill_apps.common.providers.embeddings import Embeddings
from tidemill_apps.common.simulation import at_simulator, simulated

MINUTE = 60.0
LATENCY = (0.1, 0.4)


@asynccontextmanager
async def opened(settings: ArticlesSettings, clock: Clock) -> AsyncIterator[Embeddings]:
    account = settings.embeddings
    async with AsyncExitStack() as stack:
        if not account.key and not account.base_url:
            server = await stack.enter_async_context(
                simulated(
                    account.provider,
                    _quotas(settings),
                    clock=clock,
                    options=Options(latency=LATENCY),
                    scale=MINUTE / settings.window_seconds,
                )
            )
            account = at_simulator(account, server.url)
        made = embeddings(account)
        stack.push_async_callback(made.close)
        yield made


def _quotas(settings: ArticlesSettings) -> list[Quota]:
    """What the account is said to allow, the simulated one does."""
    found = [Quota.rolling("requests", settings.requests_per_window)] if settings.requests_per_window else []
    if settings.tokens_per_window:
        found.append(Quota.rolling("tokens", settings.tokens_per_window))
    return found
