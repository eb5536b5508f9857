"""Conformance tests for `settle`: the effect of each outcome, and its answers OK, AGAIN, STALE and GONE."""

from __future__ import annotations

import pytest

from tidemill.contract.jobs import KNOWN_ID_SECONDS
from tidemill.core.claims import Settlement
from tidemill.core.operator_changes import CancelJobs, DeleteJobs
from tidemill.core.outcomes import (
    Cancellation,
    Crash,
    FinalFailure,
    JobRelease,
    Outcome,
    RetryLater,
    SmallerBatch,
    Snooze,
    Success,
    WriteAnswer,
)
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.core.transitions import UNKNOWN_TASK_SECONDS
from tidemill.testing.conformance.fixtures import SAMPLE_ERROR, StoreDriver, ids

OUTCOMES: list[Outcome] = [
    Success(b"1"),
    RetryLater(5.0, SAMPLE_ERROR),
    Snooze(5.0),
    FinalFailure(SAMPLE_ERROR),
    Cancellation("enough"),
    SmallerBatch("1"),
    JobRelease(),
    JobRelease(unknown=True),
    Crash(SAMPLE_ERROR),
]


class TestSettleAnswers:
    @pytest.mark.parametrize("outcome", OUTCOMES)
    async def test_j40_ok_then_again(self, driver: StoreDriver, outcome: Outcome) -> None:
        await driver.add("a")
        job = await driver.take_one()
        assert await driver.settle(job, outcome) is WriteAnswer.OK
        after = await driver.job("a")
        assert await driver.settle(job, outcome) is WriteAnswer.AGAIN
        assert await driver.settle(job, Success(b"2")) is WriteAnswer.AGAIN
        assert await driver.job("a") == after

    @pytest.mark.parametrize("outcome", OUTCOMES)
    async def test_j40_i6_stale_changes_nothing(self, driver: StoreDriver, outcome: Outcome) -> None:
        await driver.add("a")
        old = await driver.take_one()
        await driver.store.reclaim(["w"])
        assert await driver.settle(old, outcome) is WriteAnswer.STALE
        new = await driver.take_one("x")
        before = await driver.job("a")
        assert await driver.settle(old, outcome) is WriteAnswer.STALE
        assert await driver.job("a") == before
        assert await driver.settle(new) is WriteAnswer.OK
        assert await driver.settle(old, outcome) is WriteAnswer.STALE
        assert await driver.state("a") is State.DONE

    async def test_j40_i5_fence_and_claim_must_both_be_right(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        forged = [
            Settlement("a", job.fence, job.claim + 2, Success()),
            Settlement("a", job.fence + 1, job.claim, Success()),
            Settlement("a", 0, 0, Success()),
        ]
        assert (await driver.store.settle(forged)).answers == [WriteAnswer.STALE] * 3
        assert await driver.state("a") is State.RUNNING

    async def test_j40_one_item_never_stops_the_others(self, driver: StoreDriver) -> None:
        await driver.add(*"abcd")
        jobs = {job.id: job for job in await driver.take()}
        await driver.amend(CancelJobs(), "b")
        await driver.amend(CancelJobs(), "c")
        await driver.amend(DeleteJobs(), "c")
        await driver.settle(jobs["d"])
        items = [Settlement(job.id, job.fence, job.claim, Success()) for job in jobs.values()]
        answers = (await driver.store.settle(items)).answers
        assert answers == [WriteAnswer.OK, WriteAnswer.STALE, WriteAnswer.GONE, WriteAnswer.AGAIN]
        assert await driver.state("a") is State.DONE

    @pytest.mark.parametrize(
        ("outcomes", "state"),
        [
            ((Success(b"1"), FinalFailure(SAMPLE_ERROR)), State.DONE),
            ((FinalFailure(SAMPLE_ERROR), Success(b"1")), State.FAILED),
            ((Success(b"1"), Success(b"2")), State.DONE),
            ((RetryLater(5.0, SAMPLE_ERROR), Success(b"2")), State.SCHEDULED),
        ],
    )
    async def test_j40_twice_in_one_call_is_ok_and_again(
        self, driver: StoreDriver, outcomes: tuple[Outcome, Outcome], state: State
    ) -> None:
        await driver.add("a")
        job = await driver.take_one()
        both = [Settlement("a", job.fence, job.claim, outcome) for outcome in outcomes]
        assert (await driver.store.settle(both)).answers == [WriteAnswer.OK, WriteAnswer.AGAIN]
        after = await driver.job("a")
        assert (after.state, after.attempts) == (state, 1)
        assert after.result == (b"1" if state is State.DONE else None)

    async def test_j40_j82_a_pruned_job_remembers_its_claim(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(keep_done=Retention(age=0.0))})
        await driver.add("a")
        job = await driver.take_one()
        await driver.settle(job)
        assert (await driver.store.prune()).pruned == 1
        assert await driver.settle(job) is WriteAnswer.AGAIN
        other = Settlement("a", job.fence, job.claim + 2, Success())
        assert (await driver.store.settle([other])).answers == [WriteAnswer.GONE]
        driver.clock.advance(KNOWN_ID_SECONDS)
        await driver.store.prune()
        assert await driver.settle(job) is WriteAnswer.GONE

    async def test_j40_an_unknown_job_is_gone(self, driver: StoreDriver) -> None:
        assert (await driver.store.settle([Settlement("a", 1, 1, Success())])).answers == [WriteAnswer.GONE]

    async def test_j71_i19_a_cancelled_jobs_holder_is_refused(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        await driver.amend(CancelJobs("no"), "a")
        assert await driver.settle(job, Success(b"1")) is WriteAnswer.STALE
        after = await driver.job("a")
        assert (after.state, after.reason, after.result) == (State.CANCELLED, "no", None)

    async def test_j40_settles_and_claims_in_one_step(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(concurrency=1)})
        await driver.add(*"ab")
        job = await driver.take_one()
        settled = await driver.store.settle(
            [Settlement(job.id, job.fence, job.claim, Success())], driver.request(limit=5)
        )
        assert settled.answers == [WriteAnswer.OK]
        assert settled.claims is not None
        assert ids(settled.claims.jobs) == ["b"]

    async def test_j40_without_a_request_nothing_is_claimed(self, driver: StoreDriver) -> None:
        await driver.add("a")
        assert (await driver.store.settle([])).claims is None
        assert await driver.state("a") is State.READY


