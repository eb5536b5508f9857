"""The network cuts replies, resets connections, goes silent and drops connections.

No job is lost or repeated, no crash is charged, and everything recovers by itself (I1, I3, I8, I22,
S12)."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.chaos.traffic import Traffic
from tests.servers.proxy import Proxy

ROUNDS = int(os.environ.get("TIDEMILL_NETWORK_ROUNDS", "2"))
"""Runs of six faults each; 50 in `make chaos`."""

pytestmark = pytest.mark.alone


class Network:
    """A faulty network. `straight` is the address of the server without the proxy."""

    def __init__(self, proxy: Proxy, straight: str, port: int) -> None:
        self.proxy, self.straight = proxy, straight
        self.url = straight.replace(f":{port}", f":{proxy.port}")
        self._random = random.Random(1)
        self.cuts = 0

    async def cut(self) -> None:
        """Cuts a connection in the middle of a reply, or before its first byte. The server has executed the
        request."""
        cut = self.proxy.cut_after(self._random.choice([0, 0, 1, 30, 300]))
        async with asyncio.timeout(30):
            await cut
        self.cuts += 1

    async def reset(self) -> None:
        self.proxy.reset()

    async def refuse(self) -> None:
        await self.proxy.refuse()
        self.proxy.reset()
        await asyncio.sleep(0.3)
        await self.proxy.accept()

    async def be_slow(self) -> None:
        self.proxy.delay = 0.1
        await asyncio.sleep(0.5)
        self.proxy.delay = 0.0

    async def be_silent(self) -> None:
        self.proxy.hold()
        await asyncio.sleep(0.5)
        self.proxy.release()

    async def forget(self) -> None:
        """Makes connections half-open: clients wait for answers that never come."""
        self.proxy.forget()

    def faults(self) -> list[Any]:
        every = [self.cut, self.cut, self.reset, self.refuse, self.be_slow, self.be_silent]
        self._random.shuffle(every)
        return every


@pytest.fixture(params=["redis", "postgres"])
async def network(request: pytest.FixtureRequest) -> AsyncIterator[Network]:
    url = request.getfixturevalue(f"{request.param}_url")
    server = request.getfixturevalue(f"{request.param}_server")
    async with Proxy(server.port) as proxy:
        yield Network(proxy, url, server.port)


@pytest.mark.timeout(120 + 20 * ROUNDS)
async def test_faults_under_load(network: Network) -> None:
    load = Traffic(network.url)
    async with load.under_way():
        for _ in range(ROUNDS):
            for fault in network.faults():
                await fault()
                await load.wait_for_progress()
    await load.check(network.straight)
    assert network.cuts == 2 * ROUNDS


@pytest.mark.timeout(120)
async def test_half_open_connections_under_load(network: Network) -> None:
    load = Traffic(network.url)
    async with load.under_way():
        await network.forget()
        await load.wait_for_progress()
    await load.check(network.straight)
