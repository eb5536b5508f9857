"""Conformance tests for the worklist: which flows and schedules have to be advanced."""

from __future__ import annotations

from tidemill.contract.coordination import document_topic, worklist_topic
from tidemill.core.documents import MAX_CHANGES_PER_DOCUMENT
from tidemill.core.filters import Filter
from tidemill.core.operator_changes import CancelJobs, DeleteJobs, RetryJobs
from tidemill.core.outcomes import FinalFailure, JobRelease, RetryLater, Success
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State
from tidemill.testing.conformance.documents import (
    FLOW,
    SCHEDULE,
    advance_to,
    consume_worklist,
    flow_job,
    load_job_changes,
    load_work_items,
    run_advances,
    run_job,
)
from tidemill.testing.conformance.fixtures import SAMPLE_ERROR, StoreDriver, ids


class TestWorklist:
    async def test_f10_an_ended_job_is_listed_until_it_is_taken(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("f", 0, flow_job("a"), flow_job("b")))
        assert await load_work_items(driver) == []
        await run_job(driver, "a", Success())
        await run_job(driver, "b", FinalFailure(SAMPLE_ERROR))
        (item,) = await load_work_items(driver)
        assert [(end.job, end.state) for end in item.changes] == [("a", State.DONE), ("b", State.FAILED)]
        await run_advances(driver, advance_to("f", 1, taken=(item.changes[0].number,)))
        assert await load_job_changes(driver) == {"f": [("b", State.FAILED)]}
        await run_advances(driver, advance_to("f", 2, taken=(item.changes[1].number,)))
        assert await load_work_items(driver) == []

    async def test_f10_a_refused_advance_takes_no_work_items(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("f", 0, flow_job("a")))
        await run_job(driver, "a", Success())
        (item,) = await load_work_items(driver)
        await run_advances(driver, advance_to("f", 7, taken=(item.changes[0].number,)))
        assert await load_work_items(driver) == [item]

    async def test_f10_only_ends_are_work_items(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("f", 0, flow_job("a")))
        await run_job(driver, "a", RetryLater(0, SAMPLE_ERROR))
        await run_job(driver, "a", JobRelease())
        assert await load_work_items(driver) == []

    async def test_f10_jobs_without_a_flow_add_no_work_item(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("f"), advance_to("s", kind=SCHEDULE))
        await driver.ended("a")
        assert await load_work_items(driver) == await load_work_items(driver, SCHEDULE) == []

    async def test_f10_every_way_to_end_a_job_adds_a_work_item(self, driver: StoreDriver) -> None:
        names = ("cancelled", "cancelled-running", "expired", "pruned", "deleted", "archived")
        jobs = [flow_job(name, expires=5 if name in ("expired", "pruned") else None) for name in names]
        await run_advances(driver, advance_to("f", 0, *jobs))
        await driver.take(named=["cancelled-running"])
        await driver.amend(CancelJobs(), "cancelled", "cancelled-running")
        await driver.amend(DeleteJobs(), "deleted")
        driver.clock.advance(6)
        assert ids(await driver.take(named=["expired"])) == []
        await driver.store.prune()
        found = (await load_job_changes(driver))["f"]
        both = [("cancelled", State.CANCELLED), ("cancelled-running", State.CANCELLED)]
        assert found[:3] == [*both, ("deleted", None)]
        assert sorted(found[3:]) == [("expired", State.CANCELLED), ("pruned", State.CANCELLED)]

    async def test_f10_a_poisoned_job_is_a_work_item(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(crash_limit=1)})
        await run_advances(driver, advance_to("f", 0, flow_job("a")))
        for _ in range(2):
            await driver.take()
            driver.clock.advance(31)
            await driver.store.reclaim()
        assert await load_job_changes(driver) == {"f": [("a", State.FAILED)]}

    async def test_f10_a_retried_job_is_a_work_item(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("f", 0, flow_job("a")))
        await run_job(driver, "a", FinalFailure(SAMPLE_ERROR))
        await consume_worklist(driver)
        await driver.amend(RetryJobs(), "a")
        assert await load_job_changes(driver) == {"f": [("a", State.READY)]}
        await run_job(driver, "a", Success())
        assert await load_job_changes(driver) == {"f": [("a", State.DONE), ("a", State.DONE)]}

    async def test_f10_a_newer_end_is_not_taken_with_the_old_one(self, driver: StoreDriver) -> None:
        """A job fails, a worker reads this change, and an operator retries the job. When the worker then
        advances the flow, only the change that it has read leaves the worklist."""
        await run_advances(driver, advance_to("f", 0, flow_job("a")))
        await run_job(driver, "a", FinalFailure(SAMPLE_ERROR))
        (item,) = await load_work_items(driver)
        await driver.amend(RetryJobs(), "a")
        await run_advances(driver, advance_to("f", 1, taken=tuple(end.number for end in item.changes)))
        assert await load_job_changes(driver) == {"f": [("a", State.READY)]}

    async def test_f10_many_ends_come_in_pages(self, driver: StoreDriver) -> None:
        count = MAX_CHANGES_PER_DOCUMENT + 3
        for start in range(0, count, MAX_CHANGES_PER_DOCUMENT):
            some = range(start, min(start + MAX_CHANGES_PER_DOCUMENT, count))
            await run_advances(
                driver,
                advance_to("f", start // MAX_CHANGES_PER_DOCUMENT, *(flow_job(f"{n:04}") for n in some)),
            )
        await driver.store.amend(Filter(flow="f"), CancelJobs())
        (item,) = await load_work_items(driver)
        assert [end.job for end in item.changes] == [f"{n:04}" for n in range(MAX_CHANGES_PER_DOCUMENT)]
        await run_advances(driver, advance_to("f", 2, taken=tuple(end.number for end in item.changes)))
        assert [job for job, _ in (await load_job_changes(driver))["f"]] == [
            f"{n:04}" for n in range(MAX_CHANGES_PER_DOCUMENT, count)
        ]

    async def test_f10_an_advance_can_ask_for_another_advance(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("f", requeue=True))
        (item,) = await load_work_items(driver)
        assert [(end.job, end.state) for end in item.changes] == [("", None)]
        await run_advances(driver, advance_to("f", 1, taken=(item.changes[0].number,)))
        assert await load_work_items(driver) == []

    async def test_f11_due_documents_are_on_the_worklist(self, driver: StoreDriver) -> None:
        now = driver.clock.wall()
        await run_advances(
            driver,
            advance_to("late", kind=SCHEDULE, next={"due": now + 20}),
            advance_to("soon", kind=SCHEDULE, next={"due_in": 10.0}),
            advance_to("never", kind=SCHEDULE),
        )
        assert await driver.store.worklist(SCHEDULE) == await driver.store.worklist(SCHEDULE, 1)
        assert (await driver.store.worklist(SCHEDULE)).next_due == 10
        driver.clock.advance(10)
        worklist = await driver.store.worklist(SCHEDULE)
        assert ([item.document.id for item in worklist.work_items], worklist.next_due) == (["soon"], 10)
        driver.clock.advance(15)
        worklist = await driver.store.worklist(SCHEDULE)
        assert ([item.document.id for item in worklist.work_items], worklist.next_due) == (
            ["soon", "late"],
            None,
        )
        await run_advances(driver, advance_to("soon", 1, kind=SCHEDULE, next={"due": now + 100}))
        worklist = await driver.store.worklist(SCHEDULE)
        assert ([item.document.id for item in worklist.work_items], worklist.next_due) == (["late"], 75)

    async def test_f10_documents_with_work_items_come_first_and_ids_filter(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("due", next={"due_in": 0.0}))
        for name in ("f", "g", "h"):
            await run_advances(driver, advance_to(name, requeue=True))
        assert [item.document.id for item in await load_work_items(driver)] == ["f", "g", "h", "due"]
        some = await driver.store.worklist(FLOW, 2)
        assert [item.document.id for item in some.work_items] == ["f", "g"]
        meant = await driver.store.worklist(FLOW, 9, ["h", "due", "none"])
        assert [item.document.id for item in meant.work_items] == ["h", "due"]


class TestDocumentWakeups:
    async def test_w5_new_work_items_wake(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("f", 0, flow_job("a")))
        listener = driver.store.listen([worklist_topic(FLOW)])
        listener.arm()
        await run_job(driver, "a", Success())
        assert await listener.wait(5)
        listener.arm()
        await run_advances(driver, advance_to("g", next={"due_in": 5.0}))
        assert await listener.wait(5)
        listener.close()

    async def test_w5_the_end_of_a_document_wakes(self, driver: StoreDriver) -> None:
        await run_advances(driver, advance_to("f"))
        listener = driver.store.listen([document_topic(FLOW, "f")])
        listener.arm()
        await run_advances(driver, advance_to("f", 1, next={"state": "done", "keep": 9.0}))
        assert await listener.wait(5)
        listener.close()