class TestSettleOutcomes:
    async def test_j41_done(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        driver.clock.advance(2.0)
        await driver.settle(job, Success(b'{"x":1}'))
        after = await driver.job("a")
        assert (after.state, after.result, after.attempts) == (State.DONE, b'{"x":1}', 1)
        assert (after.finished, after.error) == (driver.clock.wall(), None)

    async def test_j41_retry(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.settle(await driver.take_one(), RetryLater(5.0, SAMPLE_ERROR, priority=8))
        after = await driver.job("a")
        assert (after.state, after.attempts, after.error) == (State.SCHEDULED, 1, SAMPLE_ERROR)
        assert (after.due, after.priority) == (driver.clock.wall() + 5, 8)
        driver.clock.advance(5.0)
        assert (await driver.take_one()).attempt == 2

    async def test_j41_a_later_success_clears_the_error(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.settle(await driver.take_one(), RetryLater(0.0, SAMPLE_ERROR))
        await driver.settle(await driver.take_one(), Success())
        after = await driver.job("a")
        assert (after.state, after.error, after.attempts) == (State.DONE, None, 2)

    async def test_j41_fail(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.settle(await driver.take_one(), FinalFailure(SAMPLE_ERROR, "gave up"))
        after = await driver.job("a")
        assert (after.state, after.error, after.reason) == (State.FAILED, SAMPLE_ERROR, "gave up")
        assert (after.attempts, after.finished) == (1, driver.clock.wall())

    async def test_j41_cancelled(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.settle(await driver.take_one(), Cancellation("by itself"))
        after = await driver.job("a")
        assert (after.state, after.reason) == (State.CANCELLED, "by itself")

    @pytest.mark.parametrize("outcome", [Snooze(5.0), JobRelease(), SmallerBatch("3")])
    async def test_j41_uncharged(self, driver: StoreDriver, outcome: Outcome) -> None:
        await driver.add("a")
        await driver.settle(await driver.take_one(), outcome)
        after = await driver.job("a")
        assert (after.attempts, after.crashes) == (0, 0)
        assert after.state is (State.SCHEDULED if isinstance(outcome, Snooze) else State.READY)
        assert after.part == "", "it has no batch"

    async def test_j41_a_crash_is_counted_apart(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.settle(await driver.take_one(), Crash(SAMPLE_ERROR))
        after = await driver.job("a")
        assert (after.state, after.crashes, after.attempts) == (State.READY, 1, 0)
        claimed = await driver.take_one()
        assert claimed.suspect

    async def test_j41_a_snoozed_job_says_why_until_it_runs_again(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.settle(await driver.take_one(), Snooze(5.0, "quota"))
        assert (await driver.job("a")).note == "quota"
        driver.clock.advance(5.0)
        await driver.take_one()
        assert (await driver.job("a")).note is None

    async def test_j41_an_unknown_task_waits_for_a_worker_that_knows_it(self, driver: StoreDriver) -> None:
        """A worker gives back a job whose task it does not know. The job waits longer each time and loses no
        attempt. `unknown_for` is the sum of these waits."""
        await driver.add("a")
        waits = []
        for _ in range(3):
            await driver.settle(await driver.take_one(), JobRelease(unknown=True))
            job = await driver.job("a")
            assert (job.state, job.attempts) == (State.SCHEDULED, 0)
            waits.append(job.due - driver.clock.wall())
            driver.clock.step_wall(2 * UNKNOWN_TASK_SECONDS)
        assert waits == sorted(waits)
        assert job.unknown_for == pytest.approx(sum(waits))
        assert job.note == "worker w does not know this task"
