"""Conformance tests for prune: retention of jobs, and of jobs that belong to a flow."""

from __future__ import annotations

from tidemill.core.documents import AdvanceResult
from tidemill.core.operator_changes import (
    CancelJobs,
)
from tidemill.core.outcomes import FinalFailure, Success
from tidemill.core.queues import DAY_SECONDS, QueueSettings, Retention
from tidemill.core.states import State
from tidemill.testing.conformance.documents import (
    FLOW,
    advance_to,
    flow_job,
    load_work_items,
    run_advances,
    run_job,
)
from tidemill.testing.conformance.fixtures import SAMPLE_ERROR, StoreDriver, new_job


class TestFlowRetention:
    async def test_j83_a_queue_does_not_prune_flow_jobs(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(keep_done=Retention(age=1, count=1))})
        await run_advances(driver, advance_to("f", 0, flow_job("a"), flow_job("b"), flow_job("c")))
        await driver.add("x", "y")
        for job in "abcxy":
            await run_job(driver, job, Success())
        driver.clock.advance(10)
        assert (await driver.store.prune()).pruned == 2
        assert await driver.store.counts() == {"q": {State.DONE: 3}}

    async def test_j80_j83_flow_jobs_do_not_count_for_retention(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(keep_done=Retention(count=2))})
        await run_advances(driver, advance_to("f", 0, flow_job("a"), flow_job("b"), flow_job("c")))
        await driver.add("x", "y", "z")
        for job in "abcxyz":
            await run_job(driver, job, Success())
            driver.clock.advance(1)
        assert (await driver.store.prune()).pruned == 1
        await run_advances(driver, advance_to("f", 1, next={"state": "done", "keep": 0.0}))
        assert (await driver.store.prune()).pruned == 4
        assert (await driver.store.prune()).pruned == 0
        assert await driver.store.counts() == {"q": {State.DONE: 2}}

    async def test_j83_flow_jobs_go_with_their_flow(self, driver: StoreDriver) -> None:
        await run_advances(
            driver, advance_to("f", 0, flow_job("a"), flow_job("b")), advance_to("g", 0, flow_job("c", "g"))
        )
        for job in "abc":
            await run_job(driver, job, Success())
        await run_advances(driver, advance_to("f", 1, next={"state": "done", "keep": 60.0}))
        driver.clock.advance(59)
        assert (await driver.store.prune()).pruned == 0
        driver.clock.advance(1)
        assert (await driver.store.prune()).pruned == 3
        assert await driver.store.documents(FLOW, ["f"]) == [None]
        assert await driver.store.counts() == {"q": {State.DONE: 1}}
        assert [item.document.id for item in await load_work_items(driver)] == ["g"]
        assert await run_advances(driver, advance_to("f")) == [AdvanceResult(False, None)]

    async def test_j83_pruning_a_flow_respects_the_limit(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("f", 0, *(flow_job(job) for job in "abc")))
        await driver.amend(CancelJobs(), *"abc")
        await run_advances(driver, advance_to("f", 1, next={"state": "cancelled", "keep": 0.0}))
        rounds = [await driver.store.prune(2), await driver.store.prune(2)]
        assert [(result.pruned, result.more) for result in rounds] == [(2, True), (2, True)]
        assert await driver.store.documents(FLOW, ["f"]) == [None]
        assert await driver.store.counts() == {}

    async def test_j83_a_live_job_keeps_its_flow(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("f", 0, flow_job("a"), flow_job("b")))
        await driver.amend(CancelJobs(), "b")
        await run_advances(driver, advance_to("f", 1, next={"state": "cancelled", "keep": 0.0}))
        driver.clock.advance(DAY_SECONDS)
        await driver.store.prune()
        assert await driver.state("a") is State.READY
        assert (await driver.store.documents(FLOW, ["f"]))[0] is not None


