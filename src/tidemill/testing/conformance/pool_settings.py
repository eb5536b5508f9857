"""Conformance tests for pool settings: declarations, overrides, manual closures, views."""

from __future__ import annotations

import pytest

from tidemill.core.calendars import Day
from tidemill.core.feedback import Observation
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.overrides import Override
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.queues import InsertVerdict
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.fixtures import StoreDriver, ids, need, new_job, usage_of_call

REQUESTS_PER_MINUTE = "requests per minute"
REQUEST_AND_TOKEN_POOL = PoolSettings(
    limits=(Limit.requests(2, per="minute"), Limit.tokens(1000, per="minute"))
)
KEYED_POOL = PoolSettings(limits=(Limit.requests(1, per="second"),), keyed=True)


def request_pool(amount: float, *more: Limit) -> PoolSettings:
    return PoolSettings(limits=(Limit.requests(amount, per="minute"), *more))


async def claim_new_jobs(driver: StoreDriver, *, known: int = 0, of: int = 9) -> list[str]:
    """Inserts `of` jobs that each need one request of pool `m`, with the ids `job-N` from N = `known`. Claims
    as many jobs as possible and returns the ids of the claimed jobs."""
    await driver.add(*[new_job(f"job-{known + n}", needs=(need("m"),)) for n in range(of)])
    return ids(await driver.take())


