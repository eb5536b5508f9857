"""Who serves the dashboard of a store, as everybody on it can know."""

from __future__ import annotations

import asyncio

import pytest

from tidemill import Tidemill
from tidemill.access.serving import LASTS, Served
from tidemill.testing.manual import ManualClock

ONE = Served(address="http://127.0.0.1:8750", host="one")
OTHER = Served(address="http://127.0.0.1:8751", host="other")


async def test_it_is_known_while_it_is_served(app: Tidemill, clock: ManualClock) -> None:
    serving = app.access.serving
    async with serving.told(ONE):
        clock.advance(1)
        async with serving.told(OTHER):
            assert await serving.now() == [OTHER, ONE]
        assert await serving.now() == [ONE]
    assert await serving.now() == []


async def test_one_that_says_nothing_more_is_over(app: Tidemill, clock: ManualClock) -> None:
    async with app.access.serving.told(ONE):
        clock.advance(LASTS - 1)
        assert await app.access.serving.now() == [ONE]
        clock.advance(1)
        assert await app.access.serving.now() == []


async def test_one_that_serves_for_long_says_so_again(
    app: Tidemill, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the store was away for longer than it lasts."""
    monkeypatch.setattr("tidemill.access.serving.RENEWED", 0)
    async with app.access.serving.told(ONE), asyncio.timeout(60):
        for away in (LASTS - 1, 2 * LASTS, 2 * LASTS):
            clock.advance(away)
            while await app.access.serving.now() != [ONE]:  # noqa: ASYNC110 - another task's turn, not a wait
                await asyncio.sleep(0)
