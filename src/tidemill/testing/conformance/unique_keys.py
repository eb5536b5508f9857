"""Conformance tests for unique keys: one live job per queue and key, and the effect of a second request."""

from __future__ import annotations

import pytest

from tidemill.core.batching import BatchPolicy
from tidemill.core.jobs import NewJob
from tidemill.core.limits import Limit
from tidemill.core.operator_changes import CancelJobs, DeleteJobs, RetryJobs
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
)
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import InsertVerdict, QueueSettings, Retention
from tidemill.core.states import State
from tidemill.core.transitions import EXPIRED, REPLACED, SUPERSEDED
from tidemill.core.unique_keys import OnConflict, Unique
from tidemill.testing.conformance.fixtures import SAMPLE_ERROR, StoreDriver, ids, need, new_job

TOKEN_POOL = PoolSettings(limits=(Limit.tokens(1_000, per="minute"),))
FINAL_OUTCOMES: list[Outcome] = [Success(), FinalFailure(SAMPLE_ERROR), Cancellation("enough")]


def unique_job(job: str, on_conflict: OnConflict = "skip", **options: object) -> NewJob:
    unique = Unique("k", on_conflict, options.pop("period", None), options.pop("at_most", None))  # type: ignore[arg-type]
    return new_job(job, unique=unique, **options)


async def insert_verdicts(driver: StoreDriver, *jobs: NewJob) -> list[tuple[InsertVerdict, str]]:
    return [(answer.verdict, answer.id) for answer in await driver.add(*jobs)]


