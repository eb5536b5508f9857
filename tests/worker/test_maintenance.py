"""Reclaim, prune, leadership: maintenance that one worker of the fleet does for all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from tests.worker.bench import Bench, Virtually
from tidemill.contract.coordination import Leadership
from tidemill.core.claims import ClaimRequest, QueueShare
from tidemill.core.filters import Filter
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.queues import DAY_SECONDS, QueueSettings, Retention
from tidemill.core.states import State
from tidemill.errors import StoreUnavailable
from tidemill.metrics.rollup import MetricsRollup
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import ClockSkewDetected, JobsDroppedEarly
from tidemill.worker.leadership import LeaderElection, MaintenanceService, run_service
from tidemill.worker.maintenance import Pruner
from tidemill.worker.reclaimer import Reclaimer


async def noop() -> None: ...


async def claim_and_die(bench: Bench, lease: float) -> None:
    """Another worker claims all jobs and disappears."""
    shares = (QueueShare("default", 100),)
    await bench.store.claim(ClaimRequest(worker="dead", number=1, shares=shares, limit=100, lease=lease))


async def reclaim_once(bench: Bench, reclaimer: Reclaimer) -> None:
    """Reads the clocks as the maintenance of a worker does."""
    reclaimer.watch(await bench.store.read_clock(), asyncio.get_running_loop().time())
    await reclaimer.reclaim()


def test_i7_a_silent_owner_is_reclaimed_within_a_lease_and_a_period(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        job = await bench.enqueue("noop")
        await claim_and_die(bench, lease=30)
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(29)
        assert (await bench.job(job)).state is State.RUNNING
        await asyncio.sleep(12)
        assert (await bench.job(job)).state is State.DONE
        worker.stop()
        await running

    virtually(scenario)


def test_i7_also_when_the_leader_dies_together_with_the_owner(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        job = await bench.enqueue("noop")
        await claim_and_die(bench, lease=30)
        leader = bench.start(bench.worker())
        await asyncio.sleep(0.1)
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(28)
        leader.cancel()
        await asyncio.sleep(13)
        assert (await bench.job(job)).state is State.DONE
        worker.stop()
        await running

    virtually(scenario)


def test_i26_nothing_is_reclaimed_for_a_lease_after_clock_skew(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        job = await bench.enqueue("noop")
        await claim_and_die(bench, lease=30)
        loop_time = asyncio.get_running_loop().time
        clock_boot = bench.clock.boot
        reclaimer = Reclaimer(bench.store, lease=30, emitter=bench.emitter())
        await reclaim_once(bench, reclaimer)
        # The store's machine was suspended for an hour, and this process was not.
        bench.clock.boot = lambda: clock_boot() + 3600  # type: ignore[method-assign]
        await reclaim_once(bench, reclaimer)
        assert (await bench.job(job)).state is State.RUNNING
        began = loop_time()
        while (await bench.job(job)).state is State.RUNNING:
            await asyncio.sleep(5)
            await reclaim_once(bench, reclaimer)
        assert loop_time() - began == 30

    virtually(scenario)


@pytest.mark.parametrize("apart", [-3.0, 3.0])
def test_i26_clock_skew_in_either_direction_is_noticed(virtually: Virtually, apart: float) -> None:
    """A store's clock that falls back is no better for leases than one that runs ahead."""

    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        job = await bench.enqueue("noop")
        await claim_and_die(bench, lease=1)
        await asyncio.sleep(5)
        loop = asyncio.get_running_loop()
        reclaimer = Reclaimer(bench.store, lease=30, emitter=bench.emitter())
        reclaimer.watch(await bench.store.read_clock(), loop.time())
        clock_boot = bench.clock.boot
        bench.clock.boot = lambda: clock_boot() + apart  # type: ignore[method-assign]
        for _ in range(29):
            await reclaim_once(bench, reclaimer)
            assert (await bench.job(job)).state is State.RUNNING
            await asyncio.sleep(1)
        assert [event.seconds for event in bench.events_of(ClockSkewDetected)] == [pytest.approx(apart)]
        await asyncio.sleep(2)
        await reclaim_once(bench, reclaimer)
        assert (await bench.job(job)).state is State.READY

    virtually(scenario)


def test_i26_nothing_is_reclaimed_by_an_old_clock_reading(virtually: Virtually) -> None:
    """The clocks may differ since then: without a recent reading nothing is reclaimed."""

    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        job = await bench.enqueue("noop")
        await claim_and_die(bench, lease=1)
        reclaimer = Reclaimer(bench.store, lease=30, emitter=bench.emitter())
        await reclaimer.reclaim()
        reclaimer.watch(await bench.store.read_clock(), asyncio.get_running_loop().time())
        await asyncio.sleep(5)
        await reclaimer.reclaim()
        assert (await bench.job(job)).state is State.RUNNING
        await reclaim_once(bench, reclaimer)
        assert (await bench.job(job)).state is State.READY

    virtually(scenario)


def test_a_lead_counts_from_its_request(virtually: Virtually) -> None:
    """The store counts the lease from before its answer; counted from the answer, two workers would lead."""

    async def scenario(bench: Bench) -> None:
        class Slow(MemoryStore):
            async def lead(self, names: Sequence[str], worker: str, lease: float) -> Leadership:
                led = await super().lead(names, worker, lease)
                await asyncio.sleep(3)
                return led

        slow: Any = Slow.__new__(Slow)
        slow.__dict__.update(bench.store.new_handle().__dict__)
        leader = LeaderElection(slow, "a", bench.emitter(), every=4.0)
        service = leader.service("duty")
        running = asyncio.create_task(leader.run())
        await asyncio.sleep(3.5)
        assert service.is_led
        assert service.led_until == leader.lease
        running.cancel()

    virtually(scenario)


