"""Requests that leave late, or without a reservation."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import math

from tidemill.core.departures import ONE_REQUEST, Departure
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.pools import PoolSettings
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.spending import Observation, Spent
from tidemill.testing.conformance.driver import Driver, need, new, refusing, using

PER_MINUTE, TOKENS, AT_ONCE = "requests per minute", "tokens per minute", "calls at once"
POOL = PoolSettings(
    limits=(Limit.requests(3, per="minute"), Limit.tokens(1_000, per="minute"), Limit.concurrent(5))
)
EXTRA = Need("m", None, ONE_REQUEST)


class TestDepartures:
    async def test_p21_late_units_count_from_when_they_leave(self, drive: Driver) -> None:
        """Taken at 0 and left at 20: they count until 80, and once."""
        await drive.store.declare_pools({"m": POOL})
        await drive.add(new("a", needs=(need("m", tokens=400),)))
        job = await drive.take_one()
        drive.clock.advance(20)
        late = need("m", tokens=400)
        assert await drive.store.reserve("a", job.fence, job.claim, late, Departure.LATE) is None
        assert (await drive.used("m", PER_MINUTE), await drive.used("m", TOKENS)) == (1, 400)
        assert (await drive.pool("m")).reservations == 1
        drive.clock.advance(55)
        assert (await drive.used("m", PER_MINUTE), await drive.used("m", TOKENS)) == (1, 400)
        drive.clock.advance(6)
        assert (await drive.used("m", PER_MINUTE), await drive.used("m", TOKENS)) == (0, 0)
        await drive.settle(job)
        assert await drive.used("m", AT_ONCE) == 0

    async def test_p21_a_report_after_the_window_counts_from_then_on(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": POOL})
        await drive.add(new("a", needs=(need("m", tokens=400),)))
        job = await drive.take_one()
        drive.clock.advance(70)
        await drive.store.reserve("a", job.fence, job.claim, need("m", tokens=400), Departure.LATE)
        assert (await drive.used("m", PER_MINUTE), await drive.used("m", TOKENS)) == (1, 400)

    async def test_p21_what_comes_back_leaves_the_new_place(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": POOL})
        await drive.add(new("a", needs=(need("m", tokens=400),)))
        job = await drive.take_one()
        drive.clock.advance(20)
        await drive.store.reserve("a", job.fence, job.claim, need("m", tokens=400), Departure.LATE)
        await drive.settle(job, spent=using("m", tokens=100))
        assert await drive.used("m", TOKENS) == 100
        drive.clock.advance(55)
        assert await drive.used("m", TOKENS) == 100

    async def test_p21_only_one_reservation_of_that_cost_is_entered_again(self, drive: Driver) -> None:
        """Of two with different costs the named one, of two equal ones the oldest."""
        await drive.store.declare_pools({"m": POOL})
        await drive.add(new("a", needs=(need("m", tokens=400),)))
        job = await drive.take_one()
        await drive.store.reserve("a", job.fence, job.claim, need("m", tokens=100))
        drive.clock.advance(20)
        await drive.store.reserve("a", job.fence, job.claim, need("m", tokens=400))
        for _ in range(2):
            drive.clock.advance(5)
            await drive.store.reserve("a", job.fence, job.claim, need("m", tokens=400), Departure.LATE)
        drive.clock.advance(33)
        assert await drive.used("m", TOKENS) == 800, "100 were taken 63 s ago, 800 not yet 60 s ago"
        drive.clock.advance(25)
        assert await drive.used("m", TOKENS) == 400, "the second one left 58 s ago"

    async def test_p21_an_extra_request_is_booked_beyond_the_limit(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": POOL})
        await drive.add(*[new(name, needs=(need("m", tokens=300),)) for name in "abc"])
        job, *_ = await drive.take()
        assert await drive.store.reserve(job.id, job.fence, job.claim, EXTRA, Departure.EXTRA) is None
        assert (await drive.used("m", PER_MINUTE), await drive.used("m", TOKENS)) == (4, 900)
        assert await drive.used("m", AT_ONCE) == 3
        assert (await drive.pool("m")).reservations == 4
        await drive.settle(job, spent=using("m", requests=2, tokens=350))
        assert (await drive.used("m", PER_MINUTE), await drive.used("m", TOKENS)) == (4, 950)
        assert (await drive.used("m", AT_ONCE), (await drive.pool("m")).reservations) == (2, 2)

    async def test_p21_an_extra_request_is_no_further_call_under_way(self, drive: Driver) -> None:
        """Two calls run, one of them with three retries: the provider refuses more than one at once."""
        await drive.store.declare_pools({"m": POOL})
        await drive.add(*[new(name, needs=(need("m", tokens=100),)) for name in "ab"])
        job, other = await drive.take()
        for _ in range(3):
            await drive.store.reserve(job.id, job.fence, job.claim, EXTRA, Departure.EXTRA)
        await drive.settle(job, spent=refusing("m", Reason.CONCURRENCY))
        cap = (await drive.pool("m")).account.breaker.cap
        assert cap is not None
        assert cap.amount == 1
        assert (await drive.pool("m")).account.state.unasked == 0
        await drive.settle(other)
        assert await drive.store.check() == ()

    async def test_p21_a_refusal_speaks_of_the_call_and_not_of_its_extra_request(self, drive: Driver) -> None:
        """Others have used the tokens, and the provider says after how long the refused call fits. An extra
        request names no tokens, so that by its units nothing would be missing."""
        await drive.store.declare_pools({"m": POOL})
        await drive.add(new("a", needs=(need("m", tokens=400),)))
        job = await drive.take_one()
        await drive.store.reserve("a", job.fence, job.claim, EXTRA, Departure.EXTRA)
        refusal = Refusal(reason=Reason.RATE, unit="tokens", retry_after=10)
        seen = Observation(pool="m", remaining={TOKENS: 200}, refusal=refusal)
        await drive.settle(job, spent=Spent(observations=(seen,)))
        before = await drive.used("m", TOKENS)
        drive.clock.advance(11)
        assert await drive.used("m", TOKENS) < before, "some are free after the wait"

    async def test_p21_a_claim_that_is_not_current_changes_nothing(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": POOL})
        await drive.add(new("a", needs=(need("m", tokens=400),)))
        job = await drive.take_one()
        await drive.settle(job)
        drive.clock.advance(20)
        for departure in Departure:
            answer = await drive.store.reserve("a", job.fence, job.claim, EXTRA, departure)
            assert answer == math.inf
        drive.clock.advance(42)
        assert await drive.used("m", PER_MINUTE) == 0

    async def test_p21_an_unknown_pool_or_key_changes_nothing(self, drive: Driver) -> None:
        await drive.store.declare_pools({"m": POOL})
        await drive.add("a")
        job = await drive.take_one()
        for pool, key in (("gone", None), ("m", "key"), ("m", None)):
            elsewhere = Need(pool, key, ONE_REQUEST)
            answer = await drive.store.reserve("a", job.fence, job.claim, elsewhere, Departure.LATE)
            assert answer is None
        for pool, key in (("gone", None), ("m", "key")):
            elsewhere = Need(pool, key, ONE_REQUEST)
            answer = await drive.store.reserve("a", job.fence, job.claim, elsewhere, Departure.EXTRA)
            assert answer is None
        assert await drive.used("m", PER_MINUTE) == 0
