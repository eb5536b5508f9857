"""Units a handler asked for while it ran: it stands behind their pool, and its next claim takes them."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

from typing import Literal

import pytest

from tidemill.core.batching import Batching
from tidemill.core.changes import RetryNow
from tidemill.core.claims import Claimed
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.outcomes import Answer, Await, Done, Fail, Outcome, Release, Retrying, Snooze
from tidemill.core.pools import PoolSettings
from tidemill.core.refusals import Reason
from tidemill.core.spending import Spent
from tidemill.core.states import State
from tidemill.testing.conformance.driver import LEASE, OOPS, UNMADE, Driver, ids, need, new, refusing, using

TOKENS, AT_ONCE = "tokens per minute", "calls at once"
OWN = PoolSettings(limits=(Limit.tokens(1_000, per="minute"),))
OTHER = PoolSettings(limits=(Limit.tokens(1_000, per="minute"), Limit.concurrent(5)))
SITE = PoolSettings(limits=(Limit.requests(1, per="minute"),), keyed=True)


async def waiting(drive: Driver, *waits: Need, needs: tuple[Need, ...] = (), full: float = 1_000) -> None:
    """Job `a` was given back to wait; `other` is full but for so much."""
    await drive.store.declare_pools({"own": OWN, "other": OTHER, "site": SITE})
    if full:
        await drive.add(new("full", priority=0, needs=(need("other", tokens=full),)))
        await drive.settle(await drive.take_one(), spent=Spent(well=True))
    await drive.add(new("a", needs=needs))
    job = await drive.take_one()
    assert await drive.settle(job, Await(waits), UNMADE) is Answer.OK


async def again(drive: Driver) -> Claimed:
    """The job comes back when its pool has room."""
    drive.clock.advance(61)
    job = await drive.take_one()
    assert job.id == "a"
    return job


async def spend(drive: Driver, job: Claimed, need: Need) -> float | None:
    return await drive.store.reserve(job.id, job.fence, job.claim, need)


class TestAwaiting:
    async def test_p18_it_stands_behind_the_pool_and_holds_nobody_up(self, drive: Driver) -> None:
        await waiting(drive, need("other", tokens=400), needs=(need("own", tokens=100),))
        job = await drive.job("a")
        assert (job.state, job.attempts, job.extra) == (State.READY, 0, (need("other", tokens=400),))
        assert (job.due, job.seq) == (job.created, 2), "in its old place"
        await drive.add(new("b", needs=(need("own", tokens=100),)), new("c"))
        claims = await drive.claim()
        assert set(ids(claims.jobs)) == {"b", "c"}
        assert claims.next_due == pytest.approx(61, abs=1.5)

    async def test_p18_its_next_claim_takes_what_it_waits_for(self, drive: Driver) -> None:
        await waiting(drive, need("other", tokens=400), needs=(need("own", tokens=100),))
        job = await again(drive)
        assert job.extra == (need("other", tokens=400),)
        assert await drive.used("own", TOKENS) == 100
        assert await drive.used("other", TOKENS) == 400
        await drive.add(new("b", needs=(need("other", tokens=700),)))
        assert await drive.take() == [], "kept for the first"

    async def test_p18_a_key_is_waited_for_alone(self, drive: Driver) -> None:
        await waiting(drive, need("site", "x"), full=0)
        await drive.add(*[new(key, needs=(need("site", key),)) for key in "xy"])
        first, second = await drive.take()
        assert (first.id, second.id) == ("a", "y")
        assert await spend(drive, first, need("site", "x")) is None

    async def test_p18_i14_it_is_taken_anew_when_the_call_is_made(self, drive: Driver) -> None:
        """What the provider sees half a minute after the claim is free a minute after that."""
        await waiting(drive, need("other", tokens=400))
        job = await again(drive)
        drive.clock.advance(20)
        assert await spend(drive, job, need("other", tokens=400)) is None
        assert await drive.used("other", TOKENS) == 400, "once"
        assert (await drive.pool("other")).reservations == 1
        await drive.settle(job, spent=using("other", tokens=300))
        drive.clock.advance(45)
        assert await drive.used("other", TOKENS) == 300
        drive.clock.advance(16)
        assert await drive.used("other", TOKENS) == 0

    @pytest.mark.parametrize("shape", ["rolling", "bucket"])
    async def test_p18_it_is_kept_however_long_the_first_part_takes(
        self, drive: Driver, shape: Literal["rolling", "bucket"]
    ) -> None:
        """Neither does it pass, nor does anybody else get it."""
        pool = PoolSettings(limits=(Limit.tokens(1_000, per="minute", shape=shape),))
        await drive.store.declare_pools({"m": pool})
        await drive.add(new("a"), new("b", needs=(need("m", tokens=700),)))
        first, second = await drive.take()
        await drive.settle(second)
        await drive.settle(first, Await((need("m", tokens=900),)))
        drive.clock.advance(61)
        job = await drive.take_one(lease=1_000.0)
        for _ in range(5):
            drive.clock.advance(61)
            await drive.add(new(f"at {drive.clock.boot()}", needs=(need("m", tokens=500),)))
            assert await drive.take() == []
        assert await spend(drive, job, need("m", tokens=900)) is None
        await drive.settle(job)
        assert await drive.used("m", TOKENS) == 900

    async def test_p18_more_or_less_than_it_said(self, drive: Driver) -> None:
        await waiting(drive, need("other", tokens=400))
        job = await again(drive)
        assert await spend(drive, job, need("other", tokens=1_000)) is None, "what was kept is among it"
        await drive.settle(job, Await((need("other", tokens=1_000),)), UNMADE)
        job = await again(drive)
        assert await spend(drive, job, need("other", tokens=300)) is None
        assert await drive.used("other", TOKENS) == 1_000, "700 are kept for another call"
        await drive.settle(job)
        assert await drive.used("other", TOKENS) == 300

    async def test_p18_several_calls_take_their_part_each(self, drive: Driver) -> None:
        await waiting(drive, need("other", tokens=400), need("other", tokens=500))
        job = await again(drive)
        assert await drive.used("other", AT_ONCE) == 2
        for tokens in (400, 500):
            assert await spend(drive, job, need("other", tokens=tokens)) is None
            assert await drive.used("other", TOKENS) == 900
        assert (await spend(drive, job, need("other", tokens=200)) or 0) > 0
        assert (await drive.pool("other")).reservations == 2
        await drive.settle(job)
        assert (await drive.used("other", TOKENS), await drive.used("other", AT_ONCE)) == (900, 0)

    async def test_p18_beside_what_the_job_needs_of_the_same_pool(self, drive: Driver) -> None:
        await waiting(drive, need("other", tokens=400), needs=(need("other", tokens=500),), full=300)
        assert await drive.take() == []
        job = await again(drive)
        assert (await drive.used("other", TOKENS), await drive.used("other", AT_ONCE)) == (900, 2)
        await drive.settle(job, spent=using("other", tokens=450))
        assert await drive.used("other", TOKENS) == 450, "the call it did not come to was not made"
        assert (await drive.pool("other")).reservations == 0

    async def test_p18_what_is_counted_when_the_answer_is_complete(self, drive: Driver) -> None:
        completed = PoolSettings(limits=(Limit.tokens(1_000, per="minute", charge="completed"),))
        await drive.store.declare_pools({"m": completed})
        await drive.add(new("a", needs=(need("m", tokens=500),)))
        await drive.settle(await drive.take_one(), Await((need("m", tokens=400),)), UNMADE)
        job = await drive.take_one()
        assert await drive.used("m", TOKENS) == 900
        assert await spend(drive, job, need("m", tokens=300)) is None
        assert await drive.used("m", TOKENS) == 900, "100 are kept for another call"
        await drive.settle(job, spent=using("m", tokens=700))
        assert await drive.used("m", TOKENS) == 700
        drive.clock.advance(61)
        assert await drive.used("m", TOKENS) == 0

    async def test_p18_what_is_denied_stays_as_it_is(self, drive: Driver) -> None:
        await waiting(drive, need("other", tokens=400))
        job = await again(drive)
        await drive.store.close_pool("other", by="ann")
        assert (await spend(drive, job, need("other", tokens=400)) or 0) > 0
        assert await drive.used("other", TOKENS) == 400
        await drive.store.open_pool("other")
        assert await spend(drive, job, need("other", tokens=400)) is None
        assert await drive.used("other", TOKENS) == 400

    @pytest.mark.parametrize("spent", [None, Spent(), UNMADE])
    @pytest.mark.parametrize("outcome", [Done(), Retrying(1.0, OOPS), Snooze(1.0), Fail(OOPS), Release()])
    async def test_p18_what_it_did_not_come_to_is_given_back(
        self, drive: Driver, outcome: Outcome, spent: Spent | None
    ) -> None:
        await waiting(drive, need("other", tokens=400))
        await drive.settle(await again(drive), outcome, spent)
        assert (await drive.used("other", TOKENS), await drive.used("other", AT_ONCE)) == (0, 0)
        assert (await drive.pool("other")).reservations == 0

    async def test_p14_p18_a_silent_holder_may_have_spent_it(self, drive: Driver) -> None:
        await waiting(drive, need("other", tokens=400))
        await again(drive)
        drive.clock.advance(LEASE)
        await drive.store.reclaim()
        assert await drive.used("other", TOKENS) == 400, "from now on"
        assert (await drive.pool("other")).reservations == 0

    @pytest.mark.parametrize("outcome", [Retrying(0.0, OOPS), Snooze(0.0)])
    async def test_p18_whoever_begins_anew_waits_for_nothing(self, drive: Driver, outcome: Outcome) -> None:
        await waiting(drive, need("other", tokens=400))
        await drive.settle(await again(drive), outcome)
        job = await drive.job("a")
        assert (job.extra, job.lane) == ((), "")
        await drive.store.close_pool("other", by="ann")
        assert ids(await drive.take()) == ["a"]

    async def test_p18_so_does_who_is_retried_by_hand(self, drive: Driver) -> None:
        await waiting(drive, need("other", tokens=400))
        await drive.settle(await again(drive), Fail(OOPS))
        await drive.amend(RetryNow(), "a")
        job = await drive.job("a")
        assert (job.extra, job.lane) == ((), "")

    async def test_p18_who_was_not_started_still_waits_for_it(self, drive: Driver) -> None:
        await waiting(drive, need("other", tokens=400))
        await drive.settle(await again(drive), Release(), UNMADE)
        assert (await drive.job("a")).extra == (need("other", tokens=400),)

    async def test_p10_p18_what_could_never_be_given_at_once_fails(self, drive: Driver) -> None:
        await waiting(drive, need("own", tokens=600), needs=(need("own", tokens=500),), full=0)
        job = await drive.job("a")
        assert (job.state, job.reason) == (State.FAILED, "needs too much")
        assert job.error is not None
        assert "'own'" in job.error.message
        assert "1100 tokens" in job.error.message

    async def test_p18_a_job_of_a_batch_is_given_back_as_it_is(self, drive: Driver) -> None:
        await drive.store.declare_pools({"other": OTHER})
        await drive.add(*[new(job, batching=Batching(max_items=2)) for job in "ab"])
        for job in await drive.take():
            await drive.settle(job, Await((need("other", tokens=1),)))
        assert [job.extra for job in await drive.take()] == [(), ()]

    async def test_p18_i15_it_may_be_the_probe(self, drive: Driver) -> None:
        await waiting(drive, need("other", tokens=400), full=0)
        until = drive.clock.wall() + 30
        await drive.store.observe(refusing("other", Reason.STATED, resets_at=until).observations)
        assert await drive.take() == []
        job = await again(drive)
        await drive.add(new("b", needs=(need("other", tokens=1),)))
        assert await drive.take() == [], "one tries for all"
        assert await spend(drive, job, need("other", tokens=400)) is None
        assert await drive.take() == []
        await drive.settle(job, spent=using("other", tokens=400))
        assert (await drive.pool("other")).closures == ()

    async def test_r10_p18_demand_counts_with_it(self, drive: Driver) -> None:
        await waiting(drive, need("other", tokens=400), needs=(need("own", tokens=100),))
        (demand,) = await drive.store.demand()
        assert [(each.pool, each.units["tokens"]) for each in demand.needs] == [("other", 400), ("own", 100)]

    async def test_j33_p18_a_repeated_claim_tells_of_it_too(self, drive: Driver) -> None:
        await waiting(drive, need("other", tokens=400))
        job = await again(drive)
        assert await drive.take(number=drive.numbers["w"]) == [job]

    async def test_j37_p18_claimed_by_its_id(self, drive: Driver) -> None:
        await waiting(drive, need("other", tokens=400))
        assert (await drive.claim(named=["a"])).blocked == ("a",)
        drive.clock.advance(61)
        assert ids(await drive.take(named=["a"])) == ["a"]
        assert await drive.used("other", TOKENS) == 400
