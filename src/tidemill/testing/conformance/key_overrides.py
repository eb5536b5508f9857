"""Conformance tests for the override of one key of a pool (P23)."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tidemill.core.feedback import Observation
from tidemill.core.limits import Limit
from tidemill.core.overrides import Override
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.queues import InsertVerdict
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.fixtures import StoreDriver, ids, need, new_job

MINUTE, AT_ONCE = "requests per minute", "calls at once"
SITE_POOL = PoolSettings(limits=(Limit.requests(2, per="minute"), Limit.concurrent(50)), keyed=True)
PLAIN_POOL = PoolSettings(limits=(Limit.requests(2, per="minute"),))


def per_minute(amount: float) -> LimitChanges:
    return LimitChanges(amounts={MINUTE: amount})


async def add_site_jobs(driver: StoreDriver, *keys: str, of: int = 9) -> None:
    await driver.store.declare_pools({"site": SITE_POOL, "plain": PLAIN_POOL})
    await driver.add(*[new_job(f"{key}{n}", needs=(need("site", key),)) for key in keys for n in range(of)])


async def claimed_keys(driver: StoreDriver) -> str:
    """Claims as many jobs as possible. Returns the keys of the claimed jobs, sorted: `aab`."""
    return "".join(sorted(name[0] for name in ids(await driver.take())))


class TestKeyOverrides:
    async def test_p23_the_override_of_a_key_wins_over_pool_and_declaration(
        self, driver: StoreDriver
    ) -> None:
        await add_site_jobs(driver, "a", "b")
        await driver.store.override_pool("site", per_minute(3), by="ann")
        await driver.store.override_pool("site", per_minute(1), key="a", by="bo")
        assert await claimed_keys(driver) == "abbb"
        await driver.store.override_pool("site", per_minute(4), key="a", by="bo")
        assert await claimed_keys(driver) == "aaa"
        await driver.store.clear_pool_override("site", key="a")
        assert [limit.amount for limit in (await driver.pool("site", "a")).limits] == [3, 50]
        await driver.store.clear_pool_override("site")
        assert [limit.amount for limit in (await driver.pool("site", "a")).limits] == [2, 50]

    async def test_p23_p7_author_reason_and_end_are_shown_for_an_unused_key(
        self, driver: StoreDriver
    ) -> None:
        await driver.store.declare_pools({"site": SITE_POOL})
        now = driver.clock.wall()
        await driver.store.override_pool(
            "site", per_minute(1), key="new", by="ann", reason="slow", until=now + 60
        )
        expected = Override(changes=per_minute(1), by="ann", reason="slow", since=now, until=now + 60)
        view = await driver.pool("site", "new")
        assert (view.override, view.key_override) == (None, expected)
        assert [(limit.amount, limit.declared) for limit in view.limits] == [(1, 2), (50, 50)]
        assert (await driver.pool("site")).key_override is None

    async def test_p23_a_second_override_joins_and_limits_are_removed_by_name(
        self, driver: StoreDriver
    ) -> None:
        await driver.store.declare_pools({"site": SITE_POOL})
        now = driver.clock.wall()
        await driver.store.override_pool("site", per_minute(1), key="a", by="ann", until=now + 60)
        await driver.store.override_pool("site", LimitChanges(amounts={AT_ONCE: 7}), key="a", by="bo")
        joined = LimitChanges(amounts={MINUTE: 1, AT_ONCE: 7})
        expected = Override(changes=joined, by="bo", since=now, until=now + 60)
        assert (await driver.pool("site", "a")).key_override == expected
        await driver.store.clear_pool_override("site", (AT_ONCE,), key="a")
        left = replace(expected, changes=per_minute(1))
        assert (await driver.pool("site", "a")).key_override == left
        await driver.store.clear_pool_override("site", (MINUTE,), key="a")
        assert [view.key for view in await driver.store.pools()] == [None]

    async def test_p23_two_operators_at_once_lose_no_change(self, driver: StoreDriver) -> None:
        """Overrides are joined in one transaction, so simultaneous changes of several limits all stay."""
        await driver.store.declare_pools({"site": SITE_POOL})
        await asyncio.gather(
            driver.store.override_pool("site", per_minute(1), key="a", by="ann"),
            driver.store.override_pool("site", LimitChanges(amounts={AT_ONCE: 7}), key="a", by="bo"),
            driver.store.override_pool("site", per_minute(9), by="eve"),
            driver.store.override_pool("site", per_minute(5), key="b", by="bo"),
        )
        assert [limit.amount for limit in (await driver.pool("site", "a")).limits] == [1, 7]
        assert [limit.amount for limit in (await driver.pool("site", "b")).limits] == [5, 50]
        assert [limit.amount for limit in (await driver.pool("site")).limits] == [9, 50]

    async def test_p23_it_ends_by_itself_and_does_not_return(self, driver: StoreDriver) -> None:
        await add_site_jobs(driver, "a")
        end = driver.clock.wall() + 20
        await driver.store.override_pool("site", per_minute(1), key="a", by="ann", until=end)
        claims = await driver.claim()
        assert len(claims.jobs) == 1
        assert claims.next_due == pytest.approx(20)
        driver.clock.advance(20)
        assert await claimed_keys(driver) == "a"
        driver.clock.step_wall(-3600)
        assert (await driver.pool("site", "a")).key_override is None

    async def test_p23_an_idle_key_with_an_override_is_not_pruned(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"site": SITE_POOL})
        end = driver.clock.wall() + 10_000
        await driver.store.override_pool("site", per_minute(1), key="a", by="ann", until=end)
        driver.clock.advance(5_000)
        await driver.store.prune()
        assert [view.key for view in await driver.store.pools()] == [None, "a"]
        driver.clock.advance(5_100)
        await driver.store.prune()
        await driver.store.prune()
        assert [view.key for view in await driver.store.pools()] == [None]

    async def test_p23_it_survives_declarations_openings_and_reopening(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"site": SITE_POOL})
        await driver.store.override_pool("site", per_minute(1), key="a", by="ann")
        more = PoolSettings(limits=(Limit.requests(9, per="minute"), Limit.concurrent(50)), keyed=True)
        await driver.store.declare_pools({"site": more})
        await driver.store.open_pool("site", key="a")
        await driver.reopen()
        assert (await driver.limit("site", MINUTE, "a")).amount == 1
        assert (await driver.limit("site", MINUTE)).amount == 9

    async def test_p23_what_was_learned_about_its_limits_is_forgotten(self, driver: StoreDriver) -> None:
        await add_site_jobs(driver, "a")
        await driver.store.observe([Observation(pool="site", key="a", amounts={MINUTE: 1})])
        assert await claimed_keys(driver) == "a"
        await driver.store.override_pool("site", per_minute(2), key="a", by="ann")
        assert (await driver.limit("site", MINUTE, "a")).learned is None
        assert await claimed_keys(driver) == "a"

    async def test_p23_p10_a_need_that_only_its_key_admits_is_valid(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"site": SITE_POOL})
        await driver.store.override_pool("site", per_minute(9), key="a", by="ann")
        large = [new_job(key, needs=(need("site", key, requests=5),)) for key in "ab"]
        (answer,), (refused,) = [await driver.add(job) for job in large]
        assert (answer.verdict, refused.verdict) == (InsertVerdict.ACCEPTED, InsertVerdict.INVALID)
        assert ids(await driver.take()) == ["a"]

    async def test_p23_p12_a_job_too_large_for_its_key_waits_alone(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"site": SITE_POOL})
        await driver.store.override_pool("site", per_minute(1), key="a", by="ann")
        await driver.add(
            new_job("large", needs=(need("site", "a", requests=2),)),
            new_job("small", needs=(need("site", "a"),)),
        )
        assert ids(await driver.take()) == ["small"]
        driver.clock.advance(61)
        await driver.store.clear_pool_override("site", key="a")
        assert ids(await driver.take()) == ["large"]

    async def test_p23_an_invalid_override_is_refused_naming_field_and_remedy(
        self, driver: StoreDriver
    ) -> None:
        await driver.store.declare_pools({"site": SITE_POOL, "plain": PLAIN_POOL})
        zero = f"{MINUTE}: must be above 0, is 0.0; close the pool to allow nothing"
        for pool, amount, words in (
            ("plain", 1.0, "key: the pool has no keys; leave 'a' out"),
            ("nobody", 1.0, "nobody declared it; there are: plain, site"),
            ("site", 0.0, zero),
        ):
            with pytest.raises(ConfigurationError) as refused:
                await driver.store.override_pool(pool, per_minute(amount), key="a", by="ann")
            assert str(refused.value) == f"pool {pool!r}: {words}"

    async def test_p23_an_override_that_is_refused_changes_nothing(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"site": SITE_POOL, "plain": PLAIN_POOL})
        changes = LimitChanges(amounts={"tokens per day": 1})
        with pytest.raises(ConfigurationError, match="'tokens per day' is not a limit of the pool"):
            await driver.store.override_pool("site", changes, key="a", by="ann")
        with pytest.raises(ConfigurationError, match="by: must say who does it"):
            await driver.store.override_pool("site", per_minute(1), key="a", by="")
        with pytest.raises(ConfigurationError, match="key: the pool has no keys"):
            await driver.store.clear_pool_override("plain", key="a")
        assert [view.key for view in await driver.store.pools()] == [None, None], "nothing was changed"
