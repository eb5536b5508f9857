"""All workers follow what one worker learns: limits declared too high, external traffic, separate keys."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.quotas.fleet import Fleet, MakeStore, MissingReply, run_fleet
from tests.quotas.test_refusal_reasons import ClientError
from tidemill import Context, Limit, Tidemill
from tidemill.testing.clocks import VirtualClock
from tidemill.testing.simulator import (
    AnthropicDialect,
    CallableProvider,
    Dialect,
    ExternalTraffic,
    GeminiDialect,
    OpenAIDialect,
    Quota,
    SimulatorOptions,
    SimulatorRequest,
)

REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemini": ("/v1beta/models/m:generateContent", {"contents": [{"parts": [{"text": "hello"}]}]}),
    "openai": ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hello"}]}),
    "anthropic": (
        "/v1/messages",
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]},
    ),
}


def _asking(provider: CallableProvider, declared: Limit) -> Any:
    path, body = REQUESTS[provider.dialect.name]

    def write(app: Tidemill) -> Any:
        @app.task(name="ask", pool=app.pool("api", declared))
        async def ask(ctx: Context, number: int) -> None:
            answer = await provider.call(SimulatorRequest(path, body, {"x-job": str(number)}))
            if answer.status >= 400:
                raise MissingReply(answer)
            ctx.used((answer.status, answer.headers, answer.body))

        return ask

    return write


@pytest.mark.parametrize(
    "dialect", [GeminiDialect(), OpenAIDialect(), AnthropicDialect()], ids=lambda one: one.name
)
def test_declared_twice_too_high_it_stops_offending_after_the_first_refusals(
    dialect: Dialect, make_at_length: MakeStore
) -> None:
    """Learns from headers and bodies, or from repeated refusals."""

    async def scenario() -> tuple[list[float], list[float]]:
        options = SimulatorOptions(jitter=0.3, latency=(0.5, 2.0))
        quota = Quota.bucket("requests", 20) if dialect.name == "anthropic" else Quota.rolling("requests", 20)
        provider = CallableProvider(dialect, [quota], options, clock=VirtualClock(), seed=2)
        fleet = Fleet(_asking(provider, Limit.requests(40, per="minute")), make_at_length, seed=2)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(200))
            fleet.start(3, concurrency=5)
            await fleet.drained(within=1800)
        request_log = provider.request_log
        return [refusal.at for refusal in request_log.refused], [bill.at for bill in request_log.bills]

    refusals, bills = run_fleet(scenario())
    assert len(bills) == 200
    # Gemini states a limit only in refusals, and refuses all calls in flight by then.
    if dialect.name == "gemini":
        assert 1 <= len(refusals) <= 3 * 5
        assert max(refusals) < 60, "in the first window, and never again"
    else:
        assert refusals == [], "the first answer states the limit"
    assert max(bills) < 10 * 60 + 180, "and no slower than the provider allows"


def test_limits_stated_by_the_provider_are_shown_with_their_time(make: MakeStore) -> None:
    """`x-ratelimit-limit-requests: 30` with 60 declared; `remaining: 3` is for the whole account."""
    headers = {
        "x-ratelimit-limit-requests": "30",
        "x-ratelimit-remaining-requests": "3",
        "x-ratelimit-reset-requests": "54s",
    }

    async def scenario() -> tuple[list[float], Any]:
        calls: list[float] = []

        def write(app: Tidemill) -> Any:
            @app.task(name="ask", pool=app.pool("api", Limit.requests(60, per="minute")))
            async def ask(ctx: Context, number: int) -> None:
                calls.append(asyncio.get_running_loop().time())
                if number == 0:
                    ctx.used(SimpleNamespace(status_code=200, headers=headers))

            return ask

        fleet = Fleet(write, make, seed=2)
        async with fleet.app as app:
            await fleet.task.enqueue(0)
            fleet.start(1)
            await fleet.drained(within=10)
            fleet.kill()
            await app.enqueue_many(fleet.task.job(number) for number in range(1, 50))
            fleet.start(1)  # which never saw the headers
            await asyncio.sleep(30)
            [view] = await app.store.pools()
            await asyncio.sleep(40)
            [later] = await app.store.pools()
        return calls, (view, later)

    calls, (view, later) = run_fleet(scenario())
    assert len([at for at in calls if at < 40]) == 1 + 3
    [limit] = view.limits
    assert (limit.amount, limit.declared, limit.learned.amount) == (60, 60, 30)
    assert limit.learned.since == pytest.approx(1_893_456_000, abs=5)
    assert view.external_usage == {"requests per minute": 26}
    assert later.external_usage == {}, "forgotten with its window"
    assert later.limits[0].learned is not None


def test_strangers_on_the_account_are_seen(make: MakeStore) -> None:
    async def scenario() -> tuple[int, int, float]:
        foreign = ExternalTraffic(per_second=0.2, end=600)
        options = SimulatorOptions(jitter=0.3, latency=(3.5, 4.5), external=(foreign,))
        provider = CallableProvider(
            OpenAIDialect(), [Quota.rolling("requests", 30)], options, clock=VirtualClock(), seed=2
        )
        fleet = Fleet(_asking(provider, Limit.requests(30, per="minute")), make, seed=2)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(number) for number in range(60))
            fleet.start(1, concurrency=1)
            await asyncio.sleep(100)
            [view] = await app.store.pools()
            await fleet.drained(within=1800)
        return (
            len(provider.request_log.refused),
            len(provider.request_log.bills),
            sum(view.external_usage.values()),
        )

    refused, billed, foreign = run_fleet(scenario())
    assert billed == 60
    assert 6 <= foreign <= 20, "twelve a minute, as far as they can be told from ours"
    assert refused <= 3


def test_one_keys_429_leaves_the_others_at_full_speed(make: MakeStore) -> None:
    """A 403 without details concerns only the page: it closes no pool."""

    async def scenario() -> tuple[dict[str, list[float]], dict[str | None, int]]:
        calls: dict[str, list[float]] = {"a": [], "b": [], "c": []}

        def write(app: Tidemill) -> Any:
            site = app.pool("site", Limit.requests(1, per="second"), keyed=True)

            @app.task(name="fetch", pool=site.by(lambda host, number: host))
            async def fetch(host: str, number: int) -> None:
                calls[host].append(asyncio.get_running_loop().time())
                if host == "a" and len(calls["a"]) == 1:
                    raise ClientError(429, retry_after="60")
                if host == "b" and number % 2:
                    raise ClientError(403)

            return fetch

        fleet = Fleet(write, make, seed=2)
        async with fleet.app as app:
            await app.enqueue_many(fleet.task.job(host, number) for number in range(10) for host in "abc")
            fleet.start(2)
            await asyncio.sleep(50)
            views = {view.key: len(view.closures) for view in await app.store.pools()}
        return calls, views

    calls, views = run_fleet(scenario())
    assert len(calls["a"]) == 1
    assert len(calls["c"]) == 10
    assert max(calls["c"]) < 10 * 1.6
    assert len(calls["b"]) >= 10
    assert views.get("a") == 1
    assert views.get("b", 0) == 0
