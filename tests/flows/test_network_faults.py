"""A server whose replies to `advance` are cut off: nothing is lost or done twice, every end is emitted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from tests.flows.sum_flows import PARTS, Sums, all_once
from tests.servers.proxy import Proxy
from tidemill.contract.store import Store
from tidemill.core.documents import Advance, AdvanceResult
from tidemill.stores.postgres import PostgresStore
from tidemill.stores.redis import RedisStore
from tidemill.telemetry.events import FlowEnded

FLOWS = 4
MOST_BYTES = 150


class ReplyCutter:
    """Cuts off the reply to two of three advances: the store may or may not have taken them."""

    def __init__(self, straight: Store, proxy: Proxy) -> None:
        self._advance, self._proxy = type(straight).advance, proxy
        self._chance, self._calls, self.cuts = random.Random(5), 0, 0

    async def advance(self, store: Any, advances: Sequence[Advance]) -> list[AdvanceResult]:
        if not advances[0].expected:  # a client begins
            return await self._advance(store, advances)
        self._calls += 1
        cut = self._proxy.cut_after(self._chance.randrange(MOST_BYTES)) if self._calls % 3 else None
        try:
            return await self._advance(store, advances)
        finally:
            if cut is not None:
                self.cuts += cut.done()
                cut.cancel()


def cutting(cut: ReplyCutter) -> Callable[..., Awaitable[list[AdvanceResult]]]:
    async def advance(self: Store, advances: Sequence[Advance]) -> list[AdvanceResult]:
        return await cut.advance(self, advances)

    return advance


@pytest.fixture(params=["redis", "postgres"])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Store, Store, Proxy]]:
    """The same store, directly and through the proxy."""
    server = request.getfixturevalue(f"{request.param}_server")
    async with Proxy(server.port) as proxy:
        if request.param == "postgres":
            url = request.getfixturevalue("prepared_postgres_url")
            yield PostgresStore(url), PostgresStore(url.replace(f":{server.port}", f":{proxy.port}")), proxy
        else:
            url, prefix = (request.getfixturevalue(name) for name in ("redis_url", "redis_prefix"))
            through = url.replace(f":{server.port}", f":{proxy.port}")
            yield RedisStore(url, prefix=prefix), RedisStore(through, prefix=prefix), proxy


@pytest.mark.timeout(120)
async def test_i17_replies_that_are_cut_off(
    stores: tuple[Store, Store, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, through, proxy = stores
    ended: list[FlowEnded] = []
    sender, working = Sums(straight, ended), Sums(through, ended)
    async with sender.app, working.app:
        cut = ReplyCutter(straight, proxy)
        monkeypatch.setattr(type(through), "advance", cutting(cut))
        worker = working.app.worker(heartbeat_thread=False, isolation=False)
        task = asyncio.create_task(worker.run())
        for number in range(FLOWS):
            handle = await sender.send(str(number))
            assert await handle.result(timeout=60) == sum(range(PARTS))
        worker.stop()
        await task
        await all_once(sender.app, FLOWS, ended)
    assert cut.cuts > 0, "the fault did not happen"
