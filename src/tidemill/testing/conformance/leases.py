"""Conformance tests for leases: heartbeats, reclaim, poison jobs and clock jumps."""

from __future__ import annotations

import pytest

from tidemill.core.claims import HeldJob, LogEntry
from tidemill.core.outcomes import Crash, RetryLater, WriteAnswer
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State
from tidemill.core.transitions import POISON
from tidemill.testing.conformance.fixtures import (
    LEASE_SECONDS,
    SAMPLE_ERROR,
    StoreDriver,
    held_job,
    ids,
    new_job,
)

HOUR_SECONDS = 3600.0
CLOCK_STEPS = [HOUR_SECONDS, -HOUR_SECONDS, 24 * HOUR_SECONDS, -24 * HOUR_SECONDS]


class TestHeartbeat:
    async def test_j50_renews_the_lease(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        driver.clock.advance(LEASE_SECONDS - 1)
        assert await driver.beat(job) == ((), ())
        driver.clock.advance(LEASE_SECONDS - 1)
        assert (await driver.store.reclaim()).ready == ()
        driver.clock.advance(1.0)
        assert (await driver.store.reclaim()).ready == ("a",)

    async def test_j50_without_renewal_the_lease_runs_out(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        driver.clock.advance(LEASE_SECONDS - 1)
        assert await driver.beat(held_job(job, renew=False)) == ((), ())
        driver.clock.advance(1.0)
        assert (await driver.store.reclaim()).ready == ("a",)

    async def test_j50_a_heartbeat_stores_its_report(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        await driver.beat(held_job(job, progress=0.25, note="quarter"))
        await driver.beat(held_job(job, progress=0.5))
        after = await driver.job("a")
        assert (after.progress, after.note) == (0.5, "quarter")
        await driver.beat(job)
        assert (await driver.job("a")).progress == 0.5

    async def test_j50_a_new_run_starts_without_an_old_report(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        await driver.beat(held_job(job, progress=0.25, note="quarter"))
        await driver.settle(job, RetryLater(0.0, SAMPLE_ERROR))
        await driver.take_one()
        after = await driver.job("a")
        assert (after.progress, after.note) == (None, None)

    async def test_j51_i6_a_stale_claim_is_lost_and_changes_nothing(self, driver: StoreDriver) -> None:
        await driver.add("a")
        old = await driver.take_one()
        await driver.store.reclaim(["w"])
        await driver.take_one("x")
        before = await driver.job("a")
        assert await driver.beat(held_job(old, progress=0.9, log=(LogEntry("late"),))) == (("a",), ())
        assert await driver.job("a") == before
        assert await driver.store.logs("a") == []

    async def test_j51_settled_and_unknown_jobs_are_lost(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        await driver.settle(job)
        assert (await driver.beat(job, HeldJob(job="never", fence=1, claim=1)))[0] == ("a", "never")

    async def test_j52_i8_a_lost_claim_reply_returns_without_a_charge(self, driver: StoreDriver) -> None:
        await driver.add(*"abc")
        (held,) = await driver.take(limit=1)
        await driver.take(limit=1)
        assert await driver.beat(held) == ((), ("b",))
        after = await driver.job("b")
        assert (after.state, after.attempts, after.crashes) == (State.READY, 0, 0)
        assert await driver.store.attempts("b") == []

    async def test_j52_a_claim_in_flight_is_not_returned(self, driver: StoreDriver) -> None:
        await driver.add(*"ab")
        (held,) = await driver.take(limit=1)
        await driver.take(limit=1)
        assert await driver.beat(held, received=1) == ((), ())
        assert await driver.state("b") is State.RUNNING

    async def test_j52_the_returned_claim_is_refused(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        await driver.beat()
        assert await driver.settle(job) is WriteAnswer.STALE
        assert (await driver.beat(job))[0] == ("a",)

    async def test_j52_a_heartbeat_returns_no_jobs_of_another_worker(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.take("x")
        assert await driver.beat(worker="w", received=9) == ((), ())
        assert await driver.state("a") is State.RUNNING

    async def test_j52_listed_by_an_older_claim_is_not_listed(self, driver: StoreDriver) -> None:
        await driver.add("a")
        old = await driver.take_one()
        await driver.beat()
        await driver.take_one()
        assert await driver.beat(old) == (("a",), ("a",))


class TestReclaim:
    async def test_j60_i7_jobs_are_reclaimed_only_after_their_lease(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.take(lease=10.0)
        driver.clock.advance(9.999)
        assert (await driver.store.reclaim()).ready == ()
        driver.clock.advance(0.001)
        assert (await driver.store.reclaim()).ready == ("a",)
        assert (await driver.store.reclaim()).ready == ()

    async def test_j60_jobs_of_a_dead_worker_are_reclaimed_at_once(self, driver: StoreDriver) -> None:
        await driver.add(*"ab")
        await driver.take("w", limit=1)
        await driver.take("x", limit=1)
        assert (await driver.store.reclaim(["w"])).ready == ("a",)
        assert await driver.state("b") is State.RUNNING

    async def test_j61_a_crash_beside_other_jobs_only_raises_suspicion(self, driver: StoreDriver) -> None:
        await driver.add(*"ab")
        await driver.take()
        await driver.store.reclaim(["w"])
        for name in "ab":
            job = await driver.job(name)
            assert (job.state, job.crashes, job.attempts, job.claim) == (State.READY, 1, 0, 0)
            assert job.error is not None

    async def test_j61_i8_a_suspect_runs_alone_and_only_so_becomes_poison(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(crash_limit=3)})
        await driver.add("a")
        for crashes in (1, 2):
            claimed = await driver.take_one()
            assert claimed.suspect is (crashes > 1)
            assert (await driver.store.reclaim(["w"])).ready == ("a",)
            assert (await driver.job("a")).crashes == crashes
        assert (await driver.take_one()).suspect
        assert (await driver.store.reclaim(["w"])).poison == ("a",)
        job = await driver.job("a")
        assert (job.state, job.reason, job.crashes) == (State.FAILED, POISON, 3)

    async def test_j61_crashes_beside_other_jobs_do_not_add_up(self, driver: StoreDriver) -> None:
        """After a job's first crash, workers run the job alone. Only a crash of a job that runs alone can
        make it poison, even if the crash limit is 1."""
        await driver.store.declare({"q": QueueSettings(crash_limit=1)})
        await driver.add("a")
        await driver.take()
        assert (await driver.store.reclaim(["w"])).poison == ()
        assert (await driver.job("a")).crashes == 1

    async def test_i8_the_crash_limit_of_settled_crashes(self, driver: StoreDriver) -> None:
        await driver.store.declare({"q": QueueSettings(crash_limit=2)})
        await driver.add("a")
        await driver.settle(await driver.take_one(), Crash(SAMPLE_ERROR))
        await driver.settle(await driver.take_one(), Crash(SAMPLE_ERROR))
        job = await driver.job("a")
        assert (job.state, job.reason, job.error) == (State.FAILED, POISON, SAMPLE_ERROR)

    async def test_j62_the_old_claim_is_refused(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        await driver.store.reclaim(["w"])
        assert await driver.settle(job) is WriteAnswer.STALE
        assert (await driver.beat(job))[0] == ("a",)
        assert await driver.take(number=1) == []


class TestClockJumps:
    @pytest.mark.parametrize("step", CLOCK_STEPS)
    async def test_i26_a_stepped_wall_clock_ends_no_lease(self, driver: StoreDriver, step: float) -> None:
        await driver.add("a")
        job = await driver.take_one()
        driver.clock.step_wall(step)
        assert (await driver.store.reclaim()).ready == ()
        assert await driver.beat(job) == ((), ())
        driver.clock.advance(LEASE_SECONDS - 1)
        assert (await driver.store.reclaim()).ready == ()
        driver.clock.advance(1.0)
        assert (await driver.store.reclaim()).ready == ("a",)

    @pytest.mark.parametrize("step", CLOCK_STEPS)
    async def test_i26_a_stepped_wall_clock_loses_no_job(self, driver: StoreDriver, step: float) -> None:
        await driver.add("ready", new_job("later", delay=30.0))
        driver.clock.step_wall(step)
        await driver.store.prune()
        assert "ready" in ids(await driver.take())
        driver.clock.advance(30.0 + max(0.0, -step))
        await driver.take()
        assert await driver.store.counts() == {"q": {State.RUNNING: 2}}

    @pytest.mark.parametrize("step", CLOCK_STEPS)
    async def test_i10_i26_nothing_starts_before_its_wall_time(
        self, driver: StoreDriver, step: float
    ) -> None:
        at = driver.clock.wall() + 30.0
        await driver.add(new_job("a", at=at))
        driver.clock.step_wall(step)
        assert bool(await driver.take()) is (driver.clock.wall() >= at)

    @pytest.mark.parametrize("step", CLOCK_STEPS)
    async def test_c1_i26_a_clock_step_keeps_the_leader(self, driver: StoreDriver, step: float) -> None:
        await driver.store.lead(["prune"], "w", 30.0)
        driver.clock.step_wall(step)
        assert (await driver.store.lead(["prune"], "x", 30.0)).leads == ()
        driver.clock.advance(30.0)
        assert (await driver.store.lead(["prune"], "x", 30.0)).leads == ("prune",)

    async def test_j63_leases_of_another_boot_have_ended(self, driver: StoreDriver) -> None:
        await driver.add("a")
        job = await driver.take_one()
        await driver.beat(job)
        await driver.store.lead(["prune"], "w", 30.0)
        driver.clock.reboot()
        store = await driver.store.new_handle().open()
        try:
            assert (await store.reclaim()).ready == ("a",)
            assert await store.workers() == []
            assert (await store.lead(["prune"], "x", 30.0)).leads == ("prune",)
        finally:
            await store.close()

    async def test_j63_the_same_boot_opened_again_ends_nothing(self, driver: StoreDriver) -> None:
        await driver.add("a")
        await driver.take_one()
        store = await driver.store.new_handle().open()
        try:
            assert (await store.reclaim()).ready == ()
        finally:
            await store.close()

    async def test_reads_both_clocks_together(self, driver: StoreDriver) -> None:
        reading = await driver.store.read_clock()
        assert (reading.wall, reading.boot) == (driver.clock.wall(), driver.clock.boot())
