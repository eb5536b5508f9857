"""Conformance tests for amend: retry, cancel, delete, archive and reprioritise by an operator."""

from __future__ import annotations

import pytest

from tidemill.core.filters import Filter
from tidemill.core.operator_changes import (
    ArchiveJobs,
    CancelJobs,
    DeleteJobs,
    OperatorChange,
    ReprioritiseJobs,
    RetryJobs,
    RunJobsNow,
)
from tidemill.core.outcomes import FinalFailure, Snooze
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.testing.conformance.fixtures import SAMPLE_ERROR, StoreDriver, ids, new_job

DAY_SECONDS = 86_400.0


class TestAmend:
    async def test_j70_j71_cancel(self, driver: StoreDriver) -> None:
        await driver.add("a", new_job("b", delay=5.0), "c")
        (job,) = await driver.take(limit=1)
        amended = await driver.amend(CancelJobs("no more"), "a", "b", "c")
        assert (amended.changed, amended.unchanged) == (("a", "b", "c"), ())
        assert {(await driver.job(name)).reason for name in "abc"} == {"no more"}
        driver.clock.advance(9.0)
        assert await driver.take() == []
        assert await driver.settle(job) == "stale"

    async def test_j70_retry_is_a_new_generation(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.settle(await driver.take_one(), FinalFailure(SAMPLE_ERROR))
        driver.clock.advance(7.0)
        await driver.amend(RetryJobs(), "a")
        job = await driver.job("a")
        assert (job.state, job.generation, job.attempts) == (State.READY, 1, 0)
        assert (job.error, job.reason, job.finished, job.due) == (None, None, None, driver.clock.wall())
        claimed = await driver.take_one()
        assert (claimed.generation, claimed.attempt) == (1, 1)

    async def test_j70_cancel_skips_jobs_that_were_retried(self, driver: StoreDriver) -> None:
        await driver.add("a", "b", "c")
        await driver.amend(CancelJobs(), "b")
        await driver.amend(RetryJobs(), "b")
        amended = await driver.amend(CancelJobs("late", {"a": 0, "b": 0}), "a", "b", "c")
        assert (amended.changed, amended.unchanged) == (("a",), ("b", "c"))
        assert [await driver.state(name) for name in "abc"] == [State.CANCELLED, State.READY, State.READY]

    async def test_j70_i4_the_claim_of_the_old_generation_is_refused(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        await driver.settle(job)
        await driver.amend(RetryJobs(), "a")
        assert await driver.settle(job) == "stale"

    async def test_j70_run_now(self, driver: StoreDriver) -> None:
        await driver.add(new_job("a", delay=60.0))
        await driver.amend(RunJobsNow(), "a")
        assert (await driver.job("a")).due == driver.clock.wall()
        assert ids(await driver.take()) == ["a"]

    async def test_j70_reprioritise(self, driver: StoreDriver) -> None:
        await driver.add("a", new_job("b", delay=60.0))
        await driver.amend(ReprioritiseJobs(1), "a", "b")
        assert [(await driver.job(name)).priority for name in "ab"] == [1, 1]

    async def test_j70_an_archived_job_is_among_the_failed_ones(self, driver: StoreDriver) -> None:
        await driver.add("a", new_job("b", delay=5.0))
        amended = await driver.amend(ArchiveJobs("not this week"), "a", "b")
        assert amended.changed == ("a", "b")
        for name in "ab":
            job = await driver.job(name)
            assert (job.state, job.reason, job.error) == (State.FAILED, "not this week", None)
            assert (job.finished, job.attempts) == (driver.clock.wall(), 0)
        driver.clock.advance(9.0)
        assert await driver.take() == []
        await driver.amend(RetryJobs(), "b")
        assert ids(await driver.take()) == ["b"]

    async def test_j70_j72_archive_releases_a_successor(self, driver: StoreDriver) -> None:
        rerun = Unique("u", "rerun")
        await driver.add(new_job("a", unique=rerun))
        job = await driver.take_one()
        await driver.add(new_job("b", unique=rerun))
        await driver.settle(job, Snooze(60.0))
        assert (await driver.state("a"), await driver.state("b")) == (State.SCHEDULED, State.WAITING)
        await driver.amend(ArchiveJobs(), "a")
        assert await driver.state("b") is State.READY

    async def test_j70_j80_archived_jobs_stay_as_long_as_failed_ones(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(keep_failed=Retention(age=60.0))})
        await driver.add("a")
        await driver.amend(ArchiveJobs(), "a")
        driver.clock.advance(59.0)
        assert (await driver.store.prune()).pruned == 0
        driver.clock.advance(1.0)
        assert (await driver.store.prune()).pruned == 1

    async def test_j70_j73_delete(self, driver: StoreDriver) -> None:
        await driver.add("a", "b")
        await driver.take(limit=1)
        amended = await driver.amend(DeleteJobs(), "a", "b")
        assert (amended.changed, amended.unchanged) == (("b",), ("a",))
        assert await driver.store.counts() == {"q": {State.RUNNING: 1}}
        assert await driver.add("b")
        assert await driver.state("b") is None

    @pytest.mark.parametrize(
        ("change", "unfit"),
        [
            (CancelJobs(), "done"),
            (ArchiveJobs(), "done"),
            (ArchiveJobs(), "running"),
            (RetryJobs(), "ready"),
            (RunJobsNow(), "ready"),
            (RunJobsNow(), "done"),
            (ReprioritiseJobs(1), "done"),
            (DeleteJobs(), "running"),
        ],
    )
    async def test_j70_a_job_in_a_wrong_state_is_reported(
        self, driver: StoreDriver, change: OperatorChange, unfit: str
    ) -> None:
        await driver.ended("done")
        await driver.add("running")
        await driver.take()
        await driver.add("ready")
        before = await driver.job(unfit)
        amended = await driver.amend(change, unfit, "never")
        assert (amended.changed, amended.unchanged) == ((), (unfit,))
        assert await driver.job(unfit) == before

    async def test_j70_by_filter_oldest_first_up_to_the_limit(self, driver: StoreDriver) -> None:
        await driver.add(*"abc", new_job("x", task="other"), "d")
        amended = await driver.store.amend(Filter(task="task"), CancelJobs(), 3)
        assert amended.changed == ("a", "b", "c")
        repeated = await driver.store.amend(Filter(task="task"), CancelJobs(), 3)
        assert repeated.unchanged == ("a", "b", "c")
        rest = await driver.store.amend(Filter(queue="q", states=(State.READY,)), CancelJobs())
        assert rest.changed == ("x", "d")
