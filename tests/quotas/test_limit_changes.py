"""Changes of limits while jobs run, and steps of the wall clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.quotas.fleet import (
    RARE_POLL_OPTIONS,
    Fleet,
    MakeStore,
    MissingReply,
    in_memory,
    patch_poll_intervals,
    run_fleet,
)
from tidemill import Day, Limit, Tidemill
from tidemill.core.limits import ShapeName
from tidemill.core.pools import LimitChanges
from tidemill.testing.clocks import VirtualClock
from tidemill.testing.simulator import (
    CallableProvider,
    GeminiDialect,
    Quota,
    QuotaChange,
    RequestLog,
    SimulatorOptions,
    SimulatorRequest,
)

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
ZONE = "America/Los_Angeles"
BEGINS = datetime(2026, 6, 1, 9, tzinfo=ZoneInfo(ZONE)).timestamp()


def _write(app: Tidemill, limits: tuple[Limit, ...], provider: CallableProvider) -> Any:
    @app.task(name="ask", pool=app.pool("api", *limits))
    async def ask(number: int) -> None:
        body = {"contents": [{"parts": [{"text": "hello"}]}]}
        answer = await provider.call(
            SimulatorRequest("/v1beta/models/m:generateContent", body, {"x-job": str(number)})
        )
        if answer.status >= 400:
            raise MissingReply(answer)

    return ask


@pytest.mark.parametrize("shape", ["rolling", "paced", "bucket"])
def test_i14_an_override_holds_from_the_next_claim_on(shape: ShapeName, make_at_length: MakeStore) -> None:
    """Lowers the limit from 60 to 20 a minute, and raises it to 90, while jobs run.

    The provider lowers its limit a second after the override, and raises it before the override. So it
    must refuse no call."""
    quota = Quota.bucket("requests", 60) if shape == "bucket" else Quota.rolling("requests", 60)
    changes = (QuotaChange(91.0, quota.name, 20), QuotaChange(289.0, quota.name, 90))

    async def scenario() -> RequestLog:
        options = SimulatorOptions(jitter=0.5, latency=(0.2, 3.0), changes=changes)
        provider = CallableProvider(GeminiDialect(), [quota], options, clock=VirtualClock(), seed=3)
        limits = (Limit.requests(60, per="minute", shape=shape),)
        fleet = Fleet(lambda app: _write(app, limits, provider), make_at_length, seed=3)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(400))
            fleet.start(3, concurrency=30)
            for at, amount in ((90.0, 20.0), (290.0, 90.0)):
                await asyncio.sleep(at - fleet.clock.boot())
                edit = LimitChanges(amounts={quota.name: amount})
                await app.store.override_pool("api", edit, by="test")
            await fleet.drained(within=20 * MINUTE)
            assert await fleet.live() == 0
        return provider.request_log

    request_log = run_fleet(scenario(), seed=3)
    assert request_log.refused == []
    assert len(request_log.bills) == 400
    times = [arrival.at for arrival in request_log.arrivals]
    lowered = [at for at in times if 160 < at <= 280]
    raised = [at for at in times if 300 < at <= 420]
    assert 20 <= len(lowered) <= 40
    assert len(raised) > 2 * len(lowered), "and more is used at once when more is allowed"


@pytest.mark.parametrize("step", [HOUR, -HOUR, DAY, -DAY])
def test_i26_no_day_is_used_twice_when_the_wall_clock_is_set(step: float) -> None:
    """It is unknowable which time was correct. Here the first was: the provider's days continue."""

    async def scenario() -> tuple[RequestLog, int]:
        clock = VirtualClock()
        quotas = (Quota.rolling("requests", 10), Quota.day("requests", 50, zone=ZONE))
        provider = CallableProvider(
            GeminiDialect(), quotas, SimulatorOptions(jitter=0.5), clock=clock, seed=3
        )
        limits = (Limit.requests(10, per="minute"), Limit.requests(50, per=Day(ZONE)))
        fleet = Fleet(lambda app: _write(app, limits, provider), in_memory, seed=3)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(300))
            fleet.start(2, **{**RARE_POLL_OPTIONS, "poll": 300.0})
            await asyncio.sleep(2 * MINUTE)
            fleet.clock.step_wall(step)
            await asyncio.sleep(4 * DAY)
            left = await fleet.live()
        return provider.request_log, left

    with patch_poll_intervals():
        request_log, left = run_fleet(scenario(), start=BEGINS)
    assert request_log.refused == []
    days = Counter(
        datetime.fromtimestamp(BEGINS + one.at, ZoneInfo(ZONE)).date() for one in request_log.arrivals
    )
    assert max(days.values()) == 50
    assert left <= 300 - 3 * 50, "and most of the days are used"


@pytest.mark.parametrize("step", [HOUR, -HOUR, DAY, -DAY])
def test_i26_windows_in_seconds_do_not_notice_when_the_wall_clock_is_set(step: float) -> None:
    async def scenario() -> RequestLog:
        quota = Quota.rolling("requests", 10)
        provider = CallableProvider(
            GeminiDialect(), [quota], SimulatorOptions(jitter=0.5), clock=VirtualClock(), seed=3
        )
        limits = (Limit.requests(10, per="minute"),)
        fleet = Fleet(lambda app: _write(app, limits, provider), in_memory, seed=3)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(60))
            fleet.start(2)
            await asyncio.sleep(90)
            fleet.clock.step_wall(step)
            await fleet.drained(within=7 * MINUTE)
        return provider.request_log

    request_log = run_fleet(scenario())
    assert request_log.refused == []
    assert len(request_log.bills) == 60
    assert request_log.bills[-1].at < 5 * 61 + 5
