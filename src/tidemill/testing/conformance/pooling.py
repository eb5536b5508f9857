"""A claim takes what its jobs need of their pools, in the same step, or leaves the jobs where they are."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import math

import pytest

from tidemill.core.calendars import Day
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.driver import UNMADE, Driver, ids, need, new, using

PER_MINUTE, TOKENS, AT_ONCE = "requests per minute", "tokens per minute", "calls at once"


def per_minute(amount: float, *more: Limit, keyed: bool = False) -> PoolSettings:
    return PoolSettings(limits=(Limit.requests(amount, per="minute"), *more), keyed=keyed)


TOKENS_10K = PoolSettings(limits=(Limit.tokens(10_000, per="minute"),))


class TestPooledClaim:
    async def test_p11_of_all_pools_or_of_none(self, drive: Driver) -> None:
        await drive.store.declare_pools({"full": per_minute(1), "free": per_minute(9)})
        await drive.add(new("a", needs=(need("full"),)))
        await drive.take()
        await drive.add(new("b", needs=(need("free"), need("full"))))
        await drive.add(new("c", needs=(need("full"), need("free"))))
        assert await drive.take() == []
        assert await drive.used("free", PER_MINUTE) == 0
        assert await drive.state("b") is State.READY
        drive.clock.advance(61)
        assert len(await drive.take()) == 1
        assert (await drive.used("free", PER_MINUTE), await drive.used("full", PER_MINUTE)) == (1, 1)

    async def test_p11_of_all_limits_or_of_none(self, drive: Driver) -> None:
        model = per_minute(9, Limit.tokens(1000, per="minute"), Limit.concurrent(2))
        await drive.store.declare_pools({"m": model})
        await drive.add(*[new(f"job-{n}", needs=(need("m", tokens=400),)) for n in range(4)])
        assert len(await drive.take()) == 2
        used = [limit.used for limit in (await drive.pool("m")).limits]
        assert used == [2, 800, 2]

    async def test_p11_the_job_in_hand_knows_its_needs(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": TOKENS_10K})
        await drive.add(new("a", key="k", needs=(need("m", tokens=7),)))
        job = await drive.take_one()
        assert job.needs == (Need("m", None, {"tokens": 7}),)
        assert (await drive.job("a")).needs == job.needs
        assert (await drive.job("a")).key == "k"

    async def test_p11_a_repeated_claim_takes_nothing_twice(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": per_minute(5)})
        await drive.add(*[new(f"job-{n}", needs=(need("m"),)) for n in range(2)])
        assert len(await drive.take(number=1)) == 2
        assert len(await drive.take(number=1)) == 2
        assert await drive.used("m", PER_MINUTE) == 2

    async def test_p11_j31_the_order_holds_among_those_who_may(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": per_minute(2), "n": per_minute(9)})
        await drive.add(
            new("m1", needs=(need("m"),)),
            new("n1", needs=(need("n"),)),
            new("plain"),
            new("m2", needs=(need("m"),)),
            new("m3", needs=(need("m"),)),
            new("n2", needs=(need("n"),)),
            new("urgent", needs=(need("m"),), priority=1),
        )
        assert ids(await drive.take()) == ["urgent", "n1", "plain", "m1", "n2"]

    async def test_p11_only_what_the_claim_asked_for_is_taken(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": per_minute(9)})
        await drive.add(*[new(f"job-{n}", key=f"k{n}", needs=(need("m"),)) for n in range(9)])
        claims = await drive.claim(limit=2)
        assert (ids(claims.jobs), claims.more) == (["job-0", "job-1"], True)
        assert await drive.used("m", PER_MINUTE) == 2

    async def test_p11_by_ids(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": per_minute(1)})
        await drive.add(*[new(f"{n}", needs=(need("m"),)) for n in "abc"], "d")
        claims = await drive.claim(named="abd", shares=())
        assert (ids(claims.jobs), claims.blocked) == (["a", "d"], ("b",))
        assert await drive.used("m", PER_MINUTE) == 1
        await drive.settle(claims.jobs[0], spent=UNMADE)
        assert ids((await drive.claim(named="c", shares=())).jobs) == ["c"]

    async def test_p11_an_expired_job_takes_nothing(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": per_minute(1)})
        await drive.add(new("a", needs=(need("m"),), expires=1.0), new("b", needs=(need("m"),)))
        drive.clock.advance(2)
        assert ids(await drive.take()) == ["b"]

    async def test_p11_a_held_back_share_is_for_the_urgent(self, drive: Driver) -> None:
        settings = PoolSettings(limits=(Limit.requests(4, per="minute"),), held_back=0.5, urgent=1)
        await drive.store.declare_pools({"m": settings})
        await drive.add(*[new(f"job-{n}", needs=(need("m"),)) for n in range(4)])
        assert len(await drive.take()) == 2
        await drive.add(*[new(f"urgent-{n}", needs=(need("m"),), priority=1) for n in range(4)])
        assert ids(await drive.take()) == ["urgent-0", "urgent-1"]

    async def test_j35_a_keys_limit_counts_whatever_the_pools(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(key_concurrency=1)})
        await drive.store.declare_pools({"m": per_minute(9), "n": per_minute(9)})
        await drive.add(
            new("a", key="k", needs=(need("m"),)),
            new("b", key="k", needs=(need("n"),)),
            new("c", key="k"),
            new("d", key="l", needs=(need("n"),)),
        )
        taken = await drive.take()
        assert ids(taken) == ["a", "d"]
        assert ids((await drive.claim(named="bc", shares=())).jobs) == []
        await drive.settle(taken[0])
        assert ids(await drive.take()) == ["b"]

    async def test_j35_a_keys_limit_of_two_over_three_lanes(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(key_concurrency=2)})
        await drive.store.declare_pools({"m": per_minute(9), "n": per_minute(9)})
        lanes = ((need("m"),), (need("n"),), ())
        await drive.add(*[new(f"{n}{i}", key="k", needs=lanes[i]) for n in "ab" for i in range(3)])
        assert ids(await drive.take()) == ["a0", "a1"]
        assert await drive.used("m", PER_MINUTE) == 1

    async def test_p11_a_hold_lets_a_big_call_start_among_endless_small_ones(self, drive: Driver) -> None:
        """Across queues: nothing of its priority pushes it back."""
        await drive.store.declare_pools({"m": TOKENS_10K})
        await drive.add(new("big", needs=(need("m", tokens=9_000),)), queue="p")
        both = (("q", 100), ("p", 100))
        began = drive.clock.boot()
        await drive.add(*[new(f"first-{n}", needs=(need("m", tokens=500),)) for n in range(20)])
        started: list[str] = []
        for second in range(130):
            await drive.add(new(f"small-{second}", needs=(need("m", tokens=500),)))
            started += ids(await drive.take(shares=both))
            if "big" in started:
                break
            drive.clock.advance(1)
        assert "big" in started
        assert drive.clock.boot() - began <= 121, "within two windows"


class TestPooledLanes:
    async def test_p12_a_full_pool_leaves_other_groups_and_unpooled_jobs(self, drive: Driver) -> None:
        await drive.store.declare_pools({"full": per_minute(1), "free": per_minute(9)})
        await drive.add(*[new(f"full-{n}", key=f"{n}", needs=(need("full"),)) for n in range(3)])
        assert len(await drive.take()) == 1
        await drive.add("plain", new("free", needs=(need("free"),)), new("keyed", key="k"))
        claims = await drive.claim()
        assert ids(claims.jobs) == ["plain", "free", "keyed"]
        assert not claims.more

    async def test_p12_one_keys_refusal_leaves_the_other_keys(self, drive: Driver) -> None:
        await drive.store.declare_pools({"site": per_minute(1, keyed=True)})
        await drive.add(*[new(f"{key}{n}", needs=(need("site", key),)) for n in range(2) for key in "abc"])
        claims = await drive.claim()
        assert (ids(claims.jobs), claims.more) == (["a0", "b0", "c0"], False)
        await drive.add(new("d0", needs=(need("site", "d"),)), new("e0", needs=()))
        assert ids(await drive.take(limit=1)) == ["d0"]
        assert ids(await drive.take(limit=1)) == ["e0"]
        drive.clock.advance(61)
        assert ids(await drive.take()) == ["a1", "b1", "c1"]

    async def test_p12_many_refused_keys_do_not_hide_a_lane_behind_them(self, drive: Driver) -> None:
        await drive.store.declare_pools({"site": per_minute(1, keyed=True)})
        keys = [f"k{n:03}" for n in range(50)]
        await drive.add(*[new(f"{key}.{n}", needs=(need("site", key),)) for key in keys for n in range(2)])
        assert len(await drive.take()) == 50
        await drive.add(new("last", needs=(need("site", "z"),), priority=9))
        assert ids(await drive.take(limit=1)) == ["last"]

    async def test_p12_a_more_urgent_job_is_tried_at_once(self, drive: Driver) -> None:
        settings = PoolSettings(limits=(Limit.requests(2, per="minute"),), held_back=0.5, urgent=1)
        await drive.store.declare_pools({"m": settings})
        await drive.add(*[new(f"job-{n}", needs=(need("m"),)) for n in range(3)])
        assert len(await drive.take()) == 1
        assert await drive.take() == []
        await drive.add(new("urgent", needs=(need("m"),), priority=1))
        claims = await drive.claim()
        assert ids(claims.jobs) == ["urgent"]

    async def test_p12_a_refusing_key_shuts_its_lane_and_not_the_group(self, drive: Driver) -> None:
        await drive.store.declare_pools({"site": per_minute(1, keyed=True), "m": per_minute(9)})
        await drive.add(*[new(f"a{n}", needs=(need("site", "a"), need("m"))) for n in range(2)])
        await drive.add(*[new(f"b{n}", needs=(need("site", "b"), need("m"))) for n in range(2)])
        assert ids(await drive.take()) == ["a0", "b0"]
        assert await drive.used("m", PER_MINUTE) == 2

    async def test_p15_next_due_is_the_soonest_end_of_a_wait(self, drive: Driver) -> None:
        await drive.store.declare_pools({"slow": per_minute(1), "fast": per_minute(1)})
        await drive.add(*[new(f"slow-{n}", needs=(need("slow"),)) for n in range(2)])
        claims = await drive.claim()
        assert claims.next_due == pytest.approx(60.5, abs=0.5)
        drive.clock.advance(10)
        await drive.add(*[new(f"fast-{n}", needs=(need("fast"),)) for n in range(2)])
        claims = await drive.claim()
        assert claims.next_due == pytest.approx(50.5, abs=0.5)
        drive.clock.advance(claims.next_due or 0)
        assert ids(await drive.take()) == ["slow-1"]

    async def test_p15_a_wait_without_a_time_has_none(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": PoolSettings(limits=(Limit.concurrent(1),))})
        await drive.add(*[new(f"job-{n}", needs=(need("m"),)) for n in range(2)])
        claims = await drive.claim()
        assert (len(claims.jobs), claims.next_due, claims.more) == (1, None, False)
        await drive.settle(claims.jobs[0])
        assert len(await drive.take()) == 1

    async def test_p12_p14_another_boot_starts_with_nothing_left(self, drive: Driver) -> None:
        settings = per_minute(5, Limit.requests(100, per=Day()))
        await drive.store.declare_pools({"m": settings})
        await drive.add(*[new(f"job-{n}", needs=(need("m"),)) for n in range(9)])
        for job in await drive.take(limit=1):
            await drive.settle(job)
        drive.clock.reboot()
        await drive.reopen()
        assert await drive.take() == []
        assert await drive.used("m", PER_MINUTE) == 5
        assert await drive.used("m", "requests per day") == 1, "a calendar's count is on disk"
        drive.clock.advance(61)
        assert len(await drive.take()) == 5
        assert await drive.used("m", "requests per day") == 6


class TestReserve:
    async def test_p3_more_units_while_it_runs(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": TOKENS_10K, "n": TOKENS_10K})
        await drive.add(new("a", needs=(need("m", tokens=1_000),)))
        job = await drive.take_one()
        for pool in ("m", "n"):
            assert await drive.store.reserve("a", job.fence, job.claim, need(pool, tokens=4_000)) is None
        assert (await drive.used("m", TOKENS), await drive.used("n", TOKENS)) == (5_000, 4_000)
        assert (await drive.pool("m")).reservations == 2
        wait = await drive.store.reserve("a", job.fence, job.claim, need("m", tokens=6_000))
        assert wait == pytest.approx(60.5, abs=0.5)
        assert await drive.used("m", TOKENS) == 5_000

    async def test_p3_p13_a_usage_is_over_all_that_was_reserved(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": TOKENS_10K})
        await drive.add(new("a", needs=(need("m", tokens=1_000),)))
        job = await drive.take_one()
        await drive.store.reserve("a", job.fence, job.claim, need("m", tokens=4_000))
        await drive.settle(job, spent=using("m", tokens=700))
        assert await drive.used("m", TOKENS) == 700
        assert (await drive.pool("m")).reservations == 0

    async def test_p3_infinite_when_a_call_must_end_first(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": PoolSettings(limits=(Limit.concurrent(1),))})
        await drive.add(*[new(name, needs=(need("m"),) if name == "a" else ()) for name in "ab"])
        first, second = await drive.take()
        assert await drive.store.reserve("b", second.fence, second.claim, need("m")) == math.inf
        await drive.settle(first)
        assert await drive.store.reserve("b", second.fence, second.claim, need("m")) is None
        await drive.settle(second)
        assert await drive.used("m", AT_ONCE) == 0

    async def test_p3_a_claim_that_is_not_current_is_given_nothing(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": TOKENS_10K})
        await drive.add("a")
        job = await drive.take_one()
        await drive.store.reclaim(["w"])
        assert await drive.store.reserve("a", job.fence, job.claim, need("m", tokens=1)) == math.inf
        assert await drive.store.reserve("nobody", 1, 1, need("m", tokens=1)) == math.inf
        assert await drive.used("m", TOKENS) == 0

    async def test_p3_what_can_never_be_met_is_refused(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": TOKENS_10K})
        await drive.add("a")
        job = await drive.take_one()
        for wanted in (need("nobody"), need("m", "k", tokens=1), need("m", tokens=10_001), need("m")):
            with pytest.raises(ConfigurationError):
                await drive.store.reserve("a", job.fence, job.claim, wanted)