def test_only_one_worker_runs_a_service(virtually: Virtually) -> None:
    done: list[str] = []

    async def scenario(bench: Bench) -> None:
        async def operation(name: str) -> bool:
            done.append(name)
            return False

        leaders = {
            name: LeaderElection(bench.store, name, bench.emitter(name), every=2.0)
            for name in ("a", "b", "c")
        }
        chores = [
            asyncio.create_task(
                run_service(10, leader.service("duty"), partial(operation, name), bench.emitter(name))
            )
            for name, leader in leaders.items()
        ]
        chores += [asyncio.create_task(leader.run()) for leader in leaders.values()]
        await asyncio.sleep(105)
        assert len(done) == 11
        assert len(set(done)) == 1
        for task in chores:
            task.cancel()

    virtually(scenario)


def test_a_failing_service_is_retried_and_a_long_one_continues_at_once(virtually: Virtually) -> None:
    calls: list[float] = []

    async def scenario(bench: Bench) -> None:
        async def operation() -> bool:
            calls.append(asyncio.get_running_loop().time())
            if len(calls) == 1:
                raise StoreUnavailable("down")
            if len(calls) == 2:
                raise RuntimeError("a bug")
            return len(calls) == 3

        task = asyncio.create_task(
            run_service(10, MaintenanceService("duty", led=False), operation, bench.emitter())
        )
        await asyncio.sleep(25)
        assert calls == [0, 10, 20, 20.01]
        task.cancel()

    virtually(scenario)


def test_ended_jobs_are_pruned(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        keep = Retention(age=60, count=5)
        await bench.store.declare({"default": QueueSettings(keep_done=keep)})
        for _ in range(2500):
            await bench.enqueue("noop")
        worker = bench.worker(prune_every=10)
        running = bench.start(worker)
        await asyncio.sleep(11)
        assert (await bench.store.counts())["default"].get(State.DONE) == 5
        await asyncio.sleep(70)
        assert await bench.store.counts() == {}
        worker.stop()
        await running

    virtually(scenario)


def _prunes(bench: Bench) -> Pruner:
    time = asyncio.get_running_loop().time
    return Pruner(bench.store, MetricsRollup(bench.store, time), bench.emitter(), time)


async def cancel_jobs(bench: Bench, queue: str, jobs: int) -> None:
    for _ in range(jobs):
        await bench.enqueue("noop", queue=queue)
    await bench.store.amend(Filter(queue=queue), CancelJobs())


def test_j84_an_early_prune_is_reported_once_per_hour_and_queue(virtually: Virtually) -> None:
    """Also if another worker leads for a while."""

    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        kept = QueueSettings(keep_cancelled=Retention(age=7 * DAY_SECONDS, count=5))
        await bench.store.declare({"default": kept, "other": kept})
        leader, second = _prunes(bench), _prunes(bench)
        for round_ in range(15):
            await cancel_jobs(bench, "default", 6)
            await cancel_jobs(bench, "other", 6 if round_ == 0 else 0)
            await (second if round_ in (3, 4) else leader).prune()
            await asyncio.sleep(600)
        dropped = [(event.queue, event.jobs) for event in bench.events_of(JobsDroppedEarly)]
        assert dropped == [("default", 1), ("other", 1), ("default", 37), ("default", 42)]

    virtually(scenario)


def test_many_jobs_are_pruned_in_short_runs(virtually: Virtually) -> None:
    """A burst every 30 s delays claims, and the store grows by 30 s of jobs before each."""

    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        await bench.store.declare({"default": QueueSettings(keep_done=Retention(count=100))})
        running = bench.start(worker := bench.worker())
        await asyncio.sleep(30.1)
        kept: list[int] = []
        for _ in range(40):
            for _ in range(250):
                await bench.enqueue("noop")
            await asyncio.sleep(1)
            kept.append((await bench.store.counts())["default"].get(State.DONE, 0))
        assert max(kept[-10:]) < 100 + 1250
        worker.stop()
        await running

    virtually(scenario)


def test_j84_jobs_pruned_in_time_are_not_reported(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        await bench.store.declare({"default": QueueSettings(keep_done=Retention(age=1.0, count=5))})
        for _ in range(9):
            await bench.enqueue("noop")
        await bench.run_until_idle()
        await asyncio.sleep(2)
        await _prunes(bench).prune()
        assert bench.events_of(JobsDroppedEarly) == []
        assert await bench.store.counts() == {}

    virtually(scenario)


def test_i26_after_a_suspend_a_worker_that_never_led_reclaims_nothing_of_the_living(
    virtually: Virtually,
) -> None:
    """The leader's lease ends by the store's clock like any other, so another worker may lead first."""

    async def scenario(bench: Bench) -> None:
        async def long() -> None:
            await asyncio.sleep(60)

        bench.task(long)
        job = await bench.enqueue("long")
        owner = bench.worker(concurrency=1)
        running = [bench.start(owner)]
        await asyncio.sleep(0.1)
        running.append(bench.start(other := bench.worker()))
        await asyncio.sleep(13.95)  # the owner has just read the clocks, the other is about to
        assert not (await bench.store.lead(["reclaim"], other.id, 1)).leads
        boot = bench.clock.boot
        bench.clock.boot = lambda: boot() + 3600  # type: ignore[method-assign]
        await asyncio.sleep(1)
        assert not (await bench.store.lead(["reclaim"], owner.id, 1)).leads, "the other leads now"
        await asyncio.sleep(60)
        record = await bench.job(job)
        assert (record.state, record.attempts, record.crashes) == (State.DONE, 1, 0)
        owner.stop()
        other.stop()
        await asyncio.gather(*running)

    virtually(scenario)
