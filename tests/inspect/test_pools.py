"""Looking at pools and steering them, on both stores."""

from __future__ import annotations

import pytest

from tests.inspect.support import Hand
from tidemill import ConfigurationError, Inspector, Limit, PoolNotFound, Task, Tidemill
from tidemill.core.outcomes import Done
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.spending import Observation
from tidemill.testing import ManualClock

Call = Task[[str], None]


@pytest.fixture
def call(app: Tidemill) -> Call:
    pool = app.pool("api", Limit.requests(2, per="minute"), Limit.tokens(1_000, per="minute"))
    site = app.pool("site", Limit.requests(1, per="minute"), keyed=True)

    @app.task(name="call", queue="feeds", pool=[pool, site.by(lambda host: host)], cost={"tokens": 300})
    async def call(host: str) -> None: ...

    return call


async def test_what_is_used_and_who_waits(look: Inspector, call: Call, hand: Hand) -> None:
    for host in "aab":
        await call.enqueue(host)
    taken = await hand.claim(3)
    assert len(taken) == 2, "one of each host"
    api = await look.pool("api")
    assert [(limit.name, limit.used, limit.amount) for limit in api.limits] == [
        ("requests per minute", 2.0, 2),
        ("tokens per minute", 600.0, 1_000),
    ]
    assert api.limits[0].free_in == pytest.approx(60.5, abs=0.5)
    assert (api.reservations, api.waiting, api.is_open) == (2, 1, True)
    assert api.forecast is not None
    assert api.forecast.jobs == 1
    assert api.forecast.done_at is not None
    names = [(pool.name, pool.key) for pool in await look.pools()]
    assert names == [("api", None), ("site", None), ("site", "a"), ("site", "b")]
    assert [(await look.pool("site", key=key)).waiting for key in ("a", "b", "new")] == [1, 0, 0]
    assert (await look.pool("site")).waiting == 1, "of all its keys"


async def test_an_override_joins_ends_and_is_taken_away(
    look: Inspector, call: Call, clock: ManualClock
) -> None:
    await call.enqueue("a")
    until = clock.wall() + 100
    await look.override_pool("api", {"requests per minute": 1}, by="ann", reason="trial", until=until)
    both = await look.override_pool("api", {"tokens per minute": 500}, by="bob")
    assert both.override is not None
    assert (both.override.by, both.override.until) == ("bob", until)
    assert [(limit.amount, limit.declared) for limit in both.limits] == [(1, 2), (500, 1_000)]
    left = await look.clear_pool_override("api", "requests per minute")
    assert [limit.amount for limit in left.limits] == [2, 500]
    clock.advance(101)
    assert (await look.pool("api")).override is None
    with pytest.raises(ConfigurationError, match="'requests per day' is not a limit of pool 'api'"):
        await look.clear_pool_override("api", "requests per day")
    with pytest.raises(ConfigurationError, match="name at least one limit"):
        await look.override_pool("api", {}, by="ann")
    with pytest.raises(ConfigurationError, match="until: must be in the future"):
        await look.override_pool("api", {"requests per minute": 1}, by="ann", until=1.0)


async def test_i15_only_a_person_or_its_time_opens_what_a_person_closed(
    look: Inspector, call: Call, hand: Hand, clock: ManualClock
) -> None:
    await call.enqueue("a")
    await look.close_pool("api", by="ann", until=clock.wall() + 60, reason="the bill")
    api = await look.pool("api")
    assert api.closed is not None
    assert (api.closed.by, api.closed.reason, api.is_open) == ("ann", "the bill", False)
    assert await hand.claim() == []
    clock.advance(61)
    assert len(await hand.claim()) == 1
    await look.close_pool("site", key="a", by="ann")
    await look.open_pool("site", key="a")
    assert (await look.pool("site", key="a")).is_open


async def test_a_backlog_behind_a_closed_pool_is_never_drained(
    look: Inspector, call: Call, app: Tidemill
) -> None:
    await call.enqueue("a")
    refusal = Refusal(reason=Reason.FORBIDDEN, text="wrong key")
    await app.store.observe([Observation(pool="api", refusal=refusal)])
    api, feeds = await look.pool("api"), await look.queue("feeds")
    assert [(closure.reason, closure.text) for closure in api.closures] == [(Reason.FORBIDDEN, "wrong key")]
    assert api.forecast is not None
    assert api.forecast.done_at is None
    assert feeds.forecast == api.forecast


async def test_a_queue_without_pools_goes_on_at_its_rate(look: Inspector, hand: Hand, app: Tidemill) -> None:
    @app.task(name="plain", queue="feeds")
    async def plain() -> None: ...

    for _ in range(30):
        await plain.enqueue()
    assert (await look.queue("feeds")).forecast is None, "nobody knows how fast"
    for _ in range(10):
        [job] = await hand.claim()
        await hand.settle(job, Done())
    forecast = (await look.queue("feeds")).forecast
    now = (await look.overview()).now
    assert forecast is not None
    assert forecast.done_at is not None
    assert forecast.jobs == 20
    assert forecast.done_at - now == pytest.approx(1200)


async def test_history_and_names_nobody_has(
    look: Inspector, call: Call, hand: Hand, clock: ManualClock
) -> None:
    await call.enqueue("a")
    begun = clock.wall()
    [job] = await hand.claim()
    await hand.settle(job, Done())
    [minute] = await look.pool_history("api", begun)
    assert (minute.calls, minute.units["tokens"]) == (1, 300.0)
    for asked in (look.pool("apo"), look.open_pool("apo"), look.pool_history("apo", begun)):
        with pytest.raises(PoolNotFound, match="there is no pool 'apo'; there are: api, site"):
            await asked
