"""Waiting for a pool costs nothing, and ends as soon as it can."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

from typing import Any

import pytest

from tidemill.contract.wakeups import queue_topic
from tidemill.core import accounts
from tidemill.core.batching import Batching
from tidemill.core.changes import Cancel
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.outcomes import Done
from tidemill.core.pools import PoolChanges, PoolSettings
from tidemill.testing.conformance.counting import Counted, counted
from tidemill.testing.conformance.driver import UNMADE, Driver, ids, need, new, using
from tidemill.testing.conformance.waking import armed

AT_ONCE = PoolSettings(limits=(Limit.concurrent(1),))
TOKENS = "tokens per minute"
THOUSAND = PoolSettings(limits=(Limit.tokens(1000, per="minute"),))
NAMES = ("big", "s0", "s1", "s2")
TWO_A_MINUTE = PoolSettings(limits=(Limit.requests(2, per="minute"),))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """How often any account was asked for units."""
    return counted(monkeypatch, accounts, "ask")


class TestWaitingForPools:
    @pytest.mark.parametrize("lanes", [10_000])
    async def test_p12_lanes_behind_an_exhausted_pool_cost_nothing(
        self, drive: Driver, asked: Counted, lanes: int
    ) -> None:
        """Four idle workers, 10 000 lanes: five asks per opening, two a second otherwise. One second in the
        middle of a wait is like the next."""
        await drive.store.declare_pools({"m": TWO_A_MINUTE})
        for start in range(0, lanes, 1000):
            some = range(start, start + 1000)
            await drive.add(*[new(f"{n:05}", key=f"k{n}", needs=(need("m"),)) for n in some])
        assert len(await drive.take(limit=8)) == 2
        assert asked.since() <= 5
        started, now = 0, -1
        for second in (*range(10), *range(55, 70), *range(116, 130)):
            drive.clock.advance(second - now)
            now = second
            for worker in "wxyz":
                started += len(await drive.take(worker, limit=8))
            opening = second in (60, 121)
            assert asked.since() <= (5 if opening else 2), second
        assert started == 4

    async def test_p12_within_a_second_nobody_asks_again(self, drive: Driver, asked: Counted) -> None:
        await drive.store.declare_pools({"m": TWO_A_MINUTE})
        await drive.add(*[new(f"{n}", needs=(need("m"),)) for n in range(5)])
        await drive.take()
        asked.since()
        for worker in "wxyz":
            claims = await drive.claim(worker)
            assert (claims.jobs, claims.more) == ([], False)
            assert claims.next_due == pytest.approx(60.5, abs=0.5)
        assert asked.since() == 0
        drive.clock.advance(1)
        for worker in "wxyz":
            await drive.claim(worker)
        assert asked.since() == 1, "once a second a head is tried, for what nobody told"

    async def test_p12_refused_keys_are_not_asked_until_their_wait_is_over(
        self, drive: Driver, asked: Counted
    ) -> None:
        await drive.store.declare_pools(
            {"site": PoolSettings(limits=(Limit.requests(1, per=30),), keyed=True)}
        )
        keys = [f"k{n}" for n in range(50)]
        await drive.add(*[new(f"{key}.{n}", needs=(need("site", key),)) for key in keys for n in range(2)])
        assert len(await drive.take()) == 50
        assert asked.since() <= 100
        for _ in range(29):
            drive.clock.advance(1)
            assert await drive.take() == []
        assert asked.since() == 0
        drive.clock.advance(3)
        assert len(await drive.take()) == 50

    async def test_p12_a_smaller_job_is_tried_within_a_second(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": PoolSettings(limits=(Limit.tokens(100, per="minute"),))})
        await drive.add(new("first", needs=(need("m", tokens=50),)))
        await drive.take()
        await drive.add(new("big", needs=(need("m", tokens=90),)), new("small", needs=(need("m", tokens=9),)))
        assert await drive.take() == []
        await drive.amend(Cancel(), "big")
        drive.clock.advance(1)
        assert ids(await drive.take()) == ["small"]

    async def test_j38_jobs_without_pools_are_more(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": AT_ONCE})
        await drive.add(*[new(f"{n}", needs=(need("m"),)) for n in range(3)])
        await drive.add("plain")
        assert (await drive.claim(limit=1)).more
        claims = await drive.claim(limit=1)
        assert (ids(claims.jobs), claims.more) == (["plain"], True)
        assert not (await drive.claim(limit=1)).more

    async def test_p15_a_wait_nobody_waits_for_any_more_is_not_due(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": TWO_A_MINUTE})
        await drive.add(*[new(f"{n}", needs=(need("m"),)) for n in range(3)])
        assert (await drive.claim()).next_due is not None
        await drive.amend(Cancel(), "2")
        assert (await drive.claim()).next_due is None


class TestTooLarge:
    """A job that was accepted under other limits than those in force."""

    async def cut(self, drive: Driver, **options: Any) -> None:
        """A call of 900, and three of 100 behind it in its lane, under an override to 500."""
        await drive.store.declare_pools({"m": THOUSAND})
        await drive.add(
            *[new(name, needs=(need("m", tokens=900 if name == "big" else 100),)) for name in NAMES]
        )
        await drive.store.override_pool("m", PoolChanges(amounts={TOKENS: 500}), by="ann", **options)

    async def test_p12_it_holds_up_nobody_and_starts_when_the_override_ends(self, drive: Driver) -> None:
        await self.cut(drive, until=drive.clock.wall() + 40)
        claims = await drive.claim()
        assert ids(claims.jobs) == ["s0", "s1", "s2"]
        for job in claims.jobs:
            await drive.settle(job, Done(), using("m", tokens=0))
        claims = await drive.claim()
        assert (claims.jobs, claims.more) == ([], False)
        assert claims.next_due == pytest.approx(40)
        drive.clock.advance(41)
        assert ids(await drive.take()) == ["big"]

    async def test_p12_p15_it_is_rung_and_tried_when_the_limits_change(self, drive: Driver) -> None:
        await self.cut(drive)
        await drive.take()
        await drive.take()
        drive.clock.advance(61)
        await drive.take()
        async with armed(drive, queue_topic("q")) as listener:
            await drive.store.override_pool("m", None, by="ann")
            assert await listener.wait(5.0)
        assert ids(await drive.take()) == ["big"]

    async def test_p12_it_is_tried_once_a_minute_whatever_comes_free(
        self, drive: Driver, asked: Counted
    ) -> None:
        await drive.store.declare_pools({"m": THOUSAND})
        await drive.add(*[new(f"big-{n}", needs=(need("m", tokens=900),)) for n in range(50)])
        await drive.add(*[new(f"small-{n}", needs=(need("m", tokens=1),)) for n in range(100)])
        await drive.store.declare_pools({"m": PoolSettings(limits=(Limit.tokens(500, per="minute"),))})
        await drive.take(limit=1)
        asked.since()
        for _ in range(50):
            await drive.settle(await drive.take_one(), Done(), using("m", tokens=0))
            drive.clock.advance(1)
        assert asked.since() <= 50 + 2 * 50

    async def test_p12_one_key_or_one_batch_is_no_exception(self, drive: Driver) -> None:
        pool = PoolSettings(limits=THOUSAND.limits, keyed=True)
        rule = Batching(max_items=3)
        await drive.store.declare_pools({"m": THOUSAND, "site": pool})
        for name in NAMES:
            units = {"tokens": 900.0 if name == "big" else 100.0}
            await drive.add(new(name, needs=(Need("site", "a", units),)))
            await drive.add(new(f"{name}-batch", needs=(Need("m", None, units),), batching=rule))
        less = (Limit.tokens(500, per="minute"),)
        await drive.store.declare_pools(
            {"m": PoolSettings(limits=less), "site": PoolSettings(limits=less, keyed=True)}
        )
        expected = {f"s{n}{kind}" for n in range(3) for kind in ("", "-batch")}
        assert set(ids(await drive.take())) == expected
        assert await drive.take() == []
        await drive.store.declare_pools({"m": THOUSAND, "site": pool})
        drive.clock.advance(61)
        assert set(ids(await drive.take())) == {"big", "big-batch"}


class TestPoolRings:
    async def test_p15_an_end_rings_the_queue_that_waits(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": AT_ONCE})
        await drive.add(new("a", needs=(need("m"),)))
        await drive.add(new("b", needs=(need("m"),)), queue="p")
        job = await drive.take_one()
        assert await drive.take(shares=(("p", 9),)) == []
        async with armed(drive, queue_topic("p")) as listener:
            await drive.settle(job)
            assert await listener.wait(5.0)
        assert ids(await drive.take(shares=(("p", 9),))) == ["b"]

    @pytest.mark.parametrize("how", ["override", "declare", "open", "release"])
    async def test_p2_p6_p15_what_opens_rings_and_is_tried_at_once(self, drive: Driver, how: str) -> None:
        await drive.store.declare_pools({"m": TWO_A_MINUTE})
        await drive.add(*[new(f"{n}", needs=(need("m"),)) for n in range(3)])
        taken = await drive.take(limit=2)
        if how == "open":
            await drive.store.close_pool("m", by="ann")
        assert await drive.take() == []
        async with armed(drive, queue_topic("q")) as listener:
            match how:
                case "override":
                    changes = PoolChanges(amounts={"requests per minute": 3})
                    await drive.store.override_pool("m", changes, by="ann")
                case "declare":
                    more = PoolSettings(limits=(Limit.requests(3, per="minute"),))
                    await drive.store.declare_pools({"m": more})
                case "open":
                    await drive.store.open_pool("m")
                case _:
                    await drive.settle(taken[0], spent=UNMADE)
            assert await listener.wait(5.0)
        assert len(await drive.take()) == (0 if how == "open" else 1)

    async def test_p15_a_reclaim_rings(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": AT_ONCE})
        await drive.add(new("a", needs=(need("m"),)))
        await drive.add(new("b", needs=(need("m"),)), queue="p")
        await drive.take_one()
        assert await drive.take(shares=(("p", 9),)) == []
        async with armed(drive, queue_topic("p")) as listener:
            await drive.store.reclaim(["w"])
            assert await listener.wait(5.0)