class TestPoolDeclarations:
    async def test_p1_p7_declared_pools_are_shown(self, driver: StoreDriver) -> None:
        assert await driver.store.pools() == []
        await driver.store.declare_pools({"site": KEYED_POOL, "model": REQUEST_AND_TOKEN_POOL})
        model, site = await driver.store.pools()
        assert (model.name, model.key, model.declared, model.override) == (
            "model",
            None,
            REQUEST_AND_TOKEN_POOL,
            None,
        )
        assert (site.name, site.key, site.declared) == ("site", None, KEYED_POOL)
        seen = [(limit.name, limit.amount, limit.declared, limit.used) for limit in model.limits]
        assert seen == [(REQUESTS_PER_MINUTE, 2, 2, 0), ("tokens per minute", 1000, 1000, 0)]
        assert (model.closures, model.closed, model.reservations, model.ramp) == ((), None, 0, None)

    async def test_p1_a_declaration_keeps_usage_override_and_closure(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": request_pool(5)})
        assert len(await claim_new_jobs(driver, of=3)) == 3
        await driver.store.override_pool("m", LimitChanges(amounts={REQUESTS_PER_MINUTE: 4}), by="ann")
        await driver.store.close_pool("m", by="bo", reason="bill")
        await driver.store.declare_pools({"m": request_pool(9)})
        view = await driver.pool("m")
        assert view.override is not None
        assert view.closed is not None
        assert (view.closed.by, view.closed.reason) == ("bo", "bill")
        limit = await driver.limit("m", REQUESTS_PER_MINUTE)
        assert (limit.amount, limit.declared, limit.used) == (4, 9, 3)

    async def test_p1_a_changed_amount_holds_at_once_and_keeps_what_was_used(
        self, driver: StoreDriver
    ) -> None:
        await driver.store.declare_pools({"m": request_pool(2)})
        assert len(await claim_new_jobs(driver)) == 2
        await driver.store.declare_pools({"m": request_pool(5)})
        assert len(await driver.take()) == 3
        await driver.store.declare_pools({"m": request_pool(4)})
        assert await driver.take() == []
        assert await driver.used("m", REQUESTS_PER_MINUTE) == 5

    async def test_p1_p2_a_new_amount_drops_the_learned_limit(self, driver: StoreDriver) -> None:
        """A new declared or overridden amount removes the learned limit. Otherwise a learned limit that is
        too low could stay forever."""
        await driver.store.declare_pools({"m": request_pool(10)})
        await driver.store.observe([Observation(pool="m", amounts={REQUESTS_PER_MINUTE: 2})])
        assert len(await claim_new_jobs(driver, of=50)) == 2
        await driver.store.declare_pools({"m": request_pool(20)})
        assert (await driver.limit("m", REQUESTS_PER_MINUTE)).learned is None
        assert len(await driver.take()) == 18
        await driver.store.observe([Observation(pool="m", amounts={REQUESTS_PER_MINUTE: 5})])
        await driver.store.override_pool("m", LimitChanges(amounts={REQUESTS_PER_MINUTE: 30}), by="ann")
        assert len(await driver.take()) == 10

    @pytest.mark.parametrize("keyed", [True, False])
    async def test_p1_i14_a_pool_stays_keyed_or_unkeyed(self, driver: StoreDriver, *, keyed: bool) -> None:
        """The store refuses to declare a keyed pool as not keyed, or the reverse. Otherwise jobs with and
        without a key could use the limit twice."""
        kinds = {kind: PoolSettings(limits=request_pool(2).limits, keyed=kind) for kind in (True, False)}
        await driver.store.declare_pools({"m": kinds[keyed]})
        key = "a" if keyed else None
        await driver.add(*[new_job(f"{n}", needs=(need("m", key),)) for n in range(5)])
        await driver.take(limit=1)
        with pytest.raises(ConfigurationError, match=r"pool 'm': keyed: .* give the new pool another name"):
            await driver.store.declare_pools({"n": request_pool(9), "m": kinds[not keyed]})
        assert [(view.name, view.declared.keyed) for view in await driver.store.pools() if not view.key] == [
            ("m", keyed)
        ], "nothing was changed"
        assert len(await driver.take()) == 1

    async def test_p1_p5_every_store_gives_the_same_error(self, driver: StoreDriver) -> None:
        """Every store raises the same message, which names the field, the problem and the remedy."""
        await driver.store.declare_pools({"site": KEYED_POOL, "model": REQUEST_AND_TOKEN_POOL})
        messages = {
            ("nobody", None): "pool 'nobody': nobody declared it; there are: model, site",
            ("site", None): "pool 'site': key: the pool has keys; say which one is meant",
            ("model", "k"): "pool 'model': key: the pool has no keys; leave 'k' out",
        }
        for (pool, key), words in messages.items():
            with pytest.raises(ConfigurationError) as refused:
                await driver.store.close_pool(pool, key=key, by="ann")
            assert str(refused.value) == words
        with pytest.raises(ConfigurationError, match="name: must not hold the character U"):
            await driver.store.declare_pools({"a\x1fb": REQUEST_AND_TOKEN_POOL})

    async def test_p1_a_new_limit_starts_unused(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": request_pool(9)})
        assert len(await claim_new_jobs(driver, of=3)) == 3
        await driver.store.declare_pools({"m": request_pool(9, Limit.concurrent(2))})
        assert await driver.used("m", "calls at once") == 0
        assert len(await claim_new_jobs(driver, known=3)) == 2

    async def test_p1_a_limit_that_comes_back_starts_unused(self, driver: StoreDriver) -> None:
        """A limit that was removed and added again starts with no used units. The end of a call that began
        before the removal does not free units of newer calls."""
        at_once = PoolSettings(limits=(Limit.concurrent(2),))
        await driver.store.declare_pools({"m": at_once})
        await driver.add(*[new_job(f"job-{n}", needs=(need("m"),)) for n in range(6)])
        old = await driver.take()
        await driver.store.declare_pools({"m": request_pool(99)})
        await driver.store.declare_pools({"m": at_once})
        assert len(await driver.take()) == 2
        for job in old:
            await driver.settle(job)
        assert await driver.used("m", "calls at once") == 2
        assert await driver.take() == []

    async def test_p1_i14_a_limit_taken_out_and_back_during_a_call_starts_unused(
        self, driver: StoreDriver
    ) -> None:
        """A limit that is removed and added again during a call starts with no used units. The units that the
        call reserved of this limit are free again."""
        held = PoolSettings(
            limits=(Limit.requests(10, per="minute"), Limit.tokens(1000, per="minute", charge="completed"))
        )
        await driver.store.declare_pools({"m": held})
        await driver.add(new_job("a", needs=(need("m", tokens=600),)))
        job = await driver.take_one()
        assert await driver.used("m", "tokens per minute") == 600
        await driver.store.declare_pools({"m": PoolSettings(limits=held.limits[:1])})
        await driver.store.declare_pools({"m": held})
        assert await driver.used("m", "tokens per minute") == 0
        await driver.settle(job)
        await driver.add(new_job("b", needs=(need("m", tokens=1000),)))
        assert ids(await driver.take()) == ["b"]

    async def test_p1_an_invalid_declaration_changes_nothing(self, driver: StoreDriver) -> None:
        twice = PoolSettings(limits=(Limit.concurrent(1), Limit.concurrent(2)))
        for name, settings in (
            ("m", PoolSettings(limits=())),
            ("m", twice),
            ("", REQUEST_AND_TOKEN_POOL),
            ("a\x1fb", REQUEST_AND_TOKEN_POOL),
        ):
            with pytest.raises(ConfigurationError):
                await driver.store.declare_pools({"good": REQUEST_AND_TOKEN_POOL, name: settings})
        assert await driver.store.pools() == []

    async def test_p10_unknown_pools_are_refused_naming_them(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": REQUEST_AND_TOKEN_POOL, "site": KEYED_POOL})
        bad = {
            "nobody": need("nobody"),
            "'site' has keys": need("site"),
            "'m' has no keys": need("m", "k", tokens=1),
        }
        for word, unknown_need in bad.items():
            first, second = await driver.add("good", new_job("bad", needs=(unknown_need,)))
            assert (first.verdict, second.verdict) == (InsertVerdict.INVALID, InsertVerdict.INVALID)
            assert word in (first.problem or "")
        assert await driver.store.counts() == {}

    @pytest.mark.parametrize("units", [{}, {"tokens": 1001}, {"tokens": -1}, {"tokens": 1, "requests": 3}])
    async def test_p10_a_cost_that_can_never_be_met_is_refused_naming_pool_and_unit(
        self, driver: StoreDriver, units: dict[str, float]
    ) -> None:
        await driver.store.declare_pools({"model": REQUEST_AND_TOKEN_POOL})
        (answer,) = await driver.add(new_job("a", needs=(Need("model", None, units),)))
        assert answer.verdict is InsertVerdict.INVALID
        assert "'model'" in (answer.problem or "")
        assert ("requests" if "requests" in units else "tokens") in (answer.problem or "")

    async def test_p10_a_pool_named_twice_is_refused(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": request_pool(9)})
        (answer,) = await driver.add(new_job("a", needs=(need("m"), need("m", requests=2))))
        assert answer.verdict is InsertVerdict.INVALID

    async def test_p10_an_override_may_allow_more_and_does_not_refuse(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": request_pool(3)})
        await driver.store.override_pool("m", LimitChanges(amounts={REQUESTS_PER_MINUTE: 9}), by="ann")
        (answer,) = await driver.add(new_job("a", needs=(need("m", requests=8),)))
        assert answer.verdict is InsertVerdict.ACCEPTED
        await driver.store.override_pool("m", LimitChanges(amounts={REQUESTS_PER_MINUTE: 1}), by="ann")
        (answer,) = await driver.add(new_job("b", needs=(need("m", requests=2),)))
        assert answer.verdict is InsertVerdict.ACCEPTED

    async def test_p10_j11_a_repeated_id_is_answered_as_before(self, driver: StoreDriver) -> None:
        """A repeated insert with a known job id is accepted again, even if the pool's limit is now too low
        for the job. The lower limit refuses only new ids."""
        await driver.store.declare_pools({"m": request_pool(3)})
        job = new_job("a", needs=(need("m", requests=2),))
        await driver.add(job)
        await driver.store.declare_pools({"m": request_pool(1)})
        repeated, other = await driver.add(job, new_job("b", needs=(need("m", requests=2),)))
        assert (repeated.verdict, other.verdict) == (InsertVerdict.ACCEPTED, InsertVerdict.INVALID)


class TestPoolOverrides:
    async def test_p2_author_reason_and_time_are_stored(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": REQUEST_AND_TOKEN_POOL})
        now, changes = driver.clock.wall(), LimitChanges(amounts={REQUESTS_PER_MINUTE: 1})
        await driver.store.override_pool("m", changes, by="ann", reason="slow", until=now + 60)
        expected = Override(changes=changes, by="ann", reason="slow", since=now, until=now + 60)
        assert (await driver.pool("m")).override == expected

    async def test_p2_a_second_override_joins_the_first(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": REQUEST_AND_TOKEN_POOL})
        end = driver.clock.wall() + 60
        await driver.store.override_pool(
            "m", LimitChanges(amounts={REQUESTS_PER_MINUTE: 1}), by="ann", reason="slow", until=end
        )
        driver.clock.advance(5.0)
        await driver.store.override_pool("m", LimitChanges(amounts={"tokens per minute": 5}), by="bo")
        view = await driver.pool("m")
        assert [limit.amount for limit in view.limits] == [1, 5]
        joined = LimitChanges(amounts={REQUESTS_PER_MINUTE: 1, "tokens per minute": 5})
        assert view.override == Override(changes=joined, by="bo", since=driver.clock.wall(), until=end)
        await driver.store.override_pool("m", joined, by="bo", until=None)
        assert (await driver.pool("m")).override == Override(
            changes=joined, by="bo", since=driver.clock.wall()
        )

    async def test_p2_an_ended_override_is_not_joined(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": REQUEST_AND_TOKEN_POOL})
        changes, end = LimitChanges(amounts={REQUESTS_PER_MINUTE: 1}), driver.clock.wall() + 20
        await driver.store.override_pool("m", changes, by="ann", until=end)
        driver.clock.advance(20.0)
        changes = LimitChanges(amounts={"tokens per minute": 5})
        await driver.store.override_pool("m", changes, by="bo")
        found = (await driver.pool("m")).override
        assert found == Override(changes=changes, by="bo", since=driver.clock.wall())

    async def test_p22_overrides_are_removed_by_name(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": REQUEST_AND_TOKEN_POOL})
        now = driver.clock.wall()
        changes = LimitChanges(amounts={REQUESTS_PER_MINUTE: 1, "tokens per minute": 5})
        await driver.store.override_pool("m", changes, by="ann", reason="slow", until=now + 60)
        driver.clock.advance(5.0)
        await driver.store.clear_pool_override("m", (REQUESTS_PER_MINUTE,))
        left = LimitChanges(amounts={"tokens per minute": 5})
        expected = Override(changes=left, by="ann", reason="slow", since=now, until=now + 60)
        assert (await driver.pool("m")).override == expected
        await driver.store.clear_pool_override("m", ("tokens per minute",))
        assert (await driver.pool("m")).override is None
        await driver.store.clear_pool_override("m")
        with pytest.raises(ConfigurationError):
            await driver.store.clear_pool_override("nobody")

    async def test_p2_p22_an_override_applies_from_the_next_claim_until_its_end(
        self, driver: StoreDriver
    ) -> None:
        await driver.store.declare_pools({"m": request_pool(5)})
        await driver.store.override_pool("m", LimitChanges(amounts={REQUESTS_PER_MINUTE: 1}), by="ann")
        assert len(await claim_new_jobs(driver)) == 1
        await driver.store.override_pool("m", LimitChanges(amounts={REQUESTS_PER_MINUTE: 3}), by="ann")
        assert len(await driver.take()) == 2
        await driver.store.clear_pool_override("m")
        assert len(await driver.take()) == 2
        assert (await driver.pool("m")).override is None

    async def test_p2_an_override_ends_by_itself(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": request_pool(5)})
        changes, end = LimitChanges(amounts={REQUESTS_PER_MINUTE: 1}), driver.clock.wall() + 20
        await driver.store.override_pool("m", changes, by="ann", until=end)
        await driver.add(*[new_job(f"job-{n}", needs=(need("m"),)) for n in range(9)])
        claims = await driver.claim()
        assert len(claims.jobs) == 1
        assert claims.next_due == pytest.approx(20)
        driver.clock.advance(20)
        assert len(await driver.take()) == 4
        assert (await driver.pool("m")).override is None

    async def test_p2_keys_are_pruned_after_it_has_ended(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"site": KEYED_POOL})
        await driver.add(new_job("a", needs=(need("site", "x"),)))
        await driver.settle(await driver.take_one())
        changes, end = LimitChanges(amounts={"requests per second": 5}), driver.clock.wall() + 20
        await driver.store.override_pool("site", changes, by="ann", until=end)
        driver.clock.advance(120)
        await driver.store.prune()
        assert [view.key for view in await driver.store.pools() if view.name == "site"] == [None]

    async def test_p2_an_invalid_override_is_refused(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": REQUEST_AND_TOKEN_POOL})
        good = LimitChanges(amounts={REQUESTS_PER_MINUTE: 1})
        for pool, changes, by in (
            ("nobody", good, "ann"),
            ("m", good, ""),
            ("m", LimitChanges(amounts={"pages per hour": 1}), "ann"),
            ("m", LimitChanges(amounts={REQUESTS_PER_MINUTE: 0}), "ann"),
        ):
            with pytest.raises(ConfigurationError):
                await driver.store.override_pool(pool, changes, by=by)
        with pytest.raises(ConfigurationError):
            await driver.store.override_pool("m", good, by="ann", until=float("inf"))
        assert (await driver.pool("m")).override is None


class TestManualClosure:
    async def test_p5_p6_nothing_starts_until_it_is_opened(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": request_pool(5)})
        await driver.add(new_job("a", needs=(need("m"),)), "b")
        now = driver.clock.wall()
        await driver.store.close_pool("m", by="ann", reason="bill")
        assert ids(await driver.take()) == ["b"]
        closed = (await driver.pool("m")).closed
        assert closed is not None
        assert (closed.by, closed.reason, closed.since, closed.until) == ("ann", "bill", now, None)
        driver.clock.advance(100_000)
        assert await driver.take() == []
        await driver.store.open_pool("m")
        assert ids(await driver.take()) == ["a"]
        assert (await driver.pool("m")).closed is None

    async def test_p5_a_manual_closure_ends_at_its_time(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": request_pool(5)})
        await driver.add(new_job("a", needs=(need("m"),)))
        await driver.store.close_pool("m", by="ann", until=driver.clock.wall() + 30)
        claims = await driver.claim()
        assert claims.jobs == []
        assert claims.next_due == pytest.approx(30)
        assert not claims.more
        driver.clock.advance(30)
        assert ids(await driver.take()) == ["a"]

    async def test_p5_one_key_can_be_closed(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"site": KEYED_POOL})
        await driver.store.close_pool("site", key="k", by="ann")
        await driver.add(new_job("a", needs=(need("site", "k"),)), new_job("b", needs=(need("site", "l"),)))
        assert ids(await driver.take()) == ["b"]
        assert (await driver.pool("site", "k")).closed is not None
        await driver.store.open_pool("site", key="k")
        assert ids(await driver.take()) == ["a"]

    async def test_p5_p6_an_invalid_closure_is_refused(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": REQUEST_AND_TOKEN_POOL, "site": KEYED_POOL})
        for pool, key, by in (
            ("m", "k", "ann"),
            ("site", None, "ann"),
            ("m", None, ""),
        ):
            with pytest.raises(ConfigurationError):
                await driver.store.close_pool(pool, key=key, by=by)
            if by:
                with pytest.raises(ConfigurationError):
                    await driver.store.open_pool(pool, key=key)
        assert (await driver.pool("m")).closed is None


class TestPoolViews:
    async def test_p7_used_and_free_again(self, driver: StoreDriver) -> None:
        day = Limit.requests(100, per=Day())
        await driver.store.declare_pools({"m": request_pool(10, day, Limit.concurrent(4))})
        assert len(await claim_new_jobs(driver, of=3)) == 3
        minute, per_day, at_once = (await driver.pool("m")).limits
        assert (minute.used, per_day.used, at_once.used) == (3, 3, 3)
        assert minute.free_in == pytest.approx(60.5, abs=0.5)
        assert per_day.free_in == pytest.approx(6400 + 5)
        assert at_once.free_in is None
        assert (await driver.pool("m")).reservations == 3
        driver.clock.advance(61)
        minute, per_day, _ = (await driver.pool("m")).limits
        assert (minute.used, per_day.used, minute.free_in) == (0, 3, 0)

    async def test_p7_keys_with_something_taken_or_closed(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"site": KEYED_POOL})
        await driver.add(*[new_job(key, needs=(need("site", key),)) for key in "ab"])
        taken = await driver.take()
        await driver.store.close_pool("site", key="c", by="ann")
        assert [view.key for view in await driver.store.pools()] == [None, "a", "b", "c"]
        for job in taken:
            await driver.settle(job, spent=usage_of_call("site", job.id, requests=1))
        driver.clock.advance(2)
        assert [view.key for view in await driver.store.pools()] == [None, "c"]
        await driver.store.prune()
        await driver.store.open_pool("site", key="c")
        assert [view.key for view in await driver.store.pools()] == [None]