class TestUniqueSkip:
    async def test_j14_i11_the_holder_stands_for_the_request(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1"))
        assert await insert_verdicts(driver, unique_job("2")) == [(InsertVerdict.EXISTING, "1")]
        await driver.take()
        assert await insert_verdicts(driver, unique_job("3")) == [(InsertVerdict.EXISTING, "1")]
        assert (await driver.job("1")).payload == new_job("1").payload

    @pytest.mark.parametrize("end", FINAL_OUTCOMES)
    async def test_i11_the_key_ends_with_its_job(self, driver: StoreDriver, end: Outcome) -> None:
        await driver.add(unique_job("1"))
        await driver.settle(await driver.take_one(), end)
        assert await insert_verdicts(driver, unique_job("2")) == [(InsertVerdict.ACCEPTED, "2")]

    async def test_j14_unique_keys_apply_within_one_group(self, driver: StoreDriver) -> None:
        answers = await insert_verdicts(driver, unique_job("1"), unique_job("2"))
        assert answers == [(InsertVerdict.ACCEPTED, "1"), (InsertVerdict.EXISTING, "1")]

    async def test_j14_unique_keys_belong_to_one_queue(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1"))
        assert (await driver.add(unique_job("2"), queue="p"))[0].verdict is InsertVerdict.ACCEPTED

    async def test_i11_a_retry_and_a_snooze_keep_the_key(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1"))
        await driver.settle(await driver.take_one(), RetryLater(0.0, SAMPLE_ERROR))
        assert await insert_verdicts(driver, unique_job("2")) == [(InsertVerdict.EXISTING, "1")]
        await driver.settle(await driver.take_one(), Snooze(5.0))
        assert await insert_verdicts(driver, unique_job("3")) == [(InsertVerdict.EXISTING, "1")]

    async def test_i11_cancelled_expired_and_deleted_jobs_release_the_key(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1"))
        await driver.amend(CancelJobs(), "1")
        assert await insert_verdicts(driver, unique_job("2", expires=1.0)) == [(InsertVerdict.ACCEPTED, "2")]
        driver.clock.advance(1.0)
        await driver.store.prune()
        assert await insert_verdicts(driver, unique_job("3")) == [(InsertVerdict.ACCEPTED, "3")]
        await driver.amend(DeleteJobs(), "3")
        assert await insert_verdicts(driver, unique_job("4")) == [(InsertVerdict.ACCEPTED, "4")]

    async def test_j70_a_retried_job_has_no_key(self, driver: StoreDriver) -> None:
        await driver.ended(unique_job("1"))
        await driver.add(unique_job("2"))
        await driver.amend(RetryJobs(), "1")
        assert await insert_verdicts(driver, unique_job("3")) == [(InsertVerdict.EXISTING, "2")]


class TestUniqueMerge:
    async def test_j14_newest_payload_more_urgent_earlier(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1", priority=5, delay=60.0))
        answers = await insert_verdicts(
            driver, unique_job("2", "merge", priority=3, delay=10.0, payload="new")
        )
        assert answers == [(InsertVerdict.EXISTING, "1")]
        job = await driver.job("1")
        assert (job.priority, job.due) == (3, driver.clock.wall() + 10)
        assert job.payload == new_job("2", payload="new").payload
        await driver.add(unique_job("3", "merge", priority=9, delay=99.0))
        job = await driver.job("1")
        assert (job.priority, job.due) == (3, driver.clock.wall() + 10)

    async def test_j14_the_newest_request_sets_the_expiry(self, driver: StoreDriver) -> None:
        """A request that is merged into a job replaces the job's expiry. Otherwise the job would be cancelled
        at the old expiry, although it has the new data."""
        await driver.add(unique_job("1", expires=60.0))
        driver.clock.advance(50.0)
        await driver.add(unique_job("2", "merge", expires=3600.0))
        assert (await driver.job("1")).expires == driver.clock.wall() + 3600
        driver.clock.advance(3599.0)
        assert ids(await driver.take()) == ["1"]

    async def test_j14_a_request_for_now_makes_the_holder_ready(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1", delay=60.0))
        await driver.add(unique_job("2", "merge"))
        assert await driver.state("1") is State.READY
        assert ids(await driver.take()) == ["1"]

    async def test_j14_a_running_holder_is_not_changed(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1"))
        await driver.take()
        before = await driver.job("1")
        assert await insert_verdicts(driver, unique_job("2", "merge")) == [(InsertVerdict.EXISTING, "1")]
        assert await driver.job("1") == before

    async def test_j14_the_new_version_has_all_its_attempts(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1"))
        await driver.settle(await driver.take_one(), RetryLater(60.0, SAMPLE_ERROR))
        await driver.add(unique_job("2", "merge", payload="new"))
        assert (await driver.take_one()).attempt == 1

    async def test_j14_p11_a_new_payload_brings_its_needs(self, driver: StoreDriver) -> None:
        """A merged job gets the task, key and needs of the new payload. Otherwise it would run with the
        reservations of the old payload."""
        await driver.store.declare_pools({"m": TOKEN_POOL, "n": TOKEN_POOL})
        await driver.add(unique_job("1", key="k", task="old", needs=(need("m", tokens=100),)))
        await driver.add(unique_job("2", "merge", key="l", task="new", needs=(need("n", tokens=900),)))
        job = await driver.job("1")
        assert (job.task, job.key, job.needs) == ("new", "l", (need("n", tokens=900),))
        await driver.store.close_pool("m", by="anna")
        assert ids(await driver.take()) == ["1"]
        assert [await driver.used(pool, "tokens per minute") for pool in "mn"] == [0, 900]

    async def test_j14_p12_a_merged_job_waits_for_the_pool_of_the_new_payload(
        self, driver: StoreDriver
    ) -> None:
        await driver.store.declare_pools({"m": TOKEN_POOL, "n": TOKEN_POOL})
        await driver.store.close_pool("n", by="anna")
        await driver.add(
            unique_job("1", needs=(need("m", tokens=100),)), new_job("other", needs=(need("m", tokens=1),))
        )
        await driver.add(unique_job("2", "merge", needs=(need("n", tokens=100),)))
        assert ids(await driver.take()) == ["other"]
        await driver.store.open_pool("n")
        assert ids(await driver.take()) == ["1"]

    async def test_j14_b1_a_new_payload_brings_its_batch(self, driver: StoreDriver) -> None:
        """A merged job gets the batch policy of the new payload. Here job 1 could share its call only with
        jobs of the same part. After the merge, any job of its lane can share the call."""
        pair, shared = (
            BatchPolicy(max_items=2, linger=60.0),
            new_job("mate", batching=BatchPolicy(max_items=2)),
        )
        await driver.add(unique_job("1", batching=pair), new_job("2", batching=pair))
        for job in await driver.take():
            await driver.settle(job, SmallerBatch("p"))
        await driver.add(unique_job("3", "merge", batching=pair))
        assert ids(await driver.take()) == ["2"], "the other job waits for a batch"
        await driver.add(shared)
        assert [(job.id, job.call) for job in await driver.take()] == [("1", "1"), ("mate", "1")]

    async def test_j14_nothing_is_merged_into_an_expired_holder(self, driver: StoreDriver) -> None:
        """If the holder of the unique key has expired, a request becomes a new job. If it were merged into
        the expired job, the next claim would cancel both."""
        await driver.add(unique_job("1", "merge", expires=10.0))
        driver.clock.advance(11.0)
        assert await insert_verdicts(driver, unique_job("2", "merge")) == [(InsertVerdict.ACCEPTED, "2")]
        assert (await driver.job("1")).reason == EXPIRED
        assert ids(await driver.take()) == ["2"]


class TestUniqueReplace:
    async def test_j14_the_holder_is_cancelled(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1"))
        assert await insert_verdicts(driver, unique_job("2", "replace")) == [(InsertVerdict.ACCEPTED, "2")]
        old = await driver.job("1")
        assert (old.state, old.reason) == (State.CANCELLED, REPLACED)
        assert ids(await driver.take()) == ["2"]

    async def test_j14_a_running_holder_gets_a_successor(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1"))
        job = await driver.take_one()
        await driver.add(unique_job("2", "replace"))
        assert await driver.state("2") is State.WAITING
        assert await insert_verdicts(driver, unique_job("3", "replace")) == [(InsertVerdict.ACCEPTED, "3")]
        assert (await driver.job("2")).reason == REPLACED
        await driver.settle(job)
        assert ids(await driver.take()) == ["3"]

    async def test_i11_replacing_a_snoozed_holder_cancels_its_successor(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1"))
        job = await driver.take_one()
        await driver.add(unique_job("2", "rerun"))
        await driver.settle(job, Snooze(60.0))
        await driver.add(unique_job("3", "replace"))
        states = [await driver.state(name) for name in "123"]
        assert states == [State.CANCELLED, State.CANCELLED, State.READY]


class TestUniqueRerun:
    async def test_j14_a_pending_holder_is_merged_into(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1"))
        assert await insert_verdicts(driver, unique_job("2", "rerun", payload="new")) == [
            (InsertVerdict.EXISTING, "1")
        ]
        assert (await driver.job("1")).payload == new_job("2", payload="new").payload

    async def test_i11_one_waiting_successor_with_the_newest_payload(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1"))
        await driver.take()
        assert await insert_verdicts(driver, unique_job("2", "rerun")) == [(InsertVerdict.ACCEPTED, "2")]
        assert await insert_verdicts(driver, unique_job("3", "rerun", payload="new")) == [
            (InsertVerdict.EXISTING, "2")
        ]
        successor = await driver.job("2")
        assert (successor.state, successor.after) == (State.WAITING, "1")
        assert successor.payload == new_job("3", payload="new").payload
        assert await driver.take() == []

    @pytest.mark.parametrize("end", FINAL_OUTCOMES)
    async def test_j42_the_end_of_the_run_releases_it(self, driver: StoreDriver, end: Outcome) -> None:
        await driver.add(unique_job("1"))
        job = await driver.take_one()
        await driver.add(unique_job("2", "rerun"))
        await driver.settle(job, end)
        released = await driver.job("2")
        assert (released.state, released.after) == (State.READY, None)
        assert await insert_verdicts(driver, unique_job("3")) == [(InsertVerdict.EXISTING, "2")]
        assert ids(await driver.take()) == ["2"]

    async def test_j42_a_delayed_successor_is_scheduled(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1"))
        job = await driver.take_one()
        await driver.add(unique_job("2", "rerun", delay=60.0))
        await driver.settle(job)
        assert await driver.state("2") is State.SCHEDULED

    async def test_j42_a_retry_is_superseded(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1"))
        job = await driver.take_one()
        await driver.add(unique_job("2", "rerun"))
        assert await driver.settle(job, RetryLater(5.0, SAMPLE_ERROR)) == "ok"
        old = await driver.job("1")
        assert (old.state, old.reason) == (State.CANCELLED, SUPERSEDED)
        assert await driver.state("2") is State.READY
        assert await driver.settle(job, RetryLater(5.0, SAMPLE_ERROR)) == "again"

    @pytest.mark.parametrize("back", [Snooze(5.0), JobRelease(), Crash(SAMPLE_ERROR)])
    async def test_j42_a_run_that_comes_back_keeps_it_waiting(
        self, driver: StoreDriver, back: Outcome
    ) -> None:
        await driver.add(unique_job("1"))
        job = await driver.take_one()
        await driver.add(unique_job("2", "rerun"))
        await driver.settle(job, back)
        assert await driver.state("2") is State.WAITING
        driver.clock.advance(5.0)
        assert ids(await driver.take()) == ["1"]

    async def test_j72_cancel_delete_expiry_and_poison_release_it_too(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(crash_limit=1)})
        await driver.add(unique_job("1"))
        await driver.take()
        await driver.add(unique_job("2", "rerun"))
        await driver.amend(CancelJobs(), "1")
        await driver.settle(await driver.take_one(), Crash(SAMPLE_ERROR))
        await driver.add(unique_job("3"))
        job = await driver.take_one()
        await driver.add(unique_job("4", "rerun", expires=9.0))
        await driver.settle(job, Snooze(60.0))
        await driver.amend(DeleteJobs(), "3")
        assert await driver.state("4") is State.READY

    async def test_i11_merging_into_a_retried_holder_ends_its_successor(self, driver: StoreDriver) -> None:
        """Job 1 has a successor and is snoozed: it runs again after a delay. A new request is merged into job
        1 and cancels the successor, whose data is older."""
        await driver.add(unique_job("1"))
        job = await driver.take_one()
        await driver.add(unique_job("2", "rerun"))
        await driver.settle(job, Snooze(60.0))
        await driver.add(unique_job("3", "rerun", payload="new"))
        assert (await driver.job("2")).reason == REPLACED
        assert (await driver.take_one()).payload == new_job("3", payload="new").payload


class TestUniquePeriod:
    async def test_i11_holds_through_the_end_until_the_period_is_over(self, driver: StoreDriver) -> None:
        await driver.ended(unique_job("1", period=60.0))
        assert await insert_verdicts(driver, unique_job("2")) == [(InsertVerdict.EXISTING, "1")]
        assert await insert_verdicts(driver, unique_job("3", "replace")) == [(InsertVerdict.EXISTING, "1")]
        driver.clock.advance(60.0)
        assert await insert_verdicts(driver, unique_job("4")) == [(InsertVerdict.ACCEPTED, "4")]

    async def test_i11_a_period_ends_under_a_live_job_too(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1", period=60.0))
        driver.clock.advance(60.0)
        assert await insert_verdicts(driver, unique_job("2")) == [(InsertVerdict.ACCEPTED, "2")]

    async def test_j81_the_job_is_kept_as_long_as_its_key(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(keep_done=Retention(age=0.0))})
        await driver.ended(unique_job("1", period=60.0))
        assert (await driver.store.prune()).pruned == 0
        driver.clock.advance(60.0)
        assert (await driver.store.prune()).pruned == 1

    async def test_i11_at_most_ends_with_the_job(self, driver: StoreDriver) -> None:
        await driver.ended(unique_job("1", at_most=60.0))
        assert await insert_verdicts(driver, unique_job("2")) == [(InsertVerdict.ACCEPTED, "2")]

    async def test_i11_at_most_ends_after_its_time(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1", at_most=60.0))
        await driver.take()
        driver.clock.advance(59.0)
        assert await insert_verdicts(driver, unique_job("2")) == [(InsertVerdict.EXISTING, "1")]
        driver.clock.advance(1.0)
        assert await insert_verdicts(driver, unique_job("3")) == [(InsertVerdict.ACCEPTED, "3")]

    async def test_i11_a_successor_holds_the_key_its_holder_lost(self, driver: StoreDriver) -> None:
        await driver.add(unique_job("1", at_most=60.0))
        await driver.take()
        driver.clock.advance(59.0)
        await driver.add(unique_job("2", "rerun", at_most=60.0))
        driver.clock.advance(2.0)
        assert await insert_verdicts(driver, unique_job("3")) == [(InsertVerdict.EXISTING, "2")]
