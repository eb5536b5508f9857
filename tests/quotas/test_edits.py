"""Limits that are edited while jobs flow, and clocks that are set."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.quotas.fleet import SELDOM, Fleet, MakeStore, NotAnswered, in_memory, run_fleet, seldom
from tidemill import Day, Limit, Tidemill
from tidemill.core.limits import Shapes
from tidemill.core.pools import PoolChanges
from tidemill.testing.providers import CalledProvider, Change, Gemini, Ledger, Options, Quota, Request
from tidemill.testing.virtual import VirtualClock

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
ZONE = "America/Los_Angeles"
BEGINS = datetime(2026, 6, 1, 9, tzinfo=ZoneInfo(ZONE)).timestamp()


def _write(app: Tidemill, limits: tuple[Limit, ...], provider: CalledProvider) -> Any:
    @app.task(name="ask", pool=app.pool("api", *limits))
    async def ask(number: int) -> None:
        said = {"contents": [{"parts": [{"text": "hello"}]}]}
        answer = await provider.call(
            Request("/v1beta/models/m:generateContent", said, {"x-job": str(number)})
        )
        if answer.status >= 400:
            raise NotAnswered(answer)

    return ask


@pytest.mark.parametrize("shape", ["rolling", "paced", "bucket"])
def test_i14_an_override_holds_from_the_next_claim_on(shape: Shapes, make_at_length: MakeStore) -> None:
    """Down from 60 to 20 a minute, and up to 90, while jobs flow. The provider is changed a second after we
    were told of less, and before we were told of more: it has nothing to refuse."""
    quota = Quota.bucket("requests", 60) if shape == "bucket" else Quota.rolling("requests", 60)
    changes = (Change(91.0, quota.name, 20), Change(289.0, quota.name, 90))

    async def scenario() -> Ledger:
        options = Options(jitter=0.5, latency=(0.2, 3.0), changes=changes)
        provider = CalledProvider(Gemini(), [quota], options, clock=VirtualClock(), seed=3)
        limits = (Limit.requests(60, per="minute", shape=shape),)
        fleet = Fleet(lambda app: _write(app, limits, provider), make_at_length, seed=3)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(400))
            fleet.start(3, concurrency=30)
            for at, amount in ((90.0, 20.0), (290.0, 90.0)):
                await asyncio.sleep(at - fleet.clock.boot())
                edit = PoolChanges(amounts={quota.name: amount})
                await app.store.override_pool("api", edit, by="test")
            await fleet.drained(within=20 * MINUTE)
            assert await fleet.live() == 0
        return provider.ledger

    ledger = run_fleet(scenario(), seed=3)
    assert ledger.refused == []
    assert len(ledger.bills) == 400
    times = [arrival.at for arrival in ledger.arrivals]
    lowered = [at for at in times if 160 < at <= 280]
    raised = [at for at in times if 300 < at <= 420]
    assert 20 <= len(lowered) <= 40
    assert len(raised) > 2 * len(lowered), "and more is used at once when more is allowed"


@pytest.mark.parametrize("step", [HOUR, -HOUR, DAY, -DAY])
def test_i26_no_day_is_used_twice_when_the_wall_clock_is_set(step: float) -> None:
    """Nobody can know which time was right. Here the first was: the provider's days go on as they were."""

    async def scenario() -> tuple[Ledger, int]:
        clock = VirtualClock()
        quotas = (Quota.rolling("requests", 10), Quota.day("requests", 50, zone=ZONE))
        provider = CalledProvider(Gemini(), quotas, Options(jitter=0.5), clock=clock, seed=3)
        limits = (Limit.requests(10, per="minute"), Limit.requests(50, per=Day(ZONE)))
        fleet = Fleet(lambda app: _write(app, limits, provider), in_memory, seed=3)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(300))
            fleet.start(2, **{**SELDOM, "poll": 300.0})
            await asyncio.sleep(2 * MINUTE)
            fleet.clock.step_wall(step)
            await asyncio.sleep(4 * DAY)
            left = await fleet.live()
        return provider.ledger, left

    with seldom():
        ledger, left = run_fleet(scenario(), start=BEGINS)
    assert ledger.refused == []
    days = Counter(datetime.fromtimestamp(BEGINS + one.at, ZoneInfo(ZONE)).date() for one in ledger.arrivals)
    assert max(days.values()) == 50
    assert left <= 300 - 3 * 50, "and most of the days are used"


@pytest.mark.parametrize("step", [HOUR, -HOUR, DAY, -DAY])
def test_i26_windows_in_seconds_do_not_notice_when_the_wall_clock_is_set(step: float) -> None:
    async def scenario() -> Ledger:
        quota = Quota.rolling("requests", 10)
        provider = CalledProvider(Gemini(), [quota], Options(jitter=0.5), clock=VirtualClock(), seed=3)
        limits = (Limit.requests(10, per="minute"),)
        fleet = Fleet(lambda app: _write(app, limits, provider), in_memory, seed=3)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(60))
            fleet.start(2)
            await asyncio.sleep(90)
            fleet.clock.step_wall(step)
            await fleet.drained(within=7 * MINUTE)
        return provider.ledger

    ledger = run_fleet(scenario())
    assert ledger.refused == []
    assert len(ledger.bills) == 60
    assert ledger.bills[-1].at < 5 * 61 + 5
