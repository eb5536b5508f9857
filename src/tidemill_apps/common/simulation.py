"""The provider simulator inside an application that has no key: everything runs, nothing is paid for.

quotas = [Quota.rolling("requests", 5)]
async with simulated("gemini", quotas, replies=described, clock=app.clock) as server:
    chat = chosen.chat(at_simulator(settings.chat, server.url))
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from threading import Thread

from msgspec.structs import replace

from tidemill.testing.providers import DIALECTS, Clock, Options, Quota, Replies, Server
from tidemill.testing.providers import Provider as Simulator
from tidemill_apps.common.providers.account import Account, Provider

SAID = (
    "%s is a SIMULATOR of the %s API, part of tidemill: its answers are made up and nothing is paid for. "
    "Set a key to call the real one."
)
DIMENSIONS = 768
"""Of vectors, where the account names none: in few of them texts that have nothing in common meet."""
_log = logging.getLogger("tidemill_apps")


@asynccontextmanager
async def simulated(
    dialect: Provider,
    quotas: Sequence[Quota],
    *,
    clock: Clock,
    replies: Replies | None = None,
    options: Options | None = None,
    scale: float = 1.0,
) -> AsyncIterator[Server]:
    """`server.url` is where it is, `server.provider.ledger` what it saw."""
    speaking = DIALECTS[dialect]()
    provider = Simulator(speaking, quotas, options, clock=clock, scale=scale, replies=replies)
    async with _beside(Server(provider)) as server:
        _log.warning(SAID, server.url, dialect)
        yield server


@asynccontextmanager
async def _beside(server: Server) -> AsyncIterator[Server]:
    """In a thread with a loop of its own: to make up a hundred vectors takes a while, and whoever saves an
    article meanwhile must not wait for that."""
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
        except OSError as error:  # no port, no more files
            here.call_soon_threadsafe(opened.set_exception, error)
        else:
            here.call_soon_threadsafe(closed.set_result, None)

    # Nobody waits for a daemon: a process that ends without closing anything ends.
    Thread(target=run, name="simulator", daemon=True).start()
    close = await opened
    try:
        yield server
    finally:
        close()
        await closed


def at_simulator(account: Account, url: str) -> Account:
    """The account as it calls the simulator there: each call says which job it is for."""
    path = "/v1" if account.provider == "openai" else ""
    dimensions = account.dimensions or DIMENSIONS
    return replace(account, base_url=f"{url}{path}", key="simulated", simulator=True, dimensions=dimensions)
