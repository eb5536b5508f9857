"""Stores the address of each running dashboard, so that `tidemill link` in another process can find the
dashboard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from tidemill.auth.record_store import OpenStore, RecordStore
from tidemill.clock import Clock, Entropy
from tidemill.errors import StoreError

ADDRESS_SECONDS = 60.0
"""How long an address stays listed after its server was killed."""
RENEW_SECONDS = ADDRESS_SECONDS / 3
_MAX_ADDRESSES = 100
_ALTERNATING_STATES = ("announced", "renewed")
"""Each renewal switches the state, because a record's lifetime starts when it enters a state."""


class DashboardAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address of one running dashboard. `address` is its URL for a browser on the machine `host`."""

    address: str
    host: str


class DashboardAddresses:
    """Announces and lists the addresses of running dashboards."""

    def __init__(self, store: OpenStore, clock: Clock, entropy: Entropy) -> None:
        self._clock, self._entropy = clock, entropy
        self._records = RecordStore(store, "dashboard", DashboardAddress)

    @asynccontextmanager
    async def announce(self, dashboard: DashboardAddress) -> AsyncIterator[None]:
        """Stores the address while the `async with` block runs, and removes it afterwards. If the process is
        killed, the address expires after 60 seconds."""
        id_ = self._entropy.new_id()
        await self._announce(id_, dashboard)
        renewing = asyncio.create_task(self._renew(id_, dashboard), name="tidemill dashboard address")
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            with suppress(StoreError):  # the record expires soon anyway
                await self._remove(id_)

    async def list(self) -> list[DashboardAddress]:
        """Returns the dashboards that are served now, the newest first."""
        page, _ = await self._records.page(_MAX_ADDRESSES)
        wall = self._clock.wall()
        return [stored.value for stored in page if stored.until is not None and stored.until > wall]

    async def _renew(self, id_: str, dashboard: DashboardAddress) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with suppress(
                StoreError
            ):  # the store may be unavailable for a while; the next renewal repairs it
                await self._announce(id_, dashboard)

    async def _announce(self, id_: str, dashboard: DashboardAddress) -> None:
        stored = await self._records.get(id_)
        if stored is None:
            await self._records.create(id_, dashboard, _ALTERNATING_STATES[0], ADDRESS_SECONDS)
        else:
            await self._records.update(
                stored,
                dashboard,
                _ALTERNATING_STATES[stored.state == _ALTERNATING_STATES[0]],
                ADDRESS_SECONDS,
            )

    async def _remove(self, id_: str) -> None:
        stored = await self._records.get(id_)
        if stored is not None:
            await self._records.delete(stored)
