"""Conformance tests for the maintenance methods of a store (describe, check, backup, compact), leadership and
store handles."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from tidemill.core.documents import Advance, DocumentKind, DocumentUpdate
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job, JobGroup
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import FinalFailure, RetryLater
from tidemill.core.queues import (
    InsertVerdict,
    QueueSettings,
)
from tidemill.core.states import State
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.fixtures import SAMPLE_ERROR, StoreDriver, ids, new_job


async def create_jobs_in_many_states(driver: StoreDriver) -> None:
    """Creates jobs in many states. Jobs `e` and `f` have the same key, "k", and the queue runs one job per
    key, so only one of them can run."""
    await driver.store.declare({"q": QueueSettings(key_concurrency=1)})
    await driver.add(*"abcd", new_job("e", key="k"), new_job("f", key="k"), new_job("g", delay=9.0))
    jobs = await driver.take()
    for job, outcome in zip(
        jobs, (None, FinalFailure(SAMPLE_ERROR), RetryLater(5.0, SAMPLE_ERROR)), strict=False
    ):
        await driver.settle(job, outcome)


def list_folder(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


class TestMaintenance:
    async def test_u1_describe_names_the_store(self, driver: StoreDriver) -> None:
        await create_jobs_in_many_states(driver)
        before = await driver.store.counts()
        facts = await driver.store.describe()
        assert facts.kind
        assert facts.engine
        assert facts.location
        assert all(warning.strip() for warning in facts.warnings)
        assert await driver.store.counts() == before

    async def test_u2_check_reports_no_damage_in_a_used_store(self, driver: StoreDriver) -> None:
        assert await driver.store.check() == ()
        await create_jobs_in_many_states(driver)
        assert await driver.store.check() == ()
        driver.clock.advance(60.0)
        await driver.take("x")
        assert await driver.store.check() == ()

    async def test_u3_a_target_that_exists_is_refused(self, driver: StoreDriver, tmp_path: Path) -> None:
        target = tmp_path / "copy"
        target.write_text("mine")
        before = list_folder(tmp_path)
        with pytest.raises(ConfigurationError):
            await driver.store.backup(target)
        assert target.read_text() == "mine"
        assert list_folder(tmp_path) == before

    async def test_u4_compacting_changes_no_job(self, driver: StoreDriver) -> None:
        await create_jobs_in_many_states(driver)
        before = await driver.store.get([*"abcdefg"])
        await driver.store.compact()
        assert await driver.store.get([*"abcdefg"]) == before
        assert await driver.store.check() == ()
        driver.clock.advance(9.0)
        assert sorted(ids(await driver.take())) == ["b", "f", "g"]


class TestLeadership:
    async def test_c1_one_worker_leads_until_its_lease_ends(self, driver: StoreDriver) -> None:
        assert await is_leader(driver, "w", "prune") == ("prune",)
        assert await is_leader(driver, "x", "prune") == ()
        assert await is_leader(driver, "x", "reclaim", "prune", "upkeep") == ("reclaim", "upkeep")
        driver.clock.advance(9.0)
        assert await is_leader(driver, "w", "upkeep", "prune") == ("prune",)
        driver.clock.advance(9.0)
        assert await is_leader(driver, "x", "prune") == ()
        driver.clock.advance(1.0)
        assert await is_leader(driver, "x", "prune") == ("prune",)

    async def test_c1_a_waiting_worker_learns_when_the_lease_ends(self, driver: StoreDriver) -> None:
        led = await driver.store.lead(["prune", "reclaim"], "w", 10.0)
        assert led.free_in is None
        driver.clock.advance(4.0)
        await driver.store.lead(["reclaim"], "w", 10.0)
        led = await driver.store.lead(["prune", "reclaim"], "x", 10.0)
        assert led.leads == ()
        assert led.free_in == pytest.approx(6.0)
        assert led.clock == await driver.store.read_clock()
        driver.clock.advance(6.0)
        led = await driver.store.lead(["prune", "reclaim"], "x", 10.0)
        assert led.leads == ("prune",)
        assert led.free_in == pytest.approx(4.0)

    async def test_c2_resigning_lets_another_lead_at_once(self, driver: StoreDriver) -> None:
        await is_leader(driver, "w", "prune", "reclaim")
        await driver.store.resign(["prune", "reclaim"], "x")
        assert await is_leader(driver, "x", "prune", "reclaim") == ()
        await driver.store.resign(["prune", "nobody's"], "w")
        assert await is_leader(driver, "x", "prune", "reclaim") == ("prune",)

    async def test_c3_lead_reports_the_work_that_is_due(self, driver: StoreDriver) -> None:
        led = await driver.store.lead([], "w", 10.0)
        assert (led.leads, led.free_in) == ((), None)
        assert led.dues == {DocumentKind.FLOW: None, DocumentKind.SCHEDULE: None}
        due = driver.clock.wall() + 30.0
        begins = DocumentUpdate(name="n", state="active", record=b"{}", due=due)
        await driver.store.advance(
            [
                Advance(kind=DocumentKind.SCHEDULE, id="nightly", expected=0, next=begins),
                Advance(
                    kind=DocumentKind.FLOW, id="dub", expected=0, next=replace(begins, due=None), requeue=True
                ),
            ]
        )
        assert (await driver.store.lead([], "w", 10.0)).dues == {
            DocumentKind.FLOW: 0.0,
            DocumentKind.SCHEDULE: 30.0,
        }
        driver.clock.advance(31.0)
        assert (await driver.store.lead([], "w", 10.0)).dues == {
            DocumentKind.FLOW: 0.0,
            DocumentKind.SCHEDULE: 0.0,
        }


async def is_leader(driver: StoreDriver, worker: str, *duties: str) -> tuple[str, ...]:
    return (await driver.store.lead(duties, worker, 10.0)).leads


class TestStoreHandles:
    async def test_s3_another_handle_sees_the_same(self, driver: StoreDriver) -> None:
        other = await driver.store.new_handle().open()
        try:
            await driver.add("a")
            assert ids((await StoreDriver(other, driver.clock).claim("x")).jobs) == ["a"]
            assert await driver.state("a") is State.RUNNING
        finally:
            await other.close()

    async def test_s2_closing_twice_is_harmless(self, driver: StoreDriver) -> None:
        other = await driver.store.new_handle().open()
        await other.close()
        await other.close()
        await driver.add("a")

    async def test_s3_blocking_verbs_work_on_a_thread_without_a_loop(self, driver: StoreDriver) -> None:
        """A thread without an event loop can insert, cancel and read jobs. It uses the store's blocking
        methods, or else its own event loop and a second store handle."""
        blocking = driver.store.blocking
        group, job_filter = JobGroup("q", (new_job("a"),)), Filter(ids=("a",))

        async def on_a_loop() -> tuple[InsertVerdict, tuple[str, ...], Job | None]:
            other = await driver.store.new_handle().open()
            try:
                ((answer,),) = await other.insert([group])
                changed = (await other.amend(job_filter, CancelJobs())).changed
                return answer.verdict, changed, (await other.get(["a"]))[0]
            finally:
                await other.close()

        def in_a_thread() -> tuple[InsertVerdict, tuple[str, ...], Job | None]:
            if blocking is None:
                return asyncio.run(on_a_loop())
            ((answer,),) = blocking.insert([group])
            changed = blocking.amend(job_filter, CancelJobs()).changed
            return answer.verdict, changed, blocking.get(["a"])[0]

        verdict, changed, job = await asyncio.to_thread(in_a_thread)
        assert (verdict, changed) == (InsertVerdict.ACCEPTED, ("a",))
        assert job == await driver.job("a")
