"""Several limits on one pool; the longest is a day that does not always have 24 hours."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from tests.quotas.fleet import (
    RARE_POLL_OPTIONS,
    Fleet,
    MissingReply,
    in_memory,
    patch_poll_intervals,
    run_fleet,
)
from tidemill import Day, Limit, Tidemill
from tidemill.testing.clocks import VirtualClock
from tidemill.testing.simulator import (
    CallableProvider,
    GeminiDialect,
    Quota,
    SimulatorOptions,
    SimulatorRequest,
)

ZONE = "America/Los_Angeles"
BEGINS = datetime(2026, 10, 30, tzinfo=ZoneInfo(ZONE)).timestamp()
"""Two days before the one with 25 hours."""
JOBS, A_DAY = 10_000, 2_000


def test_i14_every_limit_of_a_pool_holds_and_every_day_is_used() -> None:
    """ "3/s + 100/min + 2 000/day (Los Angeles, across a DST change), 10 000 jobs in virtual time: 0
    refusals, ≥ 98 % of each day's quota used." """
    quotas = (
        Quota.rolling("requests", 3, per=1.0),
        Quota.rolling("requests", 100),
        Quota.day("requests", A_DAY, zone=ZONE),
    )

    async def scenario() -> CallableProvider:
        options = SimulatorOptions(jitter=0.5, latency=(0.2, 2.0), skew=3.0)
        provider = CallableProvider(GeminiDialect(), quotas, options, clock=VirtualClock(), seed=1)

        def write(app: Tidemill) -> Any:
            pool = app.pool(
                "api",
                Limit.requests(3, per="second"),
                Limit.requests(100, per="minute"),
                Limit.requests(A_DAY, per=Day(ZONE)),
            )

            @app.task(name="ask", pool=pool)
            async def ask(number: int) -> None:
                body = {"contents": [{"parts": [{"text": "hello"}]}]}
                sent = SimulatorRequest("/v1beta/models/m:generateContent", body, {"x-job": str(number)})
                answer = await provider.call(sent)
                if answer.status >= 400:
                    raise MissingReply(answer)

            return ask

        fleet = Fleet(write, in_memory, seed=2)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(JOBS))
            fleet.start(3, **RARE_POLL_OPTIONS)
            await fleet.drained(within=6 * 86_400, every=600)
        return provider

    with patch_poll_intervals():
        request_log = run_fleet(scenario(), start=BEGINS).request_log
    days = Counter(
        datetime.fromtimestamp(BEGINS + one.at, ZoneInfo(ZONE)).date() for one in request_log.arrivals
    )
    assert request_log.refused == []
    assert len(request_log.bills) == JOBS
    assert request_log.duplicate_payments() == {}
    assert len(days) == JOBS // A_DAY
    assert min(days.values()) >= 0.98 * A_DAY
