"""Conformance tests for late and extra requests. A late request is sent some time after its job was claimed.
An extra request is a client library's retry, without a reservation."""

from __future__ import annotations

import math

from tidemill.core.feedback import Observation, Reason, Refusal, UsageReport
from tidemill.core.late_calls import EXTRA_REQUEST_UNITS, Departure
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import PoolSettings
from tidemill.testing.conformance.fixtures import StoreDriver, need, new_job, refusal_of_call, usage_of_call

REQUESTS_PER_MINUTE, TOKENS, CALLS_AT_ONCE = "requests per minute", "tokens per minute", "calls at once"
POOL = PoolSettings(
    limits=(Limit.requests(3, per="minute"), Limit.tokens(1_000, per="minute"), Limit.concurrent(5))
)
ONE_MORE_REQUEST = Need("m", None, EXTRA_REQUEST_UNITS)


class TestLateCalls:
    async def test_p21_late_units_count_from_when_they_leave(self, driver: StoreDriver) -> None:
        """Units that are reserved at 0 s and sent at 20 s count for the minute from 20 s to 80 s."""
        await driver.store.declare_pools({"m": POOL})
        await driver.add(new_job("a", needs=(need("m", tokens=400),)))
        job = await driver.take_one()
        driver.clock.advance(20)
        assert await driver.store.reserve("a", job.fence, job.claim, job.needs[0], Departure.LATE) is None
        assert (await driver.used("m", REQUESTS_PER_MINUTE), await driver.used("m", TOKENS)) == (1, 400)
        assert (await driver.pool("m")).reservations == 1
        driver.clock.advance(55)
        assert (await driver.used("m", REQUESTS_PER_MINUTE), await driver.used("m", TOKENS)) == (1, 400)
        driver.clock.advance(6)
        assert (await driver.used("m", REQUESTS_PER_MINUTE), await driver.used("m", TOKENS)) == (0, 0)
        await driver.settle(job)
        assert await driver.used("m", CALLS_AT_ONCE) == 0

    async def test_p21_a_report_after_the_window_counts_from_then_on(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": POOL})
        await driver.add(new_job("a", needs=(need("m", tokens=400),)))
        job = await driver.take_one()
        driver.clock.advance(70)
        await driver.store.reserve("a", job.fence, job.claim, need("m", tokens=400), Departure.LATE)
        assert (await driver.used("m", REQUESTS_PER_MINUTE), await driver.used("m", TOKENS)) == (1, 400)

    async def test_p21_returned_units_leave_the_new_entry(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": POOL})
        await driver.add(new_job("a", needs=(need("m", tokens=400),)))
        job = await driver.take_one()
        driver.clock.advance(20)
        await driver.store.reserve("a", job.fence, job.claim, need("m", tokens=400), Departure.LATE)
        await driver.settle(job, spent=usage_of_call("m", tokens=100))
        assert await driver.used("m", TOKENS) == 100
        driver.clock.advance(55)
        assert await driver.used("m", TOKENS) == 100

    async def test_p21_only_one_matching_reservation_is_booked_again(self, driver: StoreDriver) -> None:
        """A late request restarts the window of one reservation: the oldest one with the same units."""
        await driver.store.declare_pools({"m": POOL})
        await driver.add(new_job("a", needs=(need("m", tokens=400),)))
        job = await driver.take_one()
        await driver.store.reserve("a", job.fence, job.claim, need("m", tokens=100))
        driver.clock.advance(20)
        await driver.store.reserve("a", job.fence, job.claim, need("m", tokens=400))
        for _ in range(2):
            driver.clock.advance(5)
            await driver.store.reserve("a", job.fence, job.claim, need("m", tokens=400), Departure.LATE)
        driver.clock.advance(33)
        assert await driver.used("m", TOKENS) == 800, "100 were taken 63 s ago, 800 not yet 60 s ago"
        driver.clock.advance(25)
        assert await driver.used("m", TOKENS) == 400, "the second one left 58 s ago"

    async def test_p21_an_extra_request_is_booked_beyond_the_limit(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": POOL})
        await driver.add(*[new_job(name, needs=(need("m", tokens=300),)) for name in "abc"])
        job, *_ = await driver.take()
        assert (
            await driver.store.reserve(job.id, job.fence, job.claim, ONE_MORE_REQUEST, Departure.EXTRA)
            is None
        )
        assert (await driver.used("m", REQUESTS_PER_MINUTE), await driver.used("m", TOKENS)) == (4, 900)
        assert await driver.used("m", CALLS_AT_ONCE) == 3
        assert (await driver.pool("m")).reservations == 4
        await driver.settle(job, spent=usage_of_call("m", requests=2, tokens=350))
        assert (await driver.used("m", REQUESTS_PER_MINUTE), await driver.used("m", TOKENS)) == (4, 950)
        assert (await driver.used("m", CALLS_AT_ONCE), (await driver.pool("m")).reservations) == (2, 2)

    async def test_p21_an_extra_request_is_no_concurrent_call(self, driver: StoreDriver) -> None:
        """Two calls run, and the client of one call has retried three times. The provider refuses this call
        for concurrency. The learned limit is 1, one less than the two calls: retries do not count."""
        await driver.store.declare_pools({"m": POOL})
        await driver.add(*[new_job(name, needs=(need("m", tokens=100),)) for name in "ab"])
        job, other = await driver.take()
        for _ in range(3):
            await driver.store.reserve(job.id, job.fence, job.claim, ONE_MORE_REQUEST, Departure.EXTRA)
        await driver.settle(job, spent=refusal_of_call("m", Reason.CONCURRENCY))
        cap = (await driver.pool("m")).account.breaker.cap
        assert cap is not None
        assert cap.amount == 1
        assert (await driver.pool("m")).account.state.unchecked == 0
        await driver.settle(other)
        assert await driver.store.check() == ()

    async def test_p21_a_refusal_is_about_the_call_and_not_its_extra_request(
        self, driver: StoreDriver
    ) -> None:
        """A refusal concerns the units of the call, not those of an extra request (a client's retry). Here
        the provider refuses the tokens of a call for 10 s. The store learns this, although the extra request
        needs no tokens."""
        await driver.store.declare_pools({"m": POOL})
        await driver.add(new_job("a", needs=(need("m", tokens=400),)))
        job = await driver.take_one()
        await driver.store.reserve("a", job.fence, job.claim, ONE_MORE_REQUEST, Departure.EXTRA)
        refusal = Refusal(reason=Reason.RATE, unit="tokens", retry_after=10)
        seen = Observation(pool="m", remaining={TOKENS: 200}, refusal=refusal)
        await driver.settle(job, spent=UsageReport(observations=(seen,)))
        before = await driver.used("m", TOKENS)
        driver.clock.advance(11)
        assert await driver.used("m", TOKENS) < before, "some are free after the wait"

    async def test_p21_a_stale_claim_changes_nothing(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": POOL})
        await driver.add(new_job("a", needs=(need("m", tokens=400),)))
        job = await driver.take_one()
        await driver.settle(job)
        driver.clock.advance(20)
        for departure in Departure:
            answer = await driver.store.reserve("a", job.fence, job.claim, ONE_MORE_REQUEST, departure)
            assert answer == math.inf
        driver.clock.advance(42)
        assert await driver.used("m", REQUESTS_PER_MINUTE) == 0

    async def test_p21_an_unknown_pool_or_key_changes_nothing(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": POOL})
        await driver.add("a")
        job = await driver.take_one()
        for pool, key in (("gone", None), ("m", "key"), ("m", None)):
            elsewhere = Need(pool, key, EXTRA_REQUEST_UNITS)
            answer = await driver.store.reserve("a", job.fence, job.claim, elsewhere, Departure.LATE)
            assert answer is None
        for pool, key in (("gone", None), ("m", "key")):
            elsewhere = Need(pool, key, EXTRA_REQUEST_UNITS)
            answer = await driver.store.reserve("a", job.fence, job.claim, elsewhere, Departure.EXTRA)
            assert answer is None
        assert await driver.used("m", REQUESTS_PER_MINUTE) == 0
