"""Where the dashboard of a store is served: what a link made by another process has to lead to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from tidemill.access.shelf import OpenStore, Shelf
from tidemill.clock import Clock, Entropy
from tidemill.errors import StoreError

LASTS = 60.0
"""Seconds for which one that was killed is still believed to serve."""
RENEWED = LASTS / 3
_AT_ONCE = 100
_STATES = ("said", "said again")
"""In turns: a record is kept from when it came into its state."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """`address` is as a browser on `host` asks for it."""

    address: str
    host: str


class Serving:
    def __init__(self, store: OpenStore, clock: Clock, entropy: Entropy) -> None:
        self._clock, self._entropy = clock, entropy
        self._shelf = Shelf(store, "serving", Served)

    @asynccontextmanager
    async def told(self, served: Served) -> AsyncIterator[None]:
        """Everybody on the store can know while the block runs."""
        id_ = self._entropy.new_id()
        await self._say(id_, served)
        renewing = asyncio.create_task(self._renew(id_, served), name="tidemill serving")
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            with suppress(StoreError):  # it is over by itself, soon
                await self._end(id_)

    async def now(self) -> list[Served]:
        """Who began last first."""
        page, _ = await self._shelf.page(_AT_ONCE)
        wall = self._clock.wall()
        return [kept.value for kept in page if kept.until is not None and kept.until > wall]

    async def _renew(self, id_: str, served: Served) -> None:
        while True:
            await asyncio.sleep(RENEWED)
            with suppress(StoreError):  # the store may be away for a while: the next time, then
                await self._say(id_, served)

    async def _say(self, id_: str, served: Served) -> None:
        kept = await self._shelf.get(id_)
        if kept is None:
            await self._shelf.begin(id_, served, _STATES[0], LASTS)
        else:
            await self._shelf.change(kept, served, _STATES[kept.state == _STATES[0]], LASTS)

    async def _end(self, id_: str) -> None:
        kept = await self._shelf.get(id_)
        if kept is not None:
            await self._shelf.end(kept)
