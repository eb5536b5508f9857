"""Pools are declared, overridden and looked at."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import pytest

from tidemill.core.calendars import Day
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import PoolChanges, PoolOverride, PoolSettings
from tidemill.core.queues import Verdict
from tidemill.core.spending import Observation
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.driver import Driver, ids, need, new, using

PER_MINUTE = "requests per minute"
MODEL = PoolSettings(limits=(Limit.requests(2, per="minute"), Limit.tokens(1000, per="minute")))
SITE = PoolSettings(limits=(Limit.requests(1, per="second"),), keyed=True)


def requests(amount: float, *more: Limit) -> PoolSettings:
    return PoolSettings(limits=(Limit.requests(amount, per="minute"), *more))


async def take_all(drive: Driver, *, known: int = 0, of: int = 9) -> list[str]:
    """As many as the pool `m` lets of new jobs that need nothing but a request."""
    await drive.add(*[new(f"job-{known + n}", needs=(need("m"),)) for n in range(of)])
    return ids(await drive.take())


class TestDeclaredPools:
    async def test_p1_p7_what_is_declared_is_shown(self, drive: Driver) -> None:
        assert await drive.store.pools() == []
        await drive.store.declare_pools({"site": SITE, "model": MODEL})
        model, site = await drive.store.pools()
        assert (model.name, model.key, model.declared, model.override) == ("model", None, MODEL, None)
        assert (site.name, site.key, site.declared) == ("site", None, SITE)
        seen = [(limit.name, limit.amount, limit.declared, limit.used) for limit in model.limits]
        assert seen == [(PER_MINUTE, 2, 2, 0), ("tokens per minute", 1000, 1000, 0)]
        assert (model.closures, model.closed, model.reservations, model.ramp) == ((), None, 0, None)

    async def test_p1_what_was_used_override_and_closure_stay(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": requests(5)})
        assert len(await take_all(drive, of=3)) == 3
        await drive.store.override_pool("m", PoolChanges(amounts={PER_MINUTE: 4}), by="ann")
        await drive.store.close_pool("m", by="bo", reason="bill")
        await drive.store.declare_pools({"m": requests(9)})
        view = await drive.pool("m")
        assert view.override is not None
        assert view.closed is not None
        assert (view.closed.by, view.closed.reason) == ("bo", "bill")
        limit = await drive.limit("m", PER_MINUTE)
        assert (limit.amount, limit.declared, limit.used) == (4, 9, 3)

    async def test_p1_a_changed_amount_holds_at_once_and_keeps_what_was_used(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": requests(2)})
        assert len(await take_all(drive)) == 2
        await drive.store.declare_pools({"m": requests(5)})
        assert len(await drive.take()) == 3
        await drive.store.declare_pools({"m": requests(4)})
        assert await drive.take() == []
        assert await drive.used("m", PER_MINUTE) == 5

    async def test_p1_p2_what_was_learned_is_forgotten_when_people_set_another_amount(
        self, drive: Driver
    ) -> None:
        """Some providers state what they allow only when they refuse: after an upgrade, never again."""
        await drive.store.declare_pools({"m": requests(10)})
        await drive.store.observe([Observation(pool="m", amounts={PER_MINUTE: 2})])
        assert len(await take_all(drive, of=50)) == 2
        await drive.store.declare_pools({"m": requests(20)})
        assert (await drive.limit("m", PER_MINUTE)).learned is None
        assert len(await drive.take()) == 18
        await drive.store.observe([Observation(pool="m", amounts={PER_MINUTE: 5})])
        await drive.store.override_pool("m", PoolChanges(amounts={PER_MINUTE: 30}), by="ann")
        assert len(await drive.take()) == 10

    @pytest.mark.parametrize("keyed", [True, False])
    async def test_p1_i14_keys_are_for_good(self, drive: Driver, *, keyed: bool) -> None:
        """What was used and the jobs that wait are of one kind: beside another, both would be let through."""
        kinds = {kind: PoolSettings(limits=requests(2).limits, keyed=kind) for kind in (True, False)}
        await drive.store.declare_pools({"m": kinds[keyed]})
        key = "a" if keyed else None
        await drive.add(*[new(f"{n}", needs=(need("m", key),)) for n in range(5)])
        await drive.take(limit=1)
        with pytest.raises(ConfigurationError, match=r"pool 'm': keyed: .* give the new pool another name"):
            await drive.store.declare_pools({"n": requests(9), "m": kinds[not keyed]})
        assert [(view.name, view.declared.keyed) for view in await drive.store.pools() if not view.key] == [
            ("m", keyed)
        ], "nothing was changed"
        assert len(await drive.take()) == 1

    async def test_p1_p5_every_store_says_the_same_of_what_cannot_be(self, drive: Driver) -> None:
        """In one sentence: the field, the problem and the remedy."""
        await drive.store.declare_pools({"site": SITE, "model": MODEL})
        told = {
            ("nobody", None): "pool 'nobody': nobody declared it; there are: model, site",
            ("site", None): "pool 'site': it has keys; say which one is meant",
            ("model", "k"): "pool 'model': it has no keys; leave 'k' out",
        }
        for (pool, key), words in told.items():
            with pytest.raises(ConfigurationError) as refused:
                await drive.store.close_pool(pool, key=key, by="ann")
            assert str(refused.value) == words
        with pytest.raises(ConfigurationError, match="name: must not hold the character U"):
            await drive.store.declare_pools({"a\x1fb": MODEL})

    async def test_p1_a_new_limit_starts_unused(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": requests(9)})
        assert len(await take_all(drive, of=3)) == 3
        await drive.store.declare_pools({"m": requests(9, Limit.concurrent(2))})
        assert await drive.used("m", "calls at once") == 0
        assert len(await take_all(drive, known=3)) == 2

    async def test_p1_a_limit_that_comes_back_starts_unused(self, drive: Driver) -> None:
        """A call that ends after its limit was gone for a while frees nobody else's place."""
        at_once = PoolSettings(limits=(Limit.concurrent(2),))
        await drive.store.declare_pools({"m": at_once})
        await drive.add(*[new(f"job-{n}", needs=(need("m"),)) for n in range(6)])
        old = await drive.take()
        await drive.store.declare_pools({"m": requests(99)})
        await drive.store.declare_pools({"m": at_once})
        assert len(await drive.take()) == 2
        for job in old:
            await drive.settle(job)
        assert await drive.used("m", "calls at once") == 2
        assert await drive.take() == []

    async def test_p1_i14_a_limit_taken_out_and_back_during_a_call_starts_unused(self, drive: Driver) -> None:
        """The pool releases the units that the call holds of this limit."""
        held = PoolSettings(
            limits=(Limit.requests(10, per="minute"), Limit.tokens(1000, per="minute", charge="completed"))
        )
        await drive.store.declare_pools({"m": held})
        await drive.add(new("a", needs=(need("m", tokens=600),)))
        job = await drive.take_one()
        assert await drive.used("m", "tokens per minute") == 600
        await drive.store.declare_pools({"m": PoolSettings(limits=held.limits[:1])})
        await drive.store.declare_pools({"m": held})
        assert await drive.used("m", "tokens per minute") == 0
        await drive.settle(job)
        await drive.add(new("b", needs=(need("m", tokens=1000),)))
        assert ids(await drive.take()) == ["b"]

    async def test_p1_what_cannot_work_is_refused_and_nothing_changes(self, drive: Driver) -> None:
        twice = PoolSettings(limits=(Limit.concurrent(1), Limit.concurrent(2)))
        for name, settings in (("m", PoolSettings(limits=())), ("m", twice), ("", MODEL), ("a\x1fb", MODEL)):
            with pytest.raises(ConfigurationError):
                await drive.store.declare_pools({"good": MODEL, name: settings})
        assert await drive.store.pools() == []

    async def test_p10_unknown_pools_are_refused_naming_them(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": MODEL, "site": SITE})
        bad = {
            "nobody": need("nobody"),
            "'site' has keys": need("site"),
            "'m' has no keys": need("m", "k", tokens=1),
        }
        for word, wanted in bad.items():
            first, second = await drive.add("good", new("bad", needs=(wanted,)))
            assert (first.verdict, second.verdict) == (Verdict.INVALID, Verdict.INVALID)
            assert word in (first.problem or "")
        assert await drive.store.counts() == {}

    @pytest.mark.parametrize("units", [{}, {"tokens": 1001}, {"tokens": -1}, {"tokens": 1, "requests": 3}])
    async def test_p10_a_cost_that_can_never_be_met_is_refused_naming_pool_and_unit(
        self, drive: Driver, units: dict[str, float]
    ) -> None:
        await drive.store.declare_pools({"model": MODEL})
        (answer,) = await drive.add(new("a", needs=(Need("model", None, units),)))
        assert answer.verdict is Verdict.INVALID
        assert "'model'" in (answer.problem or "")
        assert ("requests" if "requests" in units else "tokens") in (answer.problem or "")

    async def test_p10_a_pool_named_twice_is_refused(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": requests(9)})
        (answer,) = await drive.add(new("a", needs=(need("m"), need("m", requests=2))))
        assert answer.verdict is Verdict.INVALID

    async def test_p10_an_override_may_allow_more_and_does_not_refuse(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": requests(3)})
        await drive.store.override_pool("m", PoolChanges(amounts={PER_MINUTE: 9}), by="ann")
        (answer,) = await drive.add(new("a", needs=(need("m", requests=8),)))
        assert answer.verdict is Verdict.ACCEPTED
        await drive.store.override_pool("m", PoolChanges(amounts={PER_MINUTE: 1}), by="ann")
        (answer,) = await drive.add(new("b", needs=(need("m", requests=2),)))
        assert answer.verdict is Verdict.ACCEPTED

    async def test_p10_j11_a_repeated_id_is_answered_as_before(self, drive: Driver) -> None:
        """The pool has changed since, the job is there all the same."""
        await drive.store.declare_pools({"m": requests(3)})
        job = new("a", needs=(need("m", requests=2),))
        await drive.add(job)
        await drive.store.declare_pools({"m": requests(1)})
        again, other = await drive.add(job, new("b", needs=(need("m", requests=2),)))
        assert (again.verdict, other.verdict) == (Verdict.ACCEPTED, Verdict.INVALID)


class TestPoolOverrides:
    async def test_p2_who_why_and_when_are_kept(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": MODEL})
        now, changes = drive.clock.wall(), PoolChanges(amounts={PER_MINUTE: 1})
        await drive.store.override_pool("m", changes, by="ann", reason="slow", until=now + 60)
        expected = PoolOverride(changes=changes, by="ann", reason="slow", since=now, until=now + 60)
        assert (await drive.pool("m")).override == expected

    async def test_p2_the_second_takes_the_place_of_the_first(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": MODEL})
        await drive.store.override_pool("m", PoolChanges(amounts={PER_MINUTE: 1}), by="ann")
        await drive.store.override_pool("m", PoolChanges(amounts={"tokens per minute": 5}), by="bo")
        limits = (await drive.pool("m")).limits
        assert [limit.amount for limit in limits] == [2, 5]

    async def test_p2_it_holds_with_the_next_claim_until_it_is_ended(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": requests(5)})
        await drive.store.override_pool("m", PoolChanges(amounts={PER_MINUTE: 1}), by="ann")
        assert len(await take_all(drive)) == 1
        await drive.store.override_pool("m", PoolChanges(amounts={PER_MINUTE: 3}), by="ann")
        assert len(await drive.take()) == 2
        await drive.store.override_pool("m", None, by="ann")
        assert len(await drive.take()) == 2
        assert (await drive.pool("m")).override is None

    async def test_p2_it_ends_by_itself(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": requests(5)})
        changes, end = PoolChanges(amounts={PER_MINUTE: 1}), drive.clock.wall() + 20
        await drive.store.override_pool("m", changes, by="ann", until=end)
        await drive.add(*[new(f"job-{n}", needs=(need("m"),)) for n in range(9)])
        claims = await drive.claim()
        assert len(claims.jobs) == 1
        assert claims.next_due == pytest.approx(20)
        drive.clock.advance(20)
        assert len(await drive.take()) == 4
        assert (await drive.pool("m")).override is None

    async def test_p2_keys_are_pruned_after_it_has_ended(self, drive: Driver) -> None:
        await drive.store.declare_pools({"site": SITE})
        await drive.add(new("a", needs=(need("site", "x"),)))
        await drive.settle(await drive.take_one())
        changes, end = PoolChanges(amounts={"requests per second": 5}), drive.clock.wall() + 20
        await drive.store.override_pool("site", changes, by="ann", until=end)
        drive.clock.advance(120)
        await drive.store.prune()
        assert [view.key for view in await drive.store.pools() if view.name == "site"] == [None]

    async def test_p2_what_cannot_hold_is_refused(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": MODEL})
        good = PoolChanges(amounts={PER_MINUTE: 1})
        for pool, changes, by in (
            ("nobody", good, "ann"),
            ("nobody", None, "ann"),
            ("m", good, ""),
            ("m", PoolChanges(amounts={"pages per hour": 1}), "ann"),
            ("m", PoolChanges(amounts={PER_MINUTE: 0}), "ann"),
        ):
            with pytest.raises(ConfigurationError):
                await drive.store.override_pool(pool, changes, by=by)
        with pytest.raises(ConfigurationError):
            await drive.store.override_pool("m", good, by="ann", until=float("inf"))
        assert (await drive.pool("m")).override is None


class TestClosedByHand:
    async def test_p5_p6_nothing_starts_until_it_is_opened(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": requests(5)})
        await drive.add(new("a", needs=(need("m"),)), "b")
        now = drive.clock.wall()
        await drive.store.close_pool("m", by="ann", reason="bill")
        assert ids(await drive.take()) == ["b"]
        closed = (await drive.pool("m")).closed
        assert closed is not None
        assert (closed.by, closed.reason, closed.since, closed.until) == ("ann", "bill", now, None)
        drive.clock.advance(100_000)
        assert await drive.take() == []
        await drive.store.open_pool("m")
        assert ids(await drive.take()) == ["a"]
        assert (await drive.pool("m")).closed is None

    async def test_p5_its_time_ends_it(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": requests(5)})
        await drive.add(new("a", needs=(need("m"),)))
        await drive.store.close_pool("m", by="ann", until=drive.clock.wall() + 30)
        claims = await drive.claim()
        assert claims.jobs == []
        assert claims.next_due == pytest.approx(30)
        assert not claims.more
        drive.clock.advance(30)
        assert ids(await drive.take()) == ["a"]

    async def test_p5_one_key(self, drive: Driver) -> None:
        await drive.store.declare_pools({"site": SITE})
        await drive.store.close_pool("site", key="k", by="ann")
        await drive.add(new("a", needs=(need("site", "k"),)), new("b", needs=(need("site", "l"),)))
        assert ids(await drive.take()) == ["b"]
        assert (await drive.pool("site", "k")).closed is not None
        await drive.store.open_pool("site", key="k")
        assert ids(await drive.take()) == ["a"]

    async def test_p5_p6_what_cannot_be_meant_is_refused(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": MODEL, "site": SITE})
        for pool, key, by in (
            ("nobody", None, "ann"),
            ("m", "k", "ann"),
            ("site", None, "ann"),
            ("m", None, ""),
        ):
            with pytest.raises(ConfigurationError):
                await drive.store.close_pool(pool, key=key, by=by)
            if by:
                with pytest.raises(ConfigurationError):
                    await drive.store.open_pool(pool, key=key)
        assert (await drive.pool("m")).closed is None


class TestPoolViews:
    async def test_p7_used_and_free_again(self, drive: Driver) -> None:
        day = Limit.requests(100, per=Day())
        await drive.store.declare_pools({"m": requests(10, day, Limit.concurrent(4))})
        assert len(await take_all(drive, of=3)) == 3
        minute, per_day, at_once = (await drive.pool("m")).limits
        assert (minute.used, per_day.used, at_once.used) == (3, 3, 3)
        assert minute.free_in == pytest.approx(60.5, abs=0.5)
        assert per_day.free_in == pytest.approx(6400 + 5)
        assert at_once.free_in is None
        assert (await drive.pool("m")).reservations == 3
        drive.clock.advance(61)
        minute, per_day, _ = (await drive.pool("m")).limits
        assert (minute.used, per_day.used, minute.free_in) == (0, 3, 0)

    async def test_p7_keys_with_something_taken_or_closed(self, drive: Driver) -> None:
        await drive.store.declare_pools({"site": SITE})
        await drive.add(*[new(key, needs=(need("site", key),)) for key in "ab"])
        taken = await drive.take()
        await drive.store.close_pool("site", key="c", by="ann")
        assert [view.key for view in await drive.store.pools()] == [None, "a", "b", "c"]
        for job in taken:
            await drive.settle(job, spent=using("site", job.id, requests=1))
        drive.clock.advance(2)
        assert [view.key for view in await drive.store.pools()] == [None, "c"]
        await drive.store.prune()
        await drive.store.open_pool("site", key="c")
        assert [view.key for view in await drive.store.pools()] == [None]
