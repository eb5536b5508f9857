"""Wake-ups: who is rung, and when. A ring is waited for, never slept for."""

# ruff: noqa: S101 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tidemill.contract.wakeups import Listener, job_topic, queue_topic, worker_topic
from tidemill.core.changes import Cancel, RetryNow, RunNow
from tidemill.core.outcomes import Fail, Release
from tidemill.core.queues import QueueChanges, QueueSettings
from tidemill.testing.conformance.driver import OOPS, Driver, new

AT_MOST = 5.0
QUIET = 0.05


@asynccontextmanager
async def armed(drive: Driver, *topics: str) -> AsyncIterator[Listener]:
    listener = drive.store.listen(topics)
    listener.arm()
    try:
        yield listener
    finally:
        listener.disarm()
        listener.close()


class TestListener:
    @pytest.mark.parametrize("turns", range(4))
    async def test_w1_a_cancellation_that_meets_a_ring_is_not_swallowed(
        self, drive: Driver, turns: int
    ) -> None:
        """A worker that cannot be cancelled while it waits cannot be stopped."""
        listener = drive.store.listen([queue_topic("q")])
        listener.arm()
        waiting = asyncio.create_task(_wait_for_ever(listener))
        await asyncio.sleep(0.01)
        drive.store.ring([queue_topic("q")])
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(10):
                await waiting
        listener.close()

    async def test_w1_a_ring_after_arm_is_not_missed(self, drive: Driver) -> None:
        async with armed(drive, "topic") as listener:
            drive.store.ring(["topic"])
            assert await listener.wait(AT_MOST)

    async def test_w1_a_ring_ends_a_wait(self, drive: Driver) -> None:
        async with armed(drive, "topic") as listener:
            waiting = asyncio.ensure_future(listener.wait(AT_MOST))
            await asyncio.sleep(0)
            drive.store.ring(["topic"])
            assert await waiting

    async def test_w1_quiet_ends_with_the_timeout(self, drive: Driver) -> None:
        async with armed(drive, "topic") as listener:
            drive.store.ring(["other"])
            assert not await listener.wait(QUIET)

    async def test_w1_arming_again_starts_anew(self, drive: Driver) -> None:
        async with armed(drive, "topic") as listener:
            drive.store.ring(["topic"])
            assert await listener.wait(AT_MOST)
            listener.arm()
            assert not await listener.wait(QUIET)
            listener.arm()
            drive.store.ring(["topic"])
            assert await listener.wait(AT_MOST)

    async def test_w1_any_of_its_topics(self, drive: Driver) -> None:
        async with armed(drive, "one", "two") as listener:
            drive.store.ring(["two"])
            assert await listener.wait(AT_MOST)

    async def test_w3_two_rings_wake_two(self, drive: Driver) -> None:
        topic = queue_topic("q")
        async with armed(drive, topic) as first, armed(drive, topic) as second:
            drive.store.ring([topic])
            drive.store.ring([topic])
            assert all(await asyncio.gather(first.wait(AT_MOST), second.wait(AT_MOST)))

    async def test_s3_a_ring_reaches_other_handles(self, drive: Driver) -> None:
        other = await drive.store.another().open()
        try:
            async with armed(Driver(other, drive.clock), queue_topic("q")) as listener:
                await drive.add("a")
                assert await listener.wait(AT_MOST)
        finally:
            await other.close()


class TestRings:
    async def test_w3_insert(self, drive: Driver) -> None:
        async with armed(drive, queue_topic("q")) as listener:
            await drive.add("a")
            assert await listener.wait(AT_MOST)

    async def test_w3_another_queue_rings_nobody(self, drive: Driver) -> None:
        async with armed(drive, queue_topic("q")) as listener:
            await drive.add("a", queue="p")
            assert not await listener.wait(QUIET)

    async def test_w3_q4_resume(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.store.pause("q")
        async with armed(drive, queue_topic("q")) as listener:
            await drive.store.resume("q")
            assert await listener.wait(AT_MOST)

    async def test_w3_a_freed_limit(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(concurrency=1)})
        await drive.add(*"ab")
        job = await drive.take_one()
        async with armed(drive, queue_topic("q")) as listener:
            await drive.settle(job)
            assert await listener.wait(AT_MOST)

    async def test_w3_a_freed_key(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(key_concurrency=1)})
        await drive.add(new("a", key="k"), new("b", key="k"))
        job = await drive.take_one()
        async with armed(drive, queue_topic("q")) as listener:
            await drive.settle(job)
            assert await listener.wait(AT_MOST)

    async def test_w3_a_raised_limit(self, drive: Driver) -> None:
        async with armed(drive, queue_topic("q")) as listener:
            await drive.store.override("q", QueueChanges(concurrency=5), by="ann")
            assert await listener.wait(AT_MOST)

    async def test_w3_given_back_reclaimed_retried_and_run_now(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        async with armed(drive, queue_topic("q")) as listener:
            await drive.settle(job, Release())
            assert await listener.wait(AT_MOST)
            await drive.take_one()
            listener.arm()
            await drive.store.reclaim(["w"])
            assert await listener.wait(AT_MOST)
            job = await drive.take_one()
            await drive.settle(job, Fail(OOPS))
            listener.arm()
            await drive.amend(RetryNow(), "a")
            assert await listener.wait(AT_MOST)
            await drive.take_one()
            await drive.add(new("b", delay=60.0))
            listener.arm()
            await drive.amend(RunNow(), "b")
            assert await listener.wait(AT_MOST)

    async def test_w3_promote(self, drive: Driver) -> None:
        await drive.add(new("a", delay=1.0), new("b", delay=1.0))
        drive.clock.advance(1.0)
        async with armed(drive, queue_topic("q")) as listener:
            await drive.take(limit=1)
            assert await listener.wait(AT_MOST)

    async def test_w4_the_end_of_a_job(self, drive: Driver) -> None:
        await drive.add(*"abc", new("d", expires=1.0))
        first, second, *_ = await drive.take(limit=2)
        for name, end in (
            ("a", lambda: drive.settle(first)),
            ("b", lambda: drive.settle(second, Fail(OOPS))),
            ("c", lambda: drive.amend(Cancel(), "c")),
        ):
            async with armed(drive, job_topic(name)) as listener:
                await end()
                assert await listener.wait(AT_MOST), name
        drive.clock.advance(1.0)
        async with armed(drive, job_topic("d")) as listener:
            await drive.store.prune()
            assert await listener.wait(AT_MOST)

    async def test_w4_everybody_who_waits_for_a_job(self, drive: Driver) -> None:
        await drive.add("a")
        async with armed(drive, job_topic("a")) as first, armed(drive, job_topic("a")) as second:
            await drive.settle(await drive.take_one())
            assert all(await asyncio.gather(first.wait(AT_MOST), second.wait(AT_MOST)))

    async def test_w4_a_cancel_of_a_running_job_rings_its_worker(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.take_one()
        async with armed(drive, worker_topic("w")) as listener:
            await drive.amend(Cancel(), "a")
            assert await listener.wait(AT_MOST)


async def _wait_for_ever(listener: Listener) -> None:
    """As a worker does: wait, look, arm, wait."""
    while True:
        await listener.wait(60.0)
        listener.arm()
