"""Several limits on one pool, the longest of them a day that is not always 24 hours long."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from tests.quotas.fleet import SELDOM, Fleet, NotAnswered, in_memory, run_fleet, seldom
from tidemill import Day, Limit, Tidemill
from tidemill.testing.providers import CalledProvider, Gemini, Options, Quota, Request
from tidemill.testing.virtual import VirtualClock

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

    async def scenario() -> CalledProvider:
        options = Options(jitter=0.5, latency=(0.2, 2.0), skew=3.0)
        provider = CalledProvider(Gemini(), quotas, options, clock=VirtualClock(), seed=1)

        def write(app: Tidemill) -> Any:
            pool = app.pool(
                "api",
                Limit.requests(3, per="second"),
                Limit.requests(100, per="minute"),
                Limit.requests(A_DAY, per=Day(ZONE)),
            )

            @app.task(name="ask", pool=pool)
            async def ask(number: int) -> None:
                said = {"contents": [{"parts": [{"text": "hello"}]}]}
                sent = Request("/v1beta/models/m:generateContent", said, {"x-job": str(number)})
                answer = await provider.call(sent)
                if answer.status >= 400:
                    raise NotAnswered(answer)

            return ask

        fleet = Fleet(write, in_memory, seed=2)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(JOBS))
            fleet.start(3, **SELDOM)
            await fleet.drained(within=6 * 86_400, every=600)
        return provider

    with seldom():
        ledger = run_fleet(scenario(), start=BEGINS).ledger
    days = Counter(datetime.fromtimestamp(BEGINS + one.at, ZoneInfo(ZONE)).date() for one in ledger.arrivals)
    assert ledger.refused == []
    assert len(ledger.bills) == JOBS
    assert ledger.paid_again() == {}
    assert len(days) == JOBS // A_DAY
    assert min(days.values()) >= 0.98 * A_DAY