class TestPrune:
    async def test_j80_by_age_oldest_ended_first(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(keep_done=Retention(age=60.0))})
        for name in "abc":
            await driver.ended(name)
            driver.clock.advance(30.0)
        pruned = await driver.store.prune()
        assert (pruned.pruned, pruned.more) == (2, False)
        assert [await driver.state(name) for name in "abc"] == [None, None, State.DONE]

    async def test_j80_by_count_per_state(self, driver: StoreDriver) -> None:
        keep = Retention(count=2)
        await driver.store.declare({"q": QueueSettings(keep_done=keep, keep_failed=keep)})
        for name in "abc":
            driver.clock.advance(1.0)
            await driver.ended(name)
        await driver.add("x")
        await driver.settle(await driver.take_one(), FinalFailure(SAMPLE_ERROR))
        assert (await driver.store.prune()).pruned == 1
        assert [await driver.state(name) for name in "abcx"] == [None, "done", "done", "failed"]

    async def test_j80_each_queue_keeps_its_own(self, driver: StoreDriver) -> None:
        await driver.store.declare({"p": QueueSettings(keep_done=Retention(count=0))})
        await driver.ended("a")
        await driver.ended("b", queue="p")
        await driver.store.prune()
        assert [await driver.state(name) for name in "ab"] == [State.DONE, None]

    async def test_j80_no_bound_keeps_everything(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(keep_done=Retention())})
        await driver.ended("a")
        driver.clock.advance(1000 * DAY_SECONDS)
        assert (await driver.store.prune()).pruned == 0

    async def test_j80_prune_reports_more_at_its_limit(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(keep_done=Retention(count=0))})
        await driver.ended(*"abcde")
        first = await driver.store.prune(2)
        assert (first.pruned, first.more) == (2, True)
        rest = await driver.store.prune(10)
        assert (rest.pruned, rest.more) == (3, False)

    async def test_j84_jobs_pruned_by_number_before_their_age_are_counted(self, driver: StoreDriver) -> None:
        retention = Retention(age=60.0, count=1)
        await driver.store.declare(
            {"q": QueueSettings(keep_done=retention), "p": QueueSettings(keep_done=retention)}
        )
        for name in "abcd":
            await driver.ended(name)
            driver.clock.advance(25.0)
        await driver.ended("e", queue="p")
        pruned = await driver.store.prune()
        assert (pruned.pruned, pruned.early) == (3, {"q": 1})
        assert [await driver.state(name) for name in "abcde"] == [None, None, None, "done", "done"]
        assert sum(minute.dropped_early for minute in await driver.store.history("q", 0.0)) == 1
        assert sum(minute.dropped_early for minute in await driver.store.history("p", 0.0)) == 0
        assert (await driver.store.prune()).early == {}

    async def test_j84_without_an_age_limit_no_prune_is_early(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(keep_done=Retention(count=1))})
        await driver.ended(*"abc")
        assert (await driver.store.prune()).early == {}
        assert sum(minute.dropped_early for minute in await driver.store.history("q", 0.0)) == 0

    async def test_j84_several_prunes_add_up(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(keep_done=Retention(age=60.0, count=1))})
        await driver.ended(*"abcdef")
        rounds = [await driver.store.prune(2) for _ in range(4)]
        assert [entry.early for entry in rounds] == [{"q": 2}, {"q": 2}, {"q": 1}, {}]
        assert sum(entry.dropped_early for entry in await driver.store.history("q", 0.0)) == 5

    async def test_j80_live_jobs_stay(self, driver: StoreDriver) -> None:
        keep = Retention(age=0.0, count=0)
        await driver.store.declare(
            {"q": QueueSettings(keep_done=keep, keep_failed=keep, keep_cancelled=keep)}
        )
        await driver.add("a", "b", new_job("c", delay=9 * DAY_SECONDS))
        await driver.take(limit=1)
        driver.clock.advance(DAY_SECONDS)
        assert (await driver.store.prune()).pruned == 0

    async def test_j36_expired_jobs_are_cancelled_in_every_pending_state(self, driver: StoreDriver) -> None:
        await driver.add(new_job("a", expires=5.0), new_job("b", expires=5.0, delay=60.0), "c")
        driver.clock.advance(5.0)
        assert (await driver.store.prune()).expired == 2
        assert [await driver.state(name) for name in "abc"] == ["cancelled", "cancelled", "ready"]

    async def test_j82_attempts_logs_and_checkpoints_go_with_their_job(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(keep_failed=Retention(count=0))})
        await driver.add("a")
        await driver.settle(await driver.take_one(), FinalFailure(SAMPLE_ERROR))
        assert len(await driver.store.attempts("a")) == 1
        await driver.store.prune()
        assert await driver.store.attempts("a") == []
        assert await driver.store.counts() == {}
