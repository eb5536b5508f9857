"""Conformance tests for batches: when a batch is ready, and which jobs share a call."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.contract.coordination import queue_topic
from tidemill.core import batch_start as core_calls
from tidemill.core.batching import BatchPolicy
from tidemill.core.claims import ClaimedJob, Settlement
from tidemill.core.jobs import NewJob
from tidemill.core.limits import Limit
from tidemill.core.operator_changes import CancelJobs, RetryJobs
from tidemill.core.outcomes import JobRelease, RetryLater, SmallerBatch, Snooze
from tidemill.core.pools import PoolSettings
from tidemill.testing.conformance.fixtures import (
    SAMPLE_ERROR,
    CallCounter,
    StoreDriver,
    count_calls,
    ids,
    need,
    new_job,
)
from tidemill.testing.conformance.wakeups import arm_listener

LINGERING_BATCH = BatchPolicy(max_items=4, linger=10.0)
IMMEDIATE_BATCH = BatchPolicy(max_items=4)
LARGE_POOL = PoolSettings(limits=(Limit.requests(1000, per="minute"),))


def batch_jobs(names: str, rule: BatchPolicy = LINGERING_BATCH, **options: Any) -> list[NewJob]:
    """Returns one new job with the batch policy `rule` for each letter of `names`. The letter is the job
    id."""
    return [new_job(name, batching=rule, **options) for name in names]


def batch_ids(jobs: list[ClaimedJob]) -> list[str]:
    """Returns one string per call: the joined ids of its jobs. Asserts that the id of each call is the id of
    its first job."""
    found: list[list[ClaimedJob]] = []
    for job in jobs:
        if not found or not job.call or found[-1][0].call != job.call:
            found.append([])
        found[-1].append(job)
    assert all(job.call in ("", call[0].id) for call in found for job in call)
    return ["".join(ids(call)) for call in found]


@pytest.fixture
def batch_starts(monkeypatch: pytest.MonkeyPatch) -> CallCounter:
    """A fixture that returns a counter: how often the engine checked whether a batch can start."""
    return count_calls(monkeypatch, core_calls, "start_batch")


class TestBatchReadiness:
    async def test_b2_enough_jobs_start_at_once(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("abcdef"))
        claims = await driver.claim()
        assert batch_ids(claims.jobs) == ["abcd"]
        assert (claims.more, claims.batch_waits, claims.next_due) == (False, True, 10)

    async def test_b2_fewer_start_when_the_oldest_has_lingered(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("ab"))
        driver.clock.advance(4)
        await driver.add(*batch_jobs("c"))
        claims = await driver.claim()
        assert (claims.jobs, claims.more, claims.batch_waits, claims.next_due) == ([], False, True, 6)
        driver.clock.advance(6)
        claims = await driver.claim()
        assert batch_ids(claims.jobs) == ["abc"]
        assert (claims.more, claims.batch_waits, claims.next_due) == (False, False, None)

    async def test_b2_without_linger_a_batch_starts_at_once(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("abcdef", IMMEDIATE_BATCH))
        assert batch_ids(await driver.take()) == ["abcd", "ef"]

    async def test_b2_enough_units_make_a_batch(self, driver: StoreDriver) -> None:
        await driver.store.declare_pools({"m": PoolSettings(limits=(Limit.tokens(10_000, per="minute"),))})
        rule = BatchPolicy(max_items=9, linger=10, max_units={"tokens": 100})

        def of(name: str, tokens: float) -> NewJob:
            return new_job(name, batching=rule, needs=(need("m", tokens=tokens),))

        await driver.add(of("a", 60), of("b", 30))
        assert await driver.take() == []
        await driver.add(of("c", 20), of("d", 100), of("e", 150), of("f", 1))
        assert batch_ids(await driver.take()) == ["ab", "c", "d", "e"]
        driver.clock.advance(10)
        assert batch_ids(await driver.take()) == ["f"]

    async def test_b2_the_last_missing_job_opens_the_lane(
        self, driver: StoreDriver, batch_starts: CallCounter
    ) -> None:
        await driver.add(*batch_jobs("a"))
        assert (await driver.claim()).batch_waits
        assert batch_starts.since() <= 1
        for name in "bc":
            await driver.add(*batch_jobs(name))
            claims = await driver.claim()
            assert (claims.jobs, claims.more) == ([], False)
        assert batch_starts.since() == 0
        async with arm_listener(driver, queue_topic("q")) as listener:
            await driver.add(*batch_jobs("d"))
            assert await listener.wait(5)
        assert batch_ids(await driver.take()) == ["abcd"]

    async def test_b2_b6_a_split_call_does_not_start_waiting_jobs(
        self, driver: StoreDriver, batch_starts: CallCounter
    ) -> None:
        await driver.add(*batch_jobs("abcde"))
        called = await driver.take()
        assert batch_ids(called) == ["abcd"]
        split = [Settlement(job.id, job.fence, job.claim, SmallerBatch("1")) for job in called]
        await driver.store.settle(split)
        batch_starts.since()
        assert batch_ids(await driver.take()) == ["abcd"]
        assert batch_starts.since() == 1, "only the lane of the part is examined"

    async def test_b2_a_snoozed_job_counts_when_it_is_due(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("abc"), *batch_jobs("d", delay=5))
        claims = await driver.claim()
        assert (claims.jobs, claims.next_due) == ([], 5)
        driver.clock.advance(5)
        assert batch_ids(await driver.take()) == ["abcd"]

    async def test_b2_a_lane_that_loses_a_job_waits_for_another_job(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("abc"))
        assert await driver.take() == []
        await driver.amend(CancelJobs(), "b")
        await driver.add(*batch_jobs("d"))
        assert await driver.take() == []
        await driver.add(*batch_jobs("e"))
        assert batch_ids(await driver.take()) == ["acde"]

    async def test_b2_a_remaining_job_lingers_by_its_own_due_time(self, driver: StoreDriver) -> None:
        """A job that did not fit into a call waits for more jobs for `linger` seconds, counted from its own
        due time."""
        await driver.add(*batch_jobs("a"))
        assert await driver.take() == []
        driver.clock.advance(5)
        await driver.add(*batch_jobs("bcde"))
        claims = await driver.claim()
        assert (batch_ids(claims.jobs), claims.next_due) == (["abcd"], 10)
        driver.clock.advance(9)
        assert await driver.take() == []
        driver.clock.advance(1)
        assert batch_ids(await driver.take()) == ["e"]

    async def test_b2_a_paused_queue_reports_no_due_batch(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("ab"))
        assert (await driver.claim()).batch_waits
        await driver.store.pause("q")
        claims = await driver.claim()
        assert (claims.jobs, claims.batch_waits, claims.next_due) == ([], False, None)
        await driver.store.resume("q")
        driver.clock.advance(10)
        assert batch_ids(await driver.take()) == ["ab"]

    async def test_b2_a_released_job_has_already_waited(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("abcd"))
        for job in await driver.take():
            if job.id in "ab":
                await driver.settle(job, JobRelease())
            else:
                await driver.settle(job)
        driver.clock.advance(9)
        assert await driver.take() == []
        driver.clock.advance(1)
        assert batch_ids(await driver.take()) == ["ab"]

    async def test_b2_a_reboot_examines_the_lane_again(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("ab", BatchPolicy(max_items=4, linger=100)))
        assert await driver.take() == []
        driver.clock.reboot(after=60)
        await driver.reopen()
        claims = await driver.claim()
        assert (claims.jobs, claims.batch_waits, claims.next_due) == ([], True, 40)
        driver.clock.advance(40)
        assert batch_ids(await driver.take()) == ["ab"]

    @pytest.mark.parametrize("step", [-86_400, -3_600, -7, 7, 3_600, 86_400])
    async def test_b9_i26_a_clock_step_does_not_extend_the_linger(
        self, driver: StoreDriver, step: float
    ) -> None:
        await driver.add(*batch_jobs("a"))
        assert await driver.take() == []
        driver.clock.advance(8)
        driver.clock.step_wall(step)
        await driver.add(*batch_jobs("b", priority=1))
        started = await driver.take()
        driver.clock.advance(2)
        started += await driver.take()
        assert ids(started) == ["b", "a"]

    @pytest.mark.parametrize("lanes", [10_000])
    async def test_b2_lingering_lanes_cost_nothing(
        self, driver: StoreDriver, batch_starts: CallCounter, lanes: int
    ) -> None:
        """A claim does not examine each of 10 000 lanes that wait until their batch is full. The claim
        returns at once, and jobs of other lanes start."""
        for start in range(0, lanes, 1000):
            some = range(start, start + 1000)
            await driver.add(*[new_job(f"{n:05}", key=f"k{n}", batching=LINGERING_BATCH) for n in some])
        while (await driver.claim(limit=8)).more:
            pass
        assert batch_starts.since() <= lanes
        await driver.add("plain", new_job("keyed", key="k7"))
        assert ids(await driver.take(limit=8)) == ["plain", "keyed"]
        for _ in range(9):
            driver.clock.advance(1)
            assert await driver.take(limit=8) == []
        assert batch_starts.since() == 0
        await driver.add(
            *[new_job(f"{n:05}.{i}", key=f"k{n}", batching=LINGERING_BATCH) for n in (7, 8) for i in range(3)]
        )
        claims = await driver.claim(limit=8)
        assert [len(claims.jobs), claims.more, claims.batch_waits] == [8, False, True]
        assert batch_starts.since() <= 2
        assert {job.call for job in claims.jobs} == {"00007", "00008"}


class TestBatchMembers:
    async def test_b1_only_jobs_of_one_lane_share_a_call(self, driver: StoreDriver) -> None:
        """Only jobs with the same key, pools, pool key, task and queue share a call. Jobs without a batch
        policy run alone."""
        await driver.store.declare_pools(
            {"m": LARGE_POOL, "site": PoolSettings(limits=LARGE_POOL.limits, keyed=True)}
        )
        for at in "12":
            await driver.add(
                new_job(f"k{at}", key="k", batching=IMMEDIATE_BATCH),
                new_job(f"l{at}", key="l", batching=IMMEDIATE_BATCH),
                new_job(f"m{at}", needs=(need("m"),), batching=IMMEDIATE_BATCH),
                new_job(f"s{at}", needs=(need("site", "s"),), batching=IMMEDIATE_BATCH),
                new_job(f"t{at}", needs=(need("site", "t"),), batching=IMMEDIATE_BATCH),
                new_job(f"o{at}", task="other", batching=IMMEDIATE_BATCH),
                new_job(f"p{at}", batching=IMMEDIATE_BATCH),
            )
        await driver.add(new_job("q1", batching=IMMEDIATE_BATCH), queue="r")
        await driver.add(new_job("n1"), new_job("n2"))
        taken = await driver.take(shares=(("q", 100), ("r", 100)))
        assert set(batch_ids(taken)) == {f"{lane}1{lane}2" for lane in "klmstop"} | {"q1", "n1", "n2"}

    async def test_b1_a_call_keeps_the_order_of_its_lane(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("abcd"), *batch_jobs("e", priority=1))
        assert batch_ids(await driver.take()) == ["eabc"]

    async def test_b1_the_policy_of_the_first_job_decides(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("ab", BatchPolicy(max_items=2, linger=99)))
        await driver.add(*batch_jobs("cdefg", BatchPolicy(max_items=3, linger=99)))
        assert batch_ids(await driver.take()) == ["ab", "cde"]

    async def test_b1_lanes_take_turns_per_call(self, driver: StoreDriver) -> None:
        """Lanes take turns: each turn is one call, even if the call takes several jobs."""
        await driver.add(
            *batch_jobs("abcdef", BatchPolicy(max_items=2)), new_job("x", key="k"), new_job("y", key="l")
        )
        taken = await driver.take()
        assert batch_ids(taken) == ["ab", "x", "y", "cd", "ef"]

    async def test_b5_a_repeated_claim_keeps_calls_together(self, driver: StoreDriver) -> None:
        """A repeated claim returns the same calls with the same jobs. Here the jobs of two lanes were
        inserted in turns (a, b, a, b), and the most urgent job came last."""
        await driver.add(
            *[new_job(f"{lane}{n}", key=lane, batching=IMMEDIATE_BATCH) for n in range(3) for lane in "ab"]
        )
        await driver.add(new_job("b9", key="b", batching=IMMEDIATE_BATCH, priority=1), "plain")
        request = driver.request()
        first = (await driver.store.claim(request)).jobs
        repeated = (await driver.store.claim(request)).jobs
        assert batch_ids(first) == ["b9b0b1b2", "a0a1a2", "plain"]
        assert sorted(batch_ids(repeated)) == sorted(batch_ids(first))
        assert {job.id: job for job in repeated} == {job.id: job for job in first}

    async def test_b8_a_job_claimed_by_id_runs_alone(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("abc"))
        assert await driver.take() == []
        claims = await driver.claim(named="ba", shares=(), limit=2)
        assert batch_ids(claims.jobs) == ["b", "a"]
        assert (await driver.claim(named="c", shares=(), limit=0)).blocked == ("c",)
        driver.clock.advance(10)
        assert batch_ids(await driver.take()) == ["c"]


class TestBatchSplits:
    async def test_b6_parts_run_separately_and_at_once(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("abcd"))
        before = {job.id: await driver.job(job.id) for job in await driver.take()}
        for name, job in before.items():
            claimed = await self.held(driver, name)
            await driver.settle(claimed, SmallerBatch("1" if name in "ab" else "2"))
            after = await driver.job(name)
            assert (after.seq, after.attempts, after.due) == (job.seq, 0, job.due)
        await driver.add(*batch_jobs("e"))
        taken = await driver.take()
        assert batch_ids(taken) == ["ab", "cd"]
        assert [job.part for job in taken] == ["1", "1", "2", "2"]
        assert [job.attempt for job in taken] == [1] * 4

    async def held(self, driver: StoreDriver, name: str) -> ClaimedJob:
        return next(job for job in await driver.take(number=driver.numbers["w"]) if job.id == name)

    @pytest.mark.parametrize("outcome", [JobRelease(), Snooze(0), RetryLater(0, SAMPLE_ERROR)])
    async def test_b6_a_job_stays_in_its_part(
        self, driver: StoreDriver, outcome: JobRelease | Snooze | RetryLater
    ) -> None:
        await driver.add(*batch_jobs("abcd"))
        for job in await driver.take():
            await driver.settle(job, SmallerBatch(job.id))
        for job in await driver.take():
            await driver.settle(job, outcome)
        assert sorted(batch_ids(await driver.take())) == ["a", "b", "c", "d"]

    async def test_b6_a_manual_retry_leaves_the_part(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("ab", IMMEDIATE_BATCH))
        for job in await driver.take():
            await driver.settle(job, SmallerBatch(job.id))
        for job in await driver.take():
            await driver.settle(job)
        await driver.amend(RetryJobs(), "a", "b")
        assert batch_ids(await driver.take()) == ["ab"]
        assert (await driver.job("a")).part == ""

    async def test_b6_a_part_is_split_again(self, driver: StoreDriver) -> None:
        await driver.add(*batch_jobs("abcd"))
        for job in await driver.take():
            await driver.settle(job, SmallerBatch("left" if job.id in "abc" else "right"))
        for job in await driver.take():
            await driver.settle(job, SmallerBatch(job.part if job.id == "d" else f"left/{job.id == 'c'}"))
        assert sorted(batch_ids(await driver.take())) == ["ab", "c", "d"]
