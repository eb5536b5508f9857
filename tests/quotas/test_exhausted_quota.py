"""A daily quota is used up while ten thousand jobs wait.

No worker calls before the stored time, one job probes, and the others follow in a ramp. The provider's
log proves it (I15, I16, N5, N6)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.quotas.fleet import Fleet, MakeStore, MissingReply, run_fleet
from tidemill import Context, Day, Limit, Tidemill
from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.testing.clocks import VirtualClock
from tidemill.testing.simulator import (
    CallableProvider,
    ExternalTraffic,
    GeminiDialect,
    Quota,
    SimulatorOptions,
    SimulatorRequest,
)
from tidemill.testing.virtual_loop import START_TIME

LOS_ANGELES = "America/Los_Angeles"
EVENING_TIME = START_TIME + 7 * 3600
"""One hour before midnight in Los Angeles."""
PER_MINUTE, PER_DAY, JOBS = 30, 45, 10_000
OPTIONS: dict[str, Any] = {"concurrency": 20, "poll": 20.0, "lease": 20.0, "reclaim_every": 10.0}


class ExhaustedQuotaRun(msgspec.Struct, kw_only=True):
    """The result of a run. Times are since the provider's start.

    `probes` are all calls from the stored time until the pool was open again."""

    arrivals: list[float]
    until: float
    probes: list[float]
    opened: float
    attempts: dict[State, set[int]]


def register_task(provider: CallableProvider) -> Any:
    """Declares a pool with a larger daily limit than the account has."""

    def write(app: Tidemill) -> Any:
        gemini = app.pool(
            "gemini",
            Limit.requests(PER_MINUTE, per="minute"),
            Limit.requests(1500, per=Day(LOS_ANGELES)),
        )

        @app.task(name="ask", pool=gemini)
        async def ask(ctx: Context, number: int) -> None:
            body = {"contents": [{"parts": [{"text": "hello"}]}]}
            path = "/v1beta/models/gemini-2.5-flash:generateContent"
            answer = await provider.call(SimulatorRequest(path, body, {"x-job": str(number)}))
            if answer.status >= 400:
                raise MissingReply(answer)
            ctx.used((answer.status, answer.headers, answer.body))

        return ask

    return write


def _provider(*, hint: float | None = None, strangers: int = 0) -> CallableProvider:
    quotas = (
        Quota.rolling("requests", PER_MINUTE),
        Quota.day("requests", PER_DAY, zone=LOS_ANGELES),
    )
    foreign = ExternalTraffic(times=tuple(2.0 * number for number in range(strangers)))
    options = SimulatorOptions(jitter=0.4, latency=(1.0, 6.0), external=(foreign,))
    return CallableProvider(GeminiDialect(day_hint=hint), quotas, options, clock=VirtualClock(), seed=3)


async def closed_until(fleet: Fleet) -> float | None:
    [view] = await fleet.app.store.pools()
    return next((closure.until for closure in view.closures), None)


async def _run_until_reopened(make: MakeStore, *, kills: int, kill_the_probe: bool) -> ExhaustedQuotaRun:
    provider = _provider()
    fleet = Fleet(register_task(provider), make, seed=7)
    async with fleet.app as app:
        await app.enqueue_many(fleet.task.job(number) for number in range(JOBS))
        fleet.start(4, **OPTIONS)
        while await closed_until(fleet) is None:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1)
        until = await closed_until(fleet)
        assert until is not None
        opens = until - EVENING_TIME
        for _ in range(kills):
            await asyncio.sleep((opens - provider.now - 60) / kills)
            fleet.kill()
            fleet.start(4, **OPTIONS)
            assert await closed_until(fleet) == until, "N5: it outlives everything"
        await _first_call_after(provider, opens - 1)
        if kill_the_probe:
            fleet.kill()
            await asyncio.sleep(0.5)
            fleet.start(4, **OPTIONS)
        while await closed_until(fleet) is not None:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.05)
        opened = provider.now
        await provider.until(opened + 90)
        attempts: dict[State, set[int]] = {}
        page = await app.store.find(Filter(), limit=JOBS)
        for job in page.jobs:
            attempts.setdefault(job.state, set()).add(job.attempts)
    arrivals = [one.at for one in provider.request_log.arrivals]
    probes = [at for at in arrivals if opens - 1 < at <= opened]
    return ExhaustedQuotaRun(arrivals=arrivals, until=opens, probes=probes, opened=opened, attempts=attempts)


async def _first_call_after(provider: CallableProvider, since: float) -> None:
    while not any(one.at > since for one in provider.request_log.arrivals):  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0.1)


def _ramp_held(night: ExhaustedQuotaRun) -> None:
    """Checks the ramp: from a tenth to the whole limit over one window, with one call in flight."""
    after = [at - night.probes[-1] for at in night.arrivals if at >= night.probes[-1]]
    for at in after:
        if at < 60:
            allowed = PER_MINUTE * (0.1 + 0.9 * at / 60) + 1
            assert sum(other <= at for other in after) <= allowed, (at, after)
    assert len([at for at in after if at < 90]) > PER_MINUTE / 2, "and it does open"


def test_i15_ten_restarts_in_a_night_make_no_call(make_at_length: MakeStore) -> None:
    scenario = _run_until_reopened(make_at_length, kills=10, kill_the_probe=False)
    night = run_fleet(scenario, start=EVENING_TIME)
    assert night.until == pytest.approx(3600 + 300), "midnight in Los Angeles, and the guard"
    early = [at for at in night.arrivals if at < night.until]
    assert len(early) <= PER_DAY + 20, "the calls that were under way met the same refusal"
    assert max(early) < 120, "and after it none"
    assert len(night.probes) == 1
    assert night.probes[0] < night.until + 21, "a poll's time after the stored one at the latest"
    _ramp_held(night)
    assert night.attempts[State.DONE] == {1}
    assert night.attempts[State.READY] == {0}, "I16: stopped by a quota, no attempt is spent"


def test_i15_a_killed_prober_is_replaced_within_a_minute(make_at_length: MakeStore) -> None:
    night = run_fleet(_run_until_reopened(make_at_length, kills=2, kill_the_probe=True), start=EVENING_TIME)
    assert len(night.probes) == 2
    assert night.probes[1] - night.probes[0] <= 61
    _ramp_held(night)
    assert night.attempts[State.DONE] == {1}


@pytest.mark.parametrize(
    ("strangers", "tries"), [(20, 1), (0, 0)], ids=["our books say little was used", "our books agree"]
)
def test_a_short_hint_on_a_days_quota_is_tried_once_unless_our_own_books_confirm_the_day(
    make_at_length: MakeStore, strangers: int, tries: int
) -> None:
    """Gemini sends "retry in 20 s" after its daily quota is used up."""

    async def scenario() -> list[float]:
        provider = _provider(hint=20.04, strangers=strangers)
        await provider.until(120)
        fleet = Fleet(register_task(provider), make_at_length, seed=7)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(200))
            fleet.start(4, **OPTIONS)
            await provider.until(3500)
        return [refusal.at for refusal in provider.request_log.refused if not refusal.external]

    refusals = run_fleet(scenario(), start=EVENING_TIME)
    later = [at for at in refusals if at > refusals[0] + 20]
    assert len(later) == tries
    assert all(at < refusals[0] + 85 for at in later), "after what was hinted and what the minute allows"


def test_n6_a_persons_closure_outlives_the_breaker_and_its_end(make_at_length: MakeStore) -> None:
    """There are two closures: the one that is due ends, the manual one stays."""

    async def scenario() -> tuple[list[float], float, list[float]]:
        provider = _provider()
        fleet = Fleet(register_task(provider), make_at_length, seed=7)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(200))
            fleet.start(2, **OPTIONS)
            while await closed_until(fleet) is None:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(1)
            await app.store.close_pool("gemini", by="ann", reason="looking into it")
            fleet.kill()
            fleet.start(2, **OPTIONS)
            await provider.until(2 * 3600)
            before = [one.at for one in provider.request_log.arrivals]
            await app.store.open_pool("gemini")
            opened = provider.now
            await provider.until(opened + 30)
        return before, opened, [one.at for one in provider.request_log.arrivals][len(before) :]

    before, opened, after = run_fleet(scenario(), start=EVENING_TIME)
    assert max(before) < 120
    assert opened == pytest.approx(7200)
    assert len(after) == PER_MINUTE, "by hand: no probe, no ramp"
