"""Running dashboards announce their address in the store."""

from __future__ import annotations

import asyncio

import pytest

from tidemill import Tidemill
from tidemill.auth.running_dashboards import ADDRESS_SECONDS, DashboardAddress
from tidemill.testing.clocks import ManualClock

ONE = DashboardAddress(address="http://127.0.0.1:8750", host="one")
OTHER = DashboardAddress(address="http://127.0.0.1:8751", host="other")


async def test_an_address_is_listed_while_it_is_served(app: Tidemill, clock: ManualClock) -> None:
    dashboards = app.auth.dashboards
    async with dashboards.announce(ONE):
        clock.advance(1)
        async with dashboards.announce(OTHER):
            assert await dashboards.list() == [OTHER, ONE]
        assert await dashboards.list() == [ONE]
    assert await dashboards.list() == []


async def test_an_address_that_is_not_renewed_expires(app: Tidemill, clock: ManualClock) -> None:
    async with app.auth.dashboards.announce(ONE):
        clock.advance(ADDRESS_SECONDS - 1)
        assert await app.auth.dashboards.list() == [ONE]
        clock.advance(1)
        assert await app.auth.dashboards.list() == []


async def test_an_address_is_renewed(
    app: Tidemill, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It also does so after the store was unavailable for longer than the address lasts."""
    monkeypatch.setattr("tidemill.auth.running_dashboards.RENEW_SECONDS", 0)
    async with app.auth.dashboards.announce(ONE), asyncio.timeout(60):
        for away in (ADDRESS_SECONDS - 1, 2 * ADDRESS_SECONDS, 2 * ADDRESS_SECONDS):
            clock.advance(away)
            while await app.auth.dashboards.list() != [ONE]:  # noqa: ASYNC110 - another task's turn, not a wait
                await asyncio.sleep(0)
