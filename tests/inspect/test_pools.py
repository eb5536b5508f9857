"""Inspecting, overriding, closing and opening pools on both embedded stores."""

from __future__ import annotations

import pytest

from tests.inspect.support import ManualWorker
from tidemill import ConfigurationError, Inspector, Limit, PoolNotFound, Task, Tidemill
from tidemill.core.feedback import Observation, Reason, Refusal
from tidemill.core.outcomes import Success
from tidemill.testing import ManualClock

Call = Task[[str], None]


@pytest.fixture
def call(app: Tidemill) -> Call:
    pool = app.pool("api", Limit.requests(2, per="minute"), Limit.tokens(1_000, per="minute"))
    site = app.pool("site", Limit.requests(1, per="minute"), keyed=True)

    @app.task(name="call", queue="feeds", pool=[pool, site.by(lambda host: host)], cost={"tokens": 300})
    async def call(host: str) -> None: ...

    return call


async def test_a_pool_shows_usage_and_waiting_jobs(
    app_inspector: Inspector, call: Call, manual_worker: ManualWorker
) -> None:
    for host in "aab":
        await call.enqueue(host)
    taken = await manual_worker.claim(3)
    assert len(taken) == 2, "one of each host"
    api = await app_inspector.pool("api")
    assert [(limit.name, limit.used, limit.amount) for limit in api.limits] == [
        ("requests per minute", 2.0, 2),
        ("tokens per minute", 600.0, 1_000),
    ]
    assert api.limits[0].free_in == pytest.approx(60.5, abs=0.5)
    assert (api.reservations, api.waiting, api.is_open) == (2, 1, True)
    assert api.forecast is not None
    assert api.forecast.jobs == 1
    assert api.forecast.done_at is not None
    names = [(pool.name, pool.key) for pool in await app_inspector.pools()]
    assert names == [("api", None), ("site", None), ("site", "a"), ("site", "b")]
    assert [(await app_inspector.pool("site", key=key)).waiting for key in ("a", "b", "new")] == [1, 0, 0]
    assert (await app_inspector.pool("site")).waiting == 1, "of all its keys"


async def test_an_override_is_merged_ends_and_is_cleared(
    app_inspector: Inspector, call: Call, clock: ManualClock
) -> None:
    await call.enqueue("a")
    until = clock.wall() + 100
    await app_inspector.override_pool(
        "api", {"requests per minute": 1}, by="ann", reason="trial", until=until
    )
    both = await app_inspector.override_pool("api", {"tokens per minute": 500}, by="bob")
    assert both.override is not None
    assert (both.override.by, both.override.until) == ("bob", until)
    assert [(limit.amount, limit.declared) for limit in both.limits] == [(1, 2), (500, 1_000)]
    left = await app_inspector.clear_pool_override("api", "requests per minute")
    assert [limit.amount for limit in left.limits] == [2, 500]
    clock.advance(101)
    assert (await app_inspector.pool("api")).override is None
    with pytest.raises(ConfigurationError, match="'requests per day' is not a limit of pool 'api'"):
        await app_inspector.clear_pool_override("api", "requests per day")
    with pytest.raises(ConfigurationError, match="name at least one limit"):
        await app_inspector.override_pool("api", {}, by="ann")
    with pytest.raises(ConfigurationError, match="until: must be in the future"):
        await app_inspector.override_pool("api", {"requests per minute": 1}, by="ann", until=1.0)


