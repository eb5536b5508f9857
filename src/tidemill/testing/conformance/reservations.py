"""Conformance tests for reservations: a claim takes all units of a job together with the job, or leaves the
job."""

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
from tidemill.testing.conformance.fixtures import (
    CALL_NOT_MADE,
    StoreDriver,
    ids,
    need,
    new_job,
    usage_of_call,
)

REQUESTS_PER_MINUTE, TOKENS, CALLS_AT_ONCE = "requests per minute", "tokens per minute", "calls at once"


def request_pool(amount: float, *more: Limit, keyed: bool = False) -> PoolSettings:
    return PoolSettings(limits=(Limit.requests(amount, per="minute"), *more), keyed=keyed)


TOKENS_10K = PoolSettings(limits=(Limit.tokens(10_000, per="minute"),))


class TestMeteredClaim:
    async def test_p11_units_are_taken_of_all_pools_or_none(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"full": request_pool(1), "free": request_pool(9)})
        await driver.add(new_job("a", needs=(need("full"),)))
        await driver.take()
        await driver.add(new_job("b", needs=(need("free"), need("full"))))
        await driver.add(new_job("c", needs=(need("full"), need("free"))))
        assert await driver.take() == []
        assert await driver.used("free", REQUESTS_PER_MINUTE) == 0
        assert await driver.state("b") is State.READY
        driver.clock.advance(61)
        assert len(await driver.take()) == 1
        assert (
            await driver.used("free", REQUESTS_PER_MINUTE),
            await driver.used("full", REQUESTS_PER_MINUTE),
        ) == (1, 1)

    async def test_p11_units_are_taken_of_all_limits_or_none(self, driver: StoreDriver) -> None:
        model = request_pool(9, Limit.tokens(1000, per="minute"), Limit.concurrent(2))
        await driver.store.declare_pools({"m": model})
        await driver.add(*[new_job(f"job-{n}", needs=(need("m", tokens=400),)) for n in range(4)])
        assert len(await driver.take()) == 2
        used = [limit.used for limit in (await driver.pool("m")).limits]
        assert used == [2, 800, 2]

    async def test_p11_a_claimed_job_carries_its_needs(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": TOKENS_10K})
        await driver.add(new_job("a", key="k", needs=(need("m", tokens=7),)))
        job = await driver.take_one()
        assert job.needs == (Need("m", None, {"tokens": 7}),)
        assert (await driver.job("a")).needs == job.needs
        assert (await driver.job("a")).key == "k"

    async def test_p11_a_repeated_claim_takes_nothing_twice(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": request_pool(5)})
        await driver.add(*[new_job(f"job-{n}", needs=(need("m"),)) for n in range(2)])
        assert len(await driver.take(number=1)) == 2
        assert len(await driver.take(number=1)) == 2
        assert await driver.used("m", REQUESTS_PER_MINUTE) == 2

    async def test_p11_j31_the_claim_order_holds_among_unblocked_jobs(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": request_pool(2), "n": request_pool(9)})
        await driver.add(
            new_job("m1", needs=(need("m"),)),
            new_job("n1", needs=(need("n"),)),
            new_job("plain"),
            new_job("m2", needs=(need("m"),)),
            new_job("m3", needs=(need("m"),)),
            new_job("n2", needs=(need("n"),)),
            new_job("urgent", needs=(need("m"),), priority=1),
        )
        assert ids(await driver.take()) == ["urgent", "n1", "plain", "m1", "n2"]

    async def test_p11_only_claimed_jobs_reserve_units(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": request_pool(9)})
        await driver.add(*[new_job(f"job-{n}", key=f"k{n}", needs=(need("m"),)) for n in range(9)])
        claims = await driver.claim(limit=2)
        assert (ids(claims.jobs), claims.more) == (["job-0", "job-1"], True)
        assert await driver.used("m", REQUESTS_PER_MINUTE) == 2

    async def test_p11_claims_by_id_reserve_units(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": request_pool(1)})
        await driver.add(*[new_job(f"{n}", needs=(need("m"),)) for n in "abc"], "d")
        claims = await driver.claim(named="abd", shares=())
        assert (ids(claims.jobs), claims.blocked) == (["a", "d"], ("b",))
        assert await driver.used("m", REQUESTS_PER_MINUTE) == 1
        await driver.settle(claims.jobs[0], spent=CALL_NOT_MADE)
        assert ids((await driver.claim(named="c", shares=())).jobs) == ["c"]

    async def test_p11_an_expired_job_takes_nothing(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": request_pool(1)})
        await driver.add(new_job("a", needs=(need("m"),), expires=1.0), new_job("b", needs=(need("m"),)))
        driver.clock.advance(2)
        assert ids(await driver.take()) == ["b"]

    async def test_p11_a_reserved_share_is_for_urgent_jobs(self, driver: StoreDriver) -> None:
        settings = PoolSettings(limits=(Limit.requests(4, per="minute"),), reserved_share=0.5, urgent=1)
        await driver.store.declare_pools({"m": settings})
        await driver.add(*[new_job(f"job-{n}", needs=(need("m"),)) for n in range(4)])
        assert len(await driver.take()) == 2
        await driver.add(*[new_job(f"urgent-{n}", needs=(need("m"),), priority=1) for n in range(4)])
        assert ids(await driver.take()) == ["urgent-0", "urgent-1"]

    async def test_j35_a_key_limit_counts_jobs_of_all_pools(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(key_concurrency=1)})
        await driver.store.declare_pools({"m": request_pool(9), "n": request_pool(9)})
        await driver.add(
            new_job("a", key="k", needs=(need("m"),)),
            new_job("b", key="k", needs=(need("n"),)),
            new_job("c", key="k"),
            new_job("d", key="l", needs=(need("n"),)),
        )
        taken = await driver.take()
        assert ids(taken) == ["a", "d"]
        assert ids((await driver.claim(named="bc", shares=())).jobs) == []
        await driver.settle(taken[0])
        assert ids(await driver.take()) == ["b"]

    async def test_j35_a_keys_limit_of_two_over_three_lanes(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(key_concurrency=2)})
        await driver.store.declare_pools({"m": request_pool(9), "n": request_pool(9)})
        lanes = ((need("m"),), (need("n"),), ())
        await driver.add(*[new_job(f"{n}{i}", key="k", needs=lanes[i]) for n in "ab" for i in range(3)])
        assert ids(await driver.take()) == ["a0", "a1"]
        assert await driver.used("m", REQUESTS_PER_MINUTE) == 1

    async def test_p11_a_hold_lets_a_big_call_start_among_endless_small_ones(
        self, driver: StoreDriver
    ) -> None:
        """A large call starts within two windows, although small calls keep coming. Here the large job and
        the small jobs have the same priority and are in two queues."""
        await driver.store.declare_pools({"m": TOKENS_10K})
        await driver.add(new_job("big", needs=(need("m", tokens=9_000),)), queue="p")
        both = (("q", 100), ("p", 100))
        began = driver.clock.boot()
        await driver.add(*[new_job(f"first-{n}", needs=(need("m", tokens=500),)) for n in range(20)])
        started: list[str] = []
        for second in range(130):
            await driver.add(new_job(f"small-{second}", needs=(need("m", tokens=500),)))
            started += ids(await driver.take(shares=both))
            if "big" in started:
                break
            driver.clock.advance(1)
        assert "big" in started
        assert driver.clock.boot() - began <= 121, "within two windows"


class TestMeteredLanes:
    async def test_p12_a_full_pool_leaves_other_groups_and_unpooled_jobs(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"full": request_pool(1), "free": request_pool(9)})
        await driver.add(*[new_job(f"full-{n}", key=f"{n}", needs=(need("full"),)) for n in range(3)])
        assert len(await driver.take()) == 1
        await driver.add("plain", new_job("free", needs=(need("free"),)), new_job("keyed", key="k"))
        claims = await driver.claim()
        assert ids(claims.jobs) == ["plain", "free", "keyed"]
        assert not claims.more

    async def test_p12_one_keys_refusal_leaves_the_other_keys(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"site": request_pool(1, keyed=True)})
        await driver.add(
            *[new_job(f"{key}{n}", needs=(need("site", key),)) for n in range(2) for key in "abc"]
        )
        claims = await driver.claim()
        assert (ids(claims.jobs), claims.more) == (["a0", "b0", "c0"], False)
        await driver.add(new_job("d0", needs=(need("site", "d"),)), new_job("e0", needs=()))
        assert ids(await driver.take(limit=1)) == ["d0"]
        assert ids(await driver.take(limit=1)) == ["e0"]
        driver.clock.advance(61)
        assert ids(await driver.take()) == ["a1", "b1", "c1"]

    async def test_p12_many_refused_keys_do_not_hide_a_lane_behind_them(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"site": request_pool(1, keyed=True)})
        keys = [f"k{n:03}" for n in range(50)]
        await driver.add(
            *[new_job(f"{key}.{n}", needs=(need("site", key),)) for key in keys for n in range(2)]
        )
        assert len(await driver.take()) == 50
        await driver.add(new_job("last", needs=(need("site", "z"),), priority=9))
        assert ids(await driver.take(limit=1)) == ["last"]

    async def test_p12_a_more_urgent_job_is_tried_at_once(self, driver: StoreDriver) -> None:
        settings = PoolSettings(limits=(Limit.requests(2, per="minute"),), reserved_share=0.5, urgent=1)
        await driver.store.declare_pools({"m": settings})
        await driver.add(*[new_job(f"job-{n}", needs=(need("m"),)) for n in range(3)])
        assert len(await driver.take()) == 1
        assert await driver.take() == []
        await driver.add(new_job("urgent", needs=(need("m"),), priority=1))
        claims = await driver.claim()
        assert ids(claims.jobs) == ["urgent"]

    async def test_p12_a_full_key_blocks_its_lane_and_not_the_group(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"site": request_pool(1, keyed=True), "m": request_pool(9)})
        await driver.add(*[new_job(f"a{n}", needs=(need("site", "a"), need("m"))) for n in range(2)])
        await driver.add(*[new_job(f"b{n}", needs=(need("site", "b"), need("m"))) for n in range(2)])
        assert ids(await driver.take()) == ["a0", "b0"]
        assert await driver.used("m", REQUESTS_PER_MINUTE) == 2

    async def test_p15_next_due_is_the_soonest_end_of_a_wait(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"slow": request_pool(1), "fast": request_pool(1)})
        await driver.add(*[new_job(f"slow-{n}", needs=(need("slow"),)) for n in range(2)])
        claims = await driver.claim()
        assert claims.next_due == pytest.approx(60.5, abs=0.5)
        driver.clock.advance(10)
        await driver.add(*[new_job(f"fast-{n}", needs=(need("fast"),)) for n in range(2)])
        claims = await driver.claim()
        assert claims.next_due == pytest.approx(50.5, abs=0.5)
        driver.clock.advance(claims.next_due or 0)
        assert ids(await driver.take()) == ["slow-1"]

    async def test_p15_a_wait_without_a_time_has_none(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": PoolSettings(limits=(Limit.concurrent(1),))})
        await driver.add(*[new_job(f"job-{n}", needs=(need("m"),)) for n in range(2)])
        claims = await driver.claim()
        assert (len(claims.jobs), claims.next_due, claims.more) == (1, None, False)
        await driver.settle(claims.jobs[0])
        assert len(await driver.take()) == 1

    async def test_p12_p14_after_a_reboot_the_windows_count_as_used(self, driver: StoreDriver) -> None:
        settings = request_pool(5, Limit.requests(100, per=Day()))
        await driver.store.declare_pools({"m": settings})
        await driver.add(*[new_job(f"job-{n}", needs=(need("m"),)) for n in range(9)])
        for job in await driver.take(limit=1):
            await driver.settle(job)
        driver.clock.reboot()
        await driver.reopen()
        assert await driver.take() == []
        assert await driver.used("m", REQUESTS_PER_MINUTE) == 5
        assert await driver.used("m", "requests per day") == 1, "a calendar's count is on disk"
        driver.clock.advance(61)
        assert len(await driver.take()) == 5
        assert await driver.used("m", "requests per day") == 6


class TestReserve:
    async def test_p3_more_units_while_it_runs(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": TOKENS_10K, "n": TOKENS_10K})
        await driver.add(new_job("a", needs=(need("m", tokens=1_000),)))
        job = await driver.take_one()
        for pool in ("m", "n"):
            assert await driver.store.reserve("a", job.fence, job.claim, need(pool, tokens=4_000)) is None
        assert (await driver.used("m", TOKENS), await driver.used("n", TOKENS)) == (5_000, 4_000)
        assert (await driver.pool("m")).reservations == 2
        wait = await driver.store.reserve("a", job.fence, job.claim, need("m", tokens=6_000))
        assert wait == pytest.approx(60.5, abs=0.5)
        assert await driver.used("m", TOKENS) == 5_000

    async def test_p3_p13_a_usage_is_over_all_that_was_reserved(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": TOKENS_10K})
        await driver.add(new_job("a", needs=(need("m", tokens=1_000),)))
        job = await driver.take_one()
        await driver.store.reserve("a", job.fence, job.claim, need("m", tokens=4_000))
        await driver.settle(job, spent=usage_of_call("m", tokens=700))
        assert await driver.used("m", TOKENS) == 700
        assert (await driver.pool("m")).reservations == 0

    async def test_p3_infinite_when_a_call_must_end_first(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": PoolSettings(limits=(Limit.concurrent(1),))})
        await driver.add(*[new_job(name, needs=(need("m"),) if name == "a" else ()) for name in "ab"])
        first, second = await driver.take()
        assert await driver.store.reserve("b", second.fence, second.claim, need("m")) == math.inf
        await driver.settle(first)
        assert await driver.store.reserve("b", second.fence, second.claim, need("m")) is None
        await driver.settle(second)
        assert await driver.used("m", CALLS_AT_ONCE) == 0

    async def test_p3_a_stale_claim_gets_no_units(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": TOKENS_10K})
        await driver.add("a")
        job = await driver.take_one()
        await driver.store.reclaim(["w"])
        assert await driver.store.reserve("a", job.fence, job.claim, need("m", tokens=1)) == math.inf
        assert await driver.store.reserve("nobody", 1, 1, need("m", tokens=1)) == math.inf
        assert await driver.used("m", TOKENS) == 0

    async def test_p3_units_that_can_never_be_granted_are_refused(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": TOKENS_10K})
        await driver.add("a")
        job = await driver.take_one()
        for refused in (need("nobody"), need("m", "k", tokens=1), need("m", tokens=10_001), need("m")):
            with pytest.raises(ConfigurationError):
                await driver.store.reserve("a", job.fence, job.claim, refused)
