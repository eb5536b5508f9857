"""Conformance tests for wake-ups: which listeners wake, and when. The tests wait for events and never
sleep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tidemill.contract.coordination import WakeupListener, job_topic, queue_topic, worker_topic
from tidemill.core.operator_changes import CancelJobs, RetryJobs, RunJobsNow
from tidemill.core.outcomes import FinalFailure, JobRelease
from tidemill.core.queues import QueueChanges, QueueSettings
from tidemill.testing.conformance.fixtures import SAMPLE_ERROR, StoreDriver, new_job

MAX_WAIT_SECONDS = 5.0
QUIET_SECONDS = 0.05


@asynccontextmanager
async def arm_listener(driver: StoreDriver, *topics: str) -> AsyncIterator[WakeupListener]:
    listener = driver.store.listen(topics)
    listener.arm()
    try:
        yield listener
    finally:
        listener.disarm()
        listener.close()


class TestListener:
    @pytest.mark.parametrize("turns", range(4))
    async def test_w1_a_cancellation_during_a_wake_up_is_not_swallowed(
        self, driver: StoreDriver, turns: int
    ) -> None:
        """A task that waits for a wake-up can be cancelled at any time. Here the task is cancelled `turns`
        iterations of the event loop after the wake-up."""
        listener = driver.store.listen([queue_topic("q")])
        listener.arm()
        waiting = asyncio.create_task(_wait_forever(listener))
        await asyncio.sleep(0.01)
        driver.store.wake([queue_topic("q")])
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(10):
                await waiting
        listener.close()

    async def test_w1_a_wake_up_after_arm_is_not_missed(self, driver: StoreDriver) -> None:
        async with arm_listener(driver, "topic") as listener:
            driver.store.wake(["topic"])
            assert await listener.wait(MAX_WAIT_SECONDS)

    async def test_w1_a_wake_up_ends_a_wait(self, driver: StoreDriver) -> None:
        async with arm_listener(driver, "topic") as listener:
            waiting = asyncio.ensure_future(listener.wait(MAX_WAIT_SECONDS))
            await asyncio.sleep(0)
            driver.store.wake(["topic"])
            assert await waiting

    async def test_w1_a_wait_ends_with_its_timeout(self, driver: StoreDriver) -> None:
        async with arm_listener(driver, "topic") as listener:
            driver.store.wake(["other"])
            assert not await listener.wait(QUIET_SECONDS)

    async def test_w1_arming_again_clears_an_old_wake_up(self, driver: StoreDriver) -> None:
        async with arm_listener(driver, "topic") as listener:
            driver.store.wake(["topic"])
            assert await listener.wait(MAX_WAIT_SECONDS)
            listener.arm()
            assert not await listener.wait(QUIET_SECONDS)
            listener.arm()
            driver.store.wake(["topic"])
            assert await listener.wait(MAX_WAIT_SECONDS)

    async def test_w1_any_topic_wakes_a_listener(self, driver: StoreDriver) -> None:
        async with arm_listener(driver, "one", "two") as listener:
            driver.store.wake(["two"])
            assert await listener.wait(MAX_WAIT_SECONDS)

    async def test_w3_two_wake_ups_wake_two_listeners(self, driver: StoreDriver) -> None:
        topic = queue_topic("q")
        async with arm_listener(driver, topic) as first, arm_listener(driver, topic) as second:
            driver.store.wake([topic])
            driver.store.wake([topic])
            assert all(await asyncio.gather(first.wait(MAX_WAIT_SECONDS), second.wait(MAX_WAIT_SECONDS)))

    async def test_s3_a_wake_up_reaches_other_handles(self, driver: StoreDriver) -> None:
        other = await driver.store.new_handle().open()
        try:
            async with arm_listener(StoreDriver(other, driver.clock), queue_topic("q")) as listener:
                await driver.add("a")
                assert await listener.wait(MAX_WAIT_SECONDS)
        finally:
            await other.close()


class TestWakeups:
    async def test_w3_an_insert_wakes(self, driver: StoreDriver) -> None:
        async with arm_listener(driver, queue_topic("q")) as listener:
            await driver.add("a")
            assert await listener.wait(MAX_WAIT_SECONDS)

    async def test_w3_another_queue_wakes_no_listener(self, driver: StoreDriver) -> None:
        async with arm_listener(driver, queue_topic("q")) as listener:
            await driver.add("a", queue="p")
            assert not await listener.wait(QUIET_SECONDS)

    async def test_w3_q4_a_resume_wakes(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.store.pause("q")
        async with arm_listener(driver, queue_topic("q")) as listener:
            await driver.store.resume("q")
            assert await listener.wait(MAX_WAIT_SECONDS)

    async def test_w3_a_freed_limit_wakes(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(concurrency=1)})
        await driver.add(*"ab")
        job = await driver.take_one()
        async with arm_listener(driver, queue_topic("q")) as listener:
            await driver.settle(job)
            assert await listener.wait(MAX_WAIT_SECONDS)

    async def test_w3_a_freed_key_wakes(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(key_concurrency=1)})
        await driver.add(new_job("a", key="k"), new_job("b", key="k"))
        job = await driver.take_one()
        async with arm_listener(driver, queue_topic("q")) as listener:
            await driver.settle(job)
            assert await listener.wait(MAX_WAIT_SECONDS)

    async def test_w3_a_raised_limit_wakes(self, driver: StoreDriver) -> None:
        async with arm_listener(driver, queue_topic("q")) as listener:
            await driver.store.override("q", QueueChanges(concurrency=5), by="ann")
            assert await listener.wait(MAX_WAIT_SECONDS)

    async def test_w3_release_reclaim_retry_and_run_now_wake(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        async with arm_listener(driver, queue_topic("q")) as listener:
            await driver.settle(job, JobRelease())
            assert await listener.wait(MAX_WAIT_SECONDS)
            await driver.take_one()
            listener.arm()
            await driver.store.reclaim(["w"])
            assert await listener.wait(MAX_WAIT_SECONDS)
            job = await driver.take_one()
            await driver.settle(job, FinalFailure(SAMPLE_ERROR))
            listener.arm()
            await driver.amend(RetryJobs(), "a")
            assert await listener.wait(MAX_WAIT_SECONDS)
            await driver.take_one()
            await driver.add(new_job("b", delay=60.0))
            listener.arm()
            await driver.amend(RunJobsNow(), "b")
            assert await listener.wait(MAX_WAIT_SECONDS)

    async def test_w3_a_promotion_wakes(self, driver: StoreDriver) -> None:
        await driver.add(new_job("a", delay=1.0), new_job("b", delay=1.0))
        driver.clock.advance(1.0)
        async with arm_listener(driver, queue_topic("q")) as listener:
            await driver.take(limit=1)
            assert await listener.wait(MAX_WAIT_SECONDS)

    async def test_w4_the_end_of_a_job_wakes(self, driver: StoreDriver) -> None:
        await driver.add(*"abc", new_job("d", expires=1.0))
        first, second, *_ = await driver.take(limit=2)
        for name, end in (
            ("a", lambda: driver.settle(first)),
            ("b", lambda: driver.settle(second, FinalFailure(SAMPLE_ERROR))),
            ("c", lambda: driver.amend(CancelJobs(), "c")),
        ):
            async with arm_listener(driver, job_topic(name)) as listener:
                await end()
                assert await listener.wait(MAX_WAIT_SECONDS), name
        driver.clock.advance(1.0)
        async with arm_listener(driver, job_topic("d")) as listener:
            await driver.store.prune()
            assert await listener.wait(MAX_WAIT_SECONDS)

    async def test_w4_all_listeners_of_a_job_wake(self, driver: StoreDriver) -> None:
        await driver.add("a")
        async with (
            arm_listener(driver, job_topic("a")) as first,
            arm_listener(driver, job_topic("a")) as second,
        ):
            await driver.settle(await driver.take_one())
            assert all(await asyncio.gather(first.wait(MAX_WAIT_SECONDS), second.wait(MAX_WAIT_SECONDS)))

    async def test_w4_cancelling_a_running_job_wakes_its_worker(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.take_one()
        async with arm_listener(driver, worker_topic("w")) as listener:
            await driver.amend(CancelJobs(), "a")
            assert await listener.wait(MAX_WAIT_SECONDS)


async def _wait_forever(listener: WakeupListener) -> None:
    """Waits like a worker, in an endless loop: waits for a wake-up, then arms the listener for the next
    wake-up."""
    while True:
        await listener.wait(60.0)
        listener.arm()
