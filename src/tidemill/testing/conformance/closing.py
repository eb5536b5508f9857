"""Refusals close a pool, one probe tries it, a ramp opens it (I15, I16)."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import pytest

from tidemill.core.batching import Batching
from tidemill.core.calendars import Day
from tidemill.core.changes import Cancel, RetryNow
from tidemill.core.claims import Claimed, Settlement
from tidemill.core.departures import ONE_REQUEST, Departure
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.outcomes import Answer, Done, Fail, Release, Retrying, Snooze
from tidemill.core.pool_news import Happened
from tidemill.core.pools import PoolSettings
from tidemill.core.refusals import Reason
from tidemill.core.spending import Observation, Spent
from tidemill.core.states import State
from tidemill.testing.conformance.driver import OOPS, UNMADE, Driver, ids, need, new, refusing

MODEL = PoolSettings(limits=(Limit.requests(20, per="minute"), Limit.requests(500, per=Day())))
LARGE = PoolSettings(limits=(Limit.requests(1000, per="minute"),))
WELL = Spent(well=True)
OVERLOADED = refusing("m", Reason.OVERLOAD)


async def begin(drive: Driver, jobs: int = 30, pool: PoolSettings = MODEL) -> None:
    await drive.store.declare_pools({"m": pool})
    await drive.add(*[new(f"{n:02}", needs=(need("m"),)) for n in range(jobs)])


async def close_for(drive: Driver, seconds: float) -> None:
    """By a refusal that states when it ends; the refused job is back in its place."""
    job = await drive.take_one()
    until = drive.clock.wall() + seconds
    await drive.settle(job, Release(), refusing("m", Reason.STATED, resets_at=until))


class TestRefusals:
    async def test_p16_i16_the_settlement_itself_closes_and_costs_no_attempt(self, drive: Driver) -> None:
        """What the same trip claims has heard of it."""
        await begin(drive)
        job = await drive.take_one()
        spent = refusing("m", Reason.DAY_QUOTA, text="quota")
        assert await drive.settle(job, Release(), spent) is Answer.OK
        claims = await drive.claim("x")
        assert claims.jobs == []
        assert claims.next_due == pytest.approx(6400 + 300), "midnight and the guard"
        (closure,) = (await drive.pool("m")).closures
        assert (closure.reason, closure.text) == (Reason.DAY_QUOTA, "quota")
        back = await drive.job(job.id)
        assert (back.state, back.attempts) == (State.READY, 0)

    async def test_p16_an_overload_without_a_hint_closes_by_chance(self, drive: Driver) -> None:
        """A fleet that comes back at one moment would overload the provider again."""
        pool = PoolSettings(limits=(Limit.requests(5, per="minute"),), keyed=True)
        await drive.store.declare_pools({"m": pool})
        await drive.add(*[new(key, needs=(need("m", key),)) for key in "abcdefgh"])
        waits = []
        for job in await drive.take():
            await drive.settle(job, Release(), refusing("m", Reason.OVERLOAD, job.id))
            (closure,) = (await drive.pool("m", job.id)).closures
            assert closure.until is not None
            waits.append(closure.until - drive.clock.wall())
        assert len(set(waits)) > 4
        assert min(waits) >= 0
        assert 1 < max(waits) <= 5

    async def test_p16_one_keys_refusal_leaves_the_others_at_full_speed(self, drive: Driver) -> None:
        pool = PoolSettings(limits=(Limit.requests(5, per="minute"),), keyed=True)
        await drive.store.declare_pools({"m": pool})
        await drive.add(*[new(f"{key}{n}", needs=(need("m", key),)) for n in range(4) for key in "ab"])
        first = await drive.take_one()
        await drive.settle(first, Release(), refusing("m", Reason.RATE, "a", retry_after=30))
        assert ids(await drive.take()) == ["b0", "b1", "b2", "b3"]
        drive.clock.advance(31)
        assert ids(await drive.take()) == ["a0", "a1", "a2", "a3"]

    async def test_p16_a_stale_refusal_closes_too(self, drive: Driver) -> None:
        await begin(drive, 2)
        job = await drive.take_one()
        await drive.store.reclaim(["w"])
        assert await drive.settle(job, spent=refusing("m", Reason.DAY_QUOTA)) is Answer.STALE
        assert await drive.take() == []

    @pytest.mark.parametrize("silent", [True, False])
    async def test_p16_a_stale_refusal_is_heard_once(self, drive: Driver, silent: bool) -> None:
        """Its reply was lost, so it is told again. Taken from a silent worker, or by hand."""
        await begin(drive)
        job = await drive.take_one()
        if silent:
            await drive.store.reclaim(["w"])
        else:
            await drive.amend(Cancel(), job.id)
        for _ in range(3):
            assert await drive.settle(job, spent=refusing("m", Reason.OVERLOAD)) is Answer.STALE
        [minute] = await drive.store.pool_history("m", 0)
        assert minute.refusals == {"overload": 1}

    async def test_p16_a_refusal_of_a_job_given_back_is_heard_once(self, drive: Driver) -> None:
        await begin(drive, 2)
        job = await drive.take_one()
        assert await drive.settle(job, Release(), refusing("m", Reason.OVERLOAD)) is Answer.OK
        drive.clock.advance(600)
        await drive.take()
        assert await drive.settle(job, Release(), refusing("m", Reason.OVERLOAD)) is Answer.STALE
        refusals = [minute.refusals for minute in await drive.store.pool_history("m", 0)]
        assert refusals.count({"overload": 1}) == 1

    async def test_p16_a_rate_closes_for_its_hint_and_needs_no_probe(self, drive: Driver) -> None:
        await begin(drive, 5)
        job = await drive.take_one()
        await drive.settle(job, Release(), refusing("m", Reason.RATE, retry_after=10))
        assert (await drive.claim()).next_due == pytest.approx(10.5)
        drive.clock.advance(10)
        assert await drive.take() == []
        drive.clock.advance(1)
        assert len(await drive.take()) == 5

    @pytest.mark.parametrize("by", [3600.0, -86_400.0])
    @pytest.mark.parametrize("reason", [Reason.RATE, Reason.STATED, Reason.UNKNOWN])
    async def test_i26_whoever_sets_the_wall_a_hint_is_kept(
        self, drive: Driver, reason: Reason, by: float
    ) -> None:
        await begin(drive, 5)
        job = await drive.take_one()
        await drive.settle(job, Release(), refusing("m", reason, retry_after=1800))
        drive.clock.advance(5)
        drive.clock.step_wall(by)
        assert await drive.take() == []
        (closure,) = (await drive.pool("m")).closures
        assert closure.until == pytest.approx(drive.clock.wall() + 1795.5)
        drive.clock.advance(1795)
        assert await drive.take() == []
        drive.clock.advance(1)
        assert await drive.take() != []

    async def test_n5_a_hint_outlives_a_boot_by_the_wall(self, drive: Driver) -> None:
        await begin(drive, 5)
        job = await drive.take_one()
        await drive.settle(job, Release(), refusing("m", Reason.STATED, retry_after=1800))
        drive.clock.reboot(after=600)
        assert await drive.take() == []
        drive.clock.advance(1199)
        assert await drive.take() == []
        drive.clock.advance(2)
        assert len(await drive.take()) == 1, "the probe"

    async def test_p4_what_an_observation_did_is_its_answer(self, drive: Driver) -> None:
        await begin(drive)
        told = refusing("m", Reason.STATED, resets_at=drive.clock.wall() + 100).observations
        [closed] = await drive.store.observe(told)
        assert (closed.what, closed.pool, closed.job) == (Happened.CLOSED, "m", "")
        assert await drive.store.observe(told) == (), "it is closed already"
        assert await drive.store.observe([]) == ()

    async def test_p17_what_happened_to_a_pool_is_told_once(self, drive: Driver) -> None:
        await begin(drive)
        refused = [await drive.take_one(), await drive.take_one()]
        told = refusing("m", Reason.STATED, resets_at=drive.clock.wall() + 100)
        settled = await drive.store.settle(
            [Settlement(job.id, job.fence, job.claim, Release(), told) for job in refused]
        )
        assert [news.what for news in settled.news] == [Happened.CLOSED], "two refusals close it once"
        drive.clock.advance(101)
        claims = await drive.claim()
        [probed] = claims.news
        assert (probed.what, probed.pool, probed.job) == (Happened.PROBED, "m", claims.jobs[0].id)
        [probe] = claims.jobs
        settlement = Settlement(probe.id, probe.fence, probe.claim, Done(), WELL)
        [opened] = (await drive.store.settle([settlement])).news
        assert (opened.what, opened.ramp) == (Happened.OPENED, True)
        assert (await drive.store.settle([settlement])).news == ()

    async def test_p16_a_lower_limit_is_believed_at_once(self, drive: Driver) -> None:
        await begin(drive)
        await drive.store.observe([Observation(pool="m", amounts={"requests per minute": 5})])
        assert len(await drive.take()) == 5
        limit = (await drive.pool("m")).limits[0]
        assert limit.amount == 20
        assert limit.learned is not None
        assert (limit.learned.amount, limit.learned.since) == (5, drive.clock.wall())

    async def test_p6_a_person_opens_without_probe_and_ramp(self, drive: Driver) -> None:
        await begin(drive, 30)
        await close_for(drive, 3_600)
        await drive.store.observe([Observation(pool="m", amounts={"requests per minute": 5})])
        await drive.store.open_pool("m")
        assert len(await drive.take()) == 19, "the refused call was one of twenty"
        view = await drive.pool("m")
        assert (view.closures, view.ramp) == ((), None)

    async def test_i15_no_call_before_the_stored_time_also_after_another_boot(self, drive: Driver) -> None:
        await begin(drive)
        await close_for(drive, 1_000)
        for _ in range(3):
            drive.clock.reboot(100.0)
            await drive.reopen()
            assert await drive.take() == []
        drive.clock.advance(690)
        assert await drive.take() == []
        drive.clock.advance(100)
        assert len(await drive.take()) == 1, "the probe"

    async def test_p5_i15_a_persons_mark_outlives_the_breaker(self, drive: Driver) -> None:
        await begin(drive)
        await drive.store.close_pool("m", by="ann")
        await drive.store.observe(refusing("m", Reason.RATE, retry_after=5).observations)
        drive.clock.advance(100)
        assert await drive.take() == []
        assert (await drive.pool("m")).closed is not None


class TestOverloads:
    async def test_p17_i16_calls_claimed_before_the_closure_belong_to_its_incident(
        self, drive: Driver
    ) -> None:
        await begin(drive, 12)
        answers = [await overloaded(drive, job) for job in await drive.take()]
        assert answers == [[Answer.OK]] * 12
        assert (await drive.pool("m")).account.breaker.budget.left == 9
        assert {(await drive.job(f"{job:02}")).attempts for job in range(12)} == {0}

    async def test_p17_i16_a_retry_of_the_client_belongs_to_the_incident_of_its_call(
        self, drive: Driver
    ) -> None:
        """40 calls under way, the first refusal closes the pool while their handlers run, and each client
        tries once more by itself before it gives up."""
        await begin(drive, 40, LARGE)
        held = await drive.take()
        drive.clock.advance(1)
        await drive.store.observe(OVERLOADED.observations)
        retry, answers = Need("m", None, ONE_REQUEST), []
        for job in held:
            drive.clock.advance(0.1)
            await drive.store.reserve(job.id, job.fence, job.claim, retry, Departure.EXTRA)
            answers += await overloaded(drive, job)
        assert answers == [Answer.OK] * 40

    async def test_p17_i16_the_pool_pays_first_and_then_the_job(self, drive: Driver) -> None:
        await begin(drive, 1, LARGE)
        await incidents(drive, 10)
        assert (await drive.job("00")).attempts == 0
        assert await overloaded(drive, await drive.take_one()) == [Answer.CHARGED]
        assert (await drive.job("00")).attempts == 1

    async def test_p17_b4_a_whole_call_pays(self, drive: Driver) -> None:
        """Only its first job tells of the call; the others would go back uncharged for ever."""
        call, _ = await exhausted(drive)
        assert await overloaded(drive, *call) == [Answer.CHARGED] * 3
        assert [(await drive.job(job)).attempts for job in "abc"] == [1, 1, 1]

    async def test_p17_i6_also_when_its_first_job_is_lost(self, drive: Driver) -> None:
        call, _ = await exhausted(drive)
        await drive.amend(Cancel(), "a")
        assert await overloaded(drive, *call) == [Answer.STALE, Answer.CHARGED, Answer.CHARGED]

    async def test_p17_no_other_call_pays_for_it(self, drive: Driver) -> None:
        call, other = await exhausted(drive)
        assert await overloaded(drive, call[0], other) == [Answer.CHARGED, Answer.OK]


async def exhausted(drive: Driver) -> tuple[list[Claimed], Claimed]:
    """The jobs of one call and that of another, of a pool that has paid for all the overloads it pays for."""
    await begin(drive, 1, LARGE)
    await incidents(drive, 10)
    await drive.settle(await drive.take_one(), Done(), WELL)
    rule = Batching(max_items=3)
    await drive.add(*[new(job, batching=rule, needs=(need("m"),), priority=9) for job in "abcd"])
    held = await drive.take()
    return held[:3], held[3]


async def incidents(drive: Driver, count: int) -> None:
    """As many overloads, each after the pool had opened again, all within a minute."""
    for _ in range(count):
        assert await overloaded(drive, await drive.take_one()) == [Answer.OK]
        drive.clock.advance(5.0)
        probe = await drive.take_one()
        await drive.settle(probe, Release(), WELL)


async def overloaded(drive: Driver, *held: Claimed) -> list[Answer]:
    """The first of them speaks for its call."""
    told = [
        Settlement(job.id, job.fence, job.claim, Release(), None if at else OVERLOADED, Retrying(0.0, OOPS))
        for at, job in enumerate(held)
    ]
    return (await drive.store.settle(told)).answers


class TestWaits:
    async def test_p20_a_claim_says_how_long_it_waited_and_a_repetition_does_not(self, drive: Driver) -> None:
        """The tests of each store have long locks."""
        await begin(drive, 2)
        claims = await drive.claim(limit=1)
        assert claims.waited is not None
        assert 0 <= claims.waited < 5
        [job] = claims.jobs
        again = await drive.claim(limit=1, number=drive.numbers["w"])
        assert (ids(again.jobs), again.waited) == ([job.id], None)
        settlement = Settlement(job.id, job.fence, job.claim, Done(), WELL)
        settled = await drive.store.settle([settlement], drive.request(limit=1))
        assert settled.claims is not None
        assert settled.claims.waited is not None


class TestReportedRefusals:
    async def test_p19_excuses_in_a_row_are_counted(self, drive: Driver) -> None:
        await begin(drive, 1, LARGE)
        for count in range(1, 4):
            await drive.settle(await drive.take_one(), Release(excused=True), WELL)
            await drive.settle(await drive.take_one(), Release(), UNMADE)
            again = await drive.take_one()
            assert (again.needs[0].excused, again.attempt) == (count, 1)
            await drive.settle(again, Release(), UNMADE)

    @pytest.mark.parametrize("outcome", [Retrying(0.0, OOPS), Snooze(0.0)])
    async def test_p19_a_charged_or_postponed_attempt_ends_the_row(
        self, drive: Driver, outcome: Retrying | Snooze
    ) -> None:
        await begin(drive, 1, LARGE)
        await drive.settle(await drive.take_one(), Release(excused=True), WELL)
        await drive.settle(await drive.take_one(), outcome, WELL)
        assert (await drive.take_one()).needs == (need("m"),)

    async def test_p19_so_does_a_retry_by_hand(self, drive: Driver) -> None:
        await begin(drive, 1, LARGE)
        await drive.settle(await drive.take_one(), Release(excused=True), WELL)
        await drive.settle(await drive.take_one(), Fail(OOPS), WELL)
        await drive.amend(RetryNow(), "00")
        assert (await drive.take_one()).needs == (need("m"),)


class TestGuesses:
    async def test_p16_a_guess_rises_with_successes_up_to_what_was_declared(self, drive: Driver) -> None:
        await begin(drive, 2, LARGE)
        for _ in range(2):
            rate = refusing("m", Reason.RATE, retry_after=1)
            await drive.settle(await drive.take_one(), Release(), rate)
            drive.clock.advance(61)
        assert await self.believed(drive) == 500
        for amount in (750, 1000, 1000):
            await drive.settle(await drive.take_one(), Release(), WELL)
            assert await self.believed(drive) == amount
            drive.clock.advance(61)

    async def believed(self, drive: Driver) -> float:
        [limit] = (await drive.pool("m")).limits
        return limit.amount if limit.learned is None else limit.learned.amount


class TestProbe:
    async def test_i15_exactly_one_probes_and_the_others_wait_for_it(self, drive: Driver) -> None:
        await begin(drive)
        await close_for(drive, 100)
        drive.clock.advance(101)
        (probe,) = await drive.take()
        claims = await drive.claim("x")
        assert claims.jobs == []
        assert claims.next_due is None, "it is rung when the call has come back"
        await drive.settle(probe, spent=WELL)
        assert (await drive.pool("m")).closures == ()
        assert len(await drive.take("x")) == 1, "a tenth of twenty, the probe among them"

    async def test_i15_a_call_of_many_minutes_is_one_probe_and_opens(self, drive: Driver) -> None:
        """A renewed lease says that it is under way: giving it up would never open a slow provider's pool."""
        await begin(drive)
        await close_for(drive, 100)
        drive.clock.advance(101)
        (probe,) = await drive.take()
        for _ in range(30):
            drive.clock.advance(20)
            await drive.beat(probe)
            await drive.store.reclaim([])
            assert await drive.take("x") == []
        await drive.settle(probe, spent=WELL)
        assert (await drive.pool("m")).closures == ()
        assert len(await drive.take("x")) == 2, "a tenth of twenty"

    async def test_i15_a_silent_prober_is_replaced_when_its_lease_is_over(self, drive: Driver) -> None:
        await begin(drive)
        await close_for(drive, 100)
        drive.clock.advance(101)
        await drive.take(lease=30.0)
        drive.clock.advance(29)
        await drive.store.reclaim([])
        assert await drive.take("x") == []
        drive.clock.advance(2)
        await drive.store.reclaim([])
        assert len(await drive.take("x")) == 1

    async def test_p14_i15_a_reclaimed_probe_is_replaced_at_once(self, drive: Driver) -> None:
        await begin(drive)
        await close_for(drive, 100)
        drive.clock.advance(101)
        await drive.take()
        await drive.store.reclaim(["w"])
        assert len(await drive.take("x")) == 1

    async def test_i15_a_refused_probe_closes_again(self, drive: Driver) -> None:
        await begin(drive)
        await close_for(drive, 100)
        drive.clock.advance(101)
        (probe,) = await drive.take()
        until = drive.clock.wall() + 500
        await drive.settle(probe, Release(), refusing("m", Reason.STATED, resets_at=until))
        assert await drive.take("x") == []
        (closure,) = (await drive.pool("m")).closures
        assert closure.times == 2
        assert closure.until == pytest.approx(until + 0.5)

    async def test_i15_a_probe_that_made_no_call_leaves_it_to_the_next(self, drive: Driver) -> None:
        await begin(drive)
        await close_for(drive, 100)
        drive.clock.advance(101)
        (probe,) = await drive.take()
        await drive.settle(probe, Release(), UNMADE)
        assert len(await drive.take()) == 1
        assert len((await drive.pool("m")).closures) == 1

    async def test_i15_only_the_probes_answer_opens(self, drive: Driver) -> None:
        await begin(drive)
        early = await drive.take_one("x")
        await close_for(drive, 100)
        drive.clock.advance(101)
        (probe,) = await drive.take()
        await drive.settle(early, spent=WELL)
        assert await drive.take() == []
        await drive.settle(probe, spent=WELL)
        assert len(await drive.take()) == 1, "a tenth of twenty, the probe among them"

    async def test_i15_a_ramp_follows_from_a_tenth_to_the_whole(self, drive: Driver) -> None:
        await begin(drive, 90)
        await close_for(drive, 100)
        drive.clock.advance(101)
        (probe,) = await drive.take()
        await drive.settle(probe, spent=WELL)
        share = (await drive.pool("m")).ramp
        assert share == pytest.approx(0.1)
        started = 1 + len(await drive.take())
        assert started <= 2, "a tenth of twenty"
        while (now := (await drive.pool("m")).ramp) is not None:
            drive.clock.advance(1)
            started += len(await drive.take())
            assert started <= 20 * now + 2
        assert started <= 21
