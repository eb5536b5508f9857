"""Leases, heartbeats, reclaiming, poison, and clocks that jump."""

# ruff: noqa: S101, PLR2004 - a test suite asserts, and its numbers are its data
from __future__ import annotations

import pytest

from tidemill.core.claims import Held, Said
from tidemill.core.outcomes import Answer, Crashed, Retrying
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State
from tidemill.core.transitions import POISON
from tidemill.testing.conformance.driver import LEASE, OOPS, Driver, holding, ids, new

HOUR = 3600.0
STEPS = [HOUR, -HOUR, 24 * HOUR, -24 * HOUR]


class TestHeartbeat:
    async def test_j50_renews_the_lease(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        drive.clock.advance(LEASE - 1)
        assert await drive.beat(job) == ((), ())
        drive.clock.advance(LEASE - 1)
        assert (await drive.store.reclaim()).ready == ()
        drive.clock.advance(1.0)
        assert (await drive.store.reclaim()).ready == ("a",)

    async def test_j50_without_renewal_the_lease_runs_out(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        drive.clock.advance(LEASE - 1)
        assert await drive.beat(holding(job, renew=False)) == ((), ())
        drive.clock.advance(1.0)
        assert (await drive.store.reclaim()).ready == ("a",)

    async def test_j50_keeps_the_news(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        await drive.beat(holding(job, progress=0.25, note="quarter"))
        await drive.beat(holding(job, progress=0.5))
        after = await drive.job("a")
        assert (after.progress, after.note) == (0.5, "quarter")
        await drive.beat(job)
        assert (await drive.job("a")).progress == 0.5

    async def test_j50_a_new_run_starts_without_old_news(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        await drive.beat(holding(job, progress=0.25, note="quarter"))
        await drive.settle(job, Retrying(0.0, OOPS))
        await drive.take_one()
        after = await drive.job("a")
        assert (after.progress, after.note) == (None, None)

    async def test_j51_i6_a_stale_claim_is_lost_and_changes_nothing(self, drive: Driver) -> None:
        await drive.add("a")
        old = await drive.take_one()
        await drive.store.reclaim(["w"])
        await drive.take_one("x")
        before = await drive.job("a")
        assert await drive.beat(holding(old, progress=0.9, log=(Said("late"),))) == (("a",), ())
        assert await drive.job("a") == before
        assert await drive.store.logs("a") == []

    async def test_j51_settled_and_unknown_jobs_are_lost(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        await drive.settle(job)
        assert (await drive.beat(job, Held(job="never", fence=1, claim=1)))[0] == ("a", "never")

    async def test_j52_i8_a_lost_claim_reply_goes_back_uncounted(self, drive: Driver) -> None:
        await drive.add(*"abc")
        (kept,) = await drive.take(limit=1)
        await drive.take(limit=1)
        assert await drive.beat(kept) == ((), ("b",))
        after = await drive.job("b")
        assert (after.state, after.attempts, after.crashes) == (State.READY, 0, 0)
        assert await drive.store.attempts("b") == []

    async def test_j52_a_claim_still_under_way_is_left_alone(self, drive: Driver) -> None:
        await drive.add(*"ab")
        (kept,) = await drive.take(limit=1)
        await drive.take(limit=1)
        assert await drive.beat(kept, received=1) == ((), ())
        assert await drive.state("b") is State.RUNNING

    async def test_j52_the_returned_claim_is_refused(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        await drive.beat()
        assert await drive.settle(job) is Answer.STALE
        assert (await drive.beat(job))[0] == ("a",)

    async def test_j52_another_workers_jobs_are_none_of_its_business(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.take("x")
        assert await drive.beat(worker="w", received=9) == ((), ())
        assert await drive.state("a") is State.RUNNING

    async def test_j52_listed_by_an_older_claim_is_not_listed(self, drive: Driver) -> None:
        await drive.add("a")
        old = await drive.take_one()
        await drive.beat()
        await drive.take_one()
        assert await drive.beat(old) == (("a",), ("a",))


class TestReclaim:
    async def test_j60_i7_only_when_the_lease_is_over(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.take(lease=10.0)
        drive.clock.advance(9.999)
        assert (await drive.store.reclaim()).ready == ()
        drive.clock.advance(0.001)
        assert (await drive.store.reclaim()).ready == ("a",)
        assert (await drive.store.reclaim()).ready == ()

    async def test_j60_dead_workers_jobs_at_once(self, drive: Driver) -> None:
        await drive.add(*"ab")
        await drive.take("w", limit=1)
        await drive.take("x", limit=1)
        assert (await drive.store.reclaim(["w"])).ready == ("a",)
        assert await drive.state("b") is State.RUNNING

    async def test_j61_in_company_only_suspect(self, drive: Driver) -> None:
        await drive.add(*"ab")
        await drive.take()
        await drive.store.reclaim(["w"])
        for name in "ab":
            job = await drive.job(name)
            assert (job.state, job.crashes, job.attempts, job.claim) == (State.READY, 1, 0, 0)
            assert job.error is not None

    async def test_j61_i8_a_suspect_runs_alone_and_only_so_becomes_poison(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(crash_limit=3)})
        await drive.add("a")
        for crashes in (1, 2):
            claimed = await drive.take_one()
            assert claimed.suspect is (crashes > 1)
            assert (await drive.store.reclaim(["w"])).ready == ("a",)
            assert (await drive.job("a")).crashes == crashes
        assert (await drive.take_one()).suspect
        assert (await drive.store.reclaim(["w"])).poison == ("a",)
        job = await drive.job("a")
        assert (job.state, job.reason, job.crashes) == (State.FAILED, POISON, 3)

    async def test_j61_in_company_crashes_do_not_add_up(self, drive: Driver) -> None:
        """A claim taken before the first crash was known is still in company when it is lost."""
        await drive.store.declare({"q": QueueSettings(crash_limit=1)})
        await drive.add("a")
        await drive.take()
        assert (await drive.store.reclaim(["w"])).poison == ()
        assert (await drive.job("a")).crashes == 1

    async def test_i8_the_crash_limit_of_settled_crashes(self, drive: Driver) -> None:
        await drive.store.declare({"q": QueueSettings(crash_limit=2)})
        await drive.add("a")
        await drive.settle(await drive.take_one(), Crashed(OOPS))
        await drive.settle(await drive.take_one(), Crashed(OOPS))
        job = await drive.job("a")
        assert (job.state, job.reason, job.error) == (State.FAILED, POISON, OOPS)

    async def test_j62_the_old_claim_is_refused(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        await drive.store.reclaim(["w"])
        assert await drive.settle(job) is Answer.STALE
        assert (await drive.beat(job))[0] == ("a",)
        assert await drive.take(number=1) == []


class TestClocks:
    @pytest.mark.parametrize("step", STEPS)
    async def test_i26_a_stepped_wall_clock_ends_no_lease(self, drive: Driver, step: float) -> None:
        await drive.add("a")
        job = await drive.take_one()
        drive.clock.step_wall(step)
        assert (await drive.store.reclaim()).ready == ()
        assert await drive.beat(job) == ((), ())
        drive.clock.advance(LEASE - 1)
        assert (await drive.store.reclaim()).ready == ()
        drive.clock.advance(1.0)
        assert (await drive.store.reclaim()).ready == ("a",)

    @pytest.mark.parametrize("step", STEPS)
    async def test_i26_a_stepped_wall_clock_loses_no_job(self, drive: Driver, step: float) -> None:
        await drive.add("ready", new("later", delay=30.0))
        drive.clock.step_wall(step)
        await drive.store.prune()
        assert "ready" in ids(await drive.take())
        drive.clock.advance(30.0 + max(0.0, -step))
        await drive.take()
        assert await drive.store.counts() == {"q": {State.RUNNING: 2}}

    @pytest.mark.parametrize("step", STEPS)
    async def test_i10_i26_nothing_starts_before_its_wall_time(self, drive: Driver, step: float) -> None:
        at = drive.clock.wall() + 30.0
        await drive.add(new("a", at=at))
        drive.clock.step_wall(step)
        assert bool(await drive.take()) is (drive.clock.wall() >= at)

    @pytest.mark.parametrize("step", STEPS)
    async def test_c1_i26_a_stepped_wall_clock_deposes_nobody(self, drive: Driver, step: float) -> None:
        await drive.store.lead(["prune"], "w", 30.0)
        drive.clock.step_wall(step)
        assert (await drive.store.lead(["prune"], "x", 30.0)).leads == ()
        drive.clock.advance(30.0)
        assert (await drive.store.lead(["prune"], "x", 30.0)).leads == ("prune",)

    async def test_j63_leases_of_another_boot_are_over(self, drive: Driver) -> None:
        await drive.add("a")
        job = await drive.take_one()
        await drive.beat(job)
        await drive.store.lead(["prune"], "w", 30.0)
        drive.clock.reboot()
        store = await drive.store.another().open()
        try:
            assert (await store.reclaim()).ready == ("a",)
            assert await store.workers() == []
            assert (await store.lead(["prune"], "x", 30.0)).leads == ("prune",)
        finally:
            await store.close()

    async def test_j63_the_same_boot_opened_again_ends_nothing(self, drive: Driver) -> None:
        await drive.add("a")
        await drive.take_one()
        store = await drive.store.another().open()
        try:
            assert (await store.reclaim()).ready == ()
        finally:
            await store.close()

    async def test_reads_both_clocks_together(self, drive: Driver) -> None:
        reading = await drive.store.read_clock()
        assert (reading.wall, reading.boot) == (drive.clock.wall(), drive.clock.boot())