async def test_p23_a_key_has_its_own_override(
    app_inspector: Inspector, call: Call, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    until = clock.wall() + 100
    for host in "aab":
        await call.enqueue(host)
    await app_inspector.override_pool("api", {"requests per minute": 9}, by="eve")
    status = await app_inspector.override_pool(
        "site", {"requests per minute": 2}, key="a", by="ann", reason="paid plan", until=until
    )
    assert (status.key, status.limits[0].amount, status.limits[0].declared) == ("a", 2, 1)
    assert status.override is None
    assert status.key_override is not None
    assert (status.key_override.by, status.key_override.reason, status.key_override.until) == (
        "ann",
        "paid plan",
        until,
    )
    assert len(await manual_worker.claim(3)) == 3
    later = await call.enqueue("a")
    explained = await app_inspector.explain(later.id)
    assert any("It is an override by ann, which ends" in cause.sentence for cause in explained.causes)
    cleared = await app_inspector.clear_pool_override("site", key="a")
    assert (cleared.key, cleared.key_override, cleared.limits[0].amount) == ("a", None, 1)
    with pytest.raises(ConfigurationError, match="pool 'api': key: the pool has no keys; leave 'a' out"):
        await app_inspector.override_pool("api", {"requests per minute": 1}, key="a", by="ann")


async def test_p24_a_learned_spacing_is_shown_and_explained(
    app_inspector: Inspector, call: Call, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    refusal = Refusal(reason=Reason.RATE, status=429)
    await call.enqueue("a")
    waiting = await call.enqueue("a")
    [running] = await manual_worker.claim(2)
    for _ in range(2):
        clock.advance(61)
        await manual_worker.store.observe([Observation(pool="site", key="a", refusal=refusal)])
    status = await app_inspector.pool("site", key="a")
    assert status.limits[0].spacing is not None
    assert (status.limits[0].spacing.seconds, status.limits[0].spacing.confirmed) == (240, False)
    clock.advance(100)
    assert running.id != waiting.id
    explained = await app_inspector.explain(waiting.id)
    assert any("Learned: one call per 240 s, since " in cause.sentence for cause in explained.causes)
    assert (await app_inspector.pool("site", key="b")).limits[0].spacing is None
    await app_inspector.open_pool("site", key="a")
    assert (await app_inspector.pool("site", key="a")).limits[0].spacing is None


async def test_i15_only_an_operator_or_its_end_opens_a_pool_closed_by_hand(
    app_inspector: Inspector, call: Call, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    await call.enqueue("a")
    await app_inspector.close_pool("api", by="ann", until=clock.wall() + 60, reason="the bill")
    api = await app_inspector.pool("api")
    assert api.closed is not None
    assert (api.closed.by, api.closed.reason, api.is_open) == ("ann", "the bill", False)
    assert await manual_worker.claim() == []
    clock.advance(61)
    assert len(await manual_worker.claim()) == 1
    await app_inspector.close_pool("site", key="a", by="ann")
    await app_inspector.open_pool("site", key="a")
    assert (await app_inspector.pool("site", key="a")).is_open


async def test_a_backlog_behind_a_closed_pool_is_never_drained(
    app_inspector: Inspector, call: Call, app: Tidemill
) -> None:
    await call.enqueue("a")
    refusal = Refusal(reason=Reason.FORBIDDEN, text="wrong key")
    await app.store.observe([Observation(pool="api", refusal=refusal)])
    api, feeds = await app_inspector.pool("api"), await app_inspector.queue("feeds")
    assert [(closure.reason, closure.text) for closure in api.closures] == [(Reason.FORBIDDEN, "wrong key")]
    assert api.forecast is not None
    assert api.forecast.done_at is None
    assert feeds.forecast == api.forecast


async def test_a_queue_without_pools_is_forecast_by_its_rate(
    app_inspector: Inspector, manual_worker: ManualWorker, app: Tidemill
) -> None:
    @app.task(name="plain", queue="feeds")
    async def plain() -> None: ...

    for _ in range(30):
        await plain.enqueue()
    assert (await app_inspector.queue("feeds")).forecast is None, "nobody knows how fast"
    for _ in range(10):
        [job] = await manual_worker.claim()
        await manual_worker.settle(job, Success())
    forecast = (await app_inspector.queue("feeds")).forecast
    now = (await app_inspector.overview()).now
    assert forecast is not None
    assert forecast.done_at is not None
    assert forecast.jobs == 20
    assert forecast.done_at - now == pytest.approx(1200)


async def test_history_and_unknown_names(
    app_inspector: Inspector, call: Call, manual_worker: ManualWorker, clock: ManualClock
) -> None:
    await call.enqueue("a")
    begun = clock.wall()
    [job] = await manual_worker.claim()
    await manual_worker.settle(job, Success())
    [minute] = await app_inspector.pool_history("api", begun)
    assert (minute.calls, minute.units["tokens"]) == (1, 300.0)
    for request in (
        app_inspector.pool("apo"),
        app_inspector.open_pool("apo"),
        app_inspector.pool_history("apo", begun),
    ):
        with pytest.raises(PoolNotFound, match="there is no pool 'apo'; there are: api, site"):
            await request
