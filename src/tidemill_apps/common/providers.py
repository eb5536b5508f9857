"""Reads provider accounts from settings, opens their models, and runs a simulator for accounts without a
key."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from threading import Thread

from msgspec.structs import replace

from tidemill.testing.simulator import (
    DIALECTS,
    Clock,
    Quota,
    ReplyFunction,
    SimulatorOptions,
    SimulatorServer,
)
from tidemill.testing.simulator import SimulatedProvider as Simulator
from tidemill_apps.common.gemini import GeminiChat, GeminiEmbeddings
from tidemill_apps.common.model_clients import ChatModel, EmbeddingModel, ProviderAccount, ProviderName
from tidemill_apps.common.openai import OpenAIChat, OpenAIEmbeddings
from tidemill_apps.common.settings import EMPTY_TABLE, ApplicationToml, read_settings

DEFAULT_CHAT_MODELS: dict[ProviderName, str] = {"gemini": "gemini-2.5-flash", "openai": "gpt-4o-mini"}
DEFAULT_EMBEDDING_MODELS: dict[ProviderName, str] = {
    "gemini": "gemini-embedding-001",
    "openai": "text-embedding-3-small",
}
API_KEY_VARIABLES: dict[ProviderName, str] = {"gemini": "GEMINI_API_KEY", "openai": "OPENAI_API_KEY"}


def read_account(
    prefix: str, environ: Mapping[str, str] | None = None, toml: ApplicationToml = EMPTY_TABLE
) -> ProviderAccount:
    """Returns the account, read from variables that begin with `prefix` or from the TOML table `toml`.
    Without a key and a `base_url`, it uses GEMINI_API_KEY or OPENAI_API_KEY. With a `base_url` it never does,
    because the key would go to another server."""
    environment = os.environ if environ is None else environ
    found = read_settings(ProviderAccount, prefix, environment, toml)
    if found.key or found.base_url:
        return found
    return replace(found, key=environment.get(API_KEY_VARIABLES[found.provider], "").strip())


def open_chat_model(account: ProviderAccount) -> ChatModel:
    using = account if account.model else replace(account, model=DEFAULT_CHAT_MODELS[account.provider])
    return GeminiChat(using) if using.provider == "gemini" else OpenAIChat(using)


def open_embedding_model(account: ProviderAccount) -> EmbeddingModel:
    using = account if account.model else replace(account, model=DEFAULT_EMBEDDING_MODELS[account.provider])
    return GeminiEmbeddings(using) if using.provider == "gemini" else OpenAIEmbeddings(using)


SIMULATOR_WARNING = (
    "%s is a SIMULATOR of the %s API, part of tidemill: its answers are made up and nothing is paid for. "
    "Set a key to call the real one."
)
DEFAULT_DIMENSIONS = 768
"""Default vector length of the simulator. With fewer dimensions, unrelated texts would look similar."""
_log = logging.getLogger("tidemill_apps")


@asynccontextmanager
async def run_simulator(
    dialect: ProviderName,
    quotas: Sequence[Quota],
    *,
    clock: Clock,
    replies: ReplyFunction | None = None,
    options: SimulatorOptions | None = None,
    scale: float = 1.0,
) -> AsyncIterator[SimulatorServer]:
    """Runs a simulator of the provider API `dialect` while the `async with` block runs, and yields its
    server. `replies` creates the model's texts. With `scale=10` the simulator's time runs ten times faster.
    """
    speaking = DIALECTS[dialect]()
    provider = Simulator(speaking, quotas, options, clock=clock, scale=scale, replies=replies)
    async with _run_in_thread(SimulatorServer(provider)) as server:
        _log.warning(SIMULATOR_WARNING, server.url, dialect)
        yield server


@asynccontextmanager
async def _run_in_thread(server: SimulatorServer) -> AsyncIterator[SimulatorServer]:
    """Runs the server in a thread with its own event loop, while the `async with` block runs. So its slow
    replies do not block the application's loop."""
    here = asyncio.get_running_loop()
    opened: asyncio.Future[Callable[[], object]] = here.create_future()
    closed: asyncio.Future[None] = here.create_future()

    async def serve() -> None:
        over, there = asyncio.Event(), asyncio.get_running_loop()
        async with server:
            here.call_soon_threadsafe(opened.set_result, partial(there.call_soon_threadsafe, over.set))
            await over.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except OSError as error:  # no free port, too many open files
            here.call_soon_threadsafe(opened.set_exception, error)
        else:
            here.call_soon_threadsafe(closed.set_result, None)

    # A daemon thread does not keep the process alive.
    Thread(target=run, name="simulator", daemon=True).start()
    close = await opened
    try:
        yield server
    finally:
        close()
        await closed


def use_simulator(account: ProviderAccount, url: str) -> ProviderAccount:
    """Returns a copy of the account that calls the simulator at `url`. Each call carries its job id."""
    path = "/v1" if account.provider == "openai" else ""
    dimensions = account.dimensions or DEFAULT_DIMENSIONS
    return replace(account, base_url=f"{url}{path}", key="simulated", simulator=True, dimensions=dimensions)
