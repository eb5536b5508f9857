"""Reclaiming, pruning, leading: what one worker of the fleet does for all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from tests.worker.bench import Bench, Virtually
from tidemill.contract.coordinator import Led
from tidemill.core.changes import Cancel
from tidemill.core.claims import ClaimRequest, Share
from tidemill.core.filters import Filter
from tidemill.core.queues import DAY, QueueSettings, Retention
from tidemill.core.states import State
from tidemill.errors import StoreUnavailable
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import ClocksParted, JobsDroppedEarly
from tidemill.worker.bookkeeper import Bookkeeper
from tidemill.worker.chores import every
from tidemill.worker.duty import Duty
from tidemill.worker.leader import Leader
from tidemill.worker.pruner import Pruner
from tidemill.worker.reclaimer import Reclaimer


async def noop() -> None: ...


async def claim_and_die(bench: Bench, lease: float) -> None:
    """Another worker takes everything there is and is never heard of again."""
    shares = (Share("default", 100),)
    await bench.store.claim(ClaimRequest(worker="dead", number=1, shares=shares, limit=100, lease=lease))


async def look(bench: Bench, reclaimer: Reclaimer) -> None:
    """As a worker's rounds do."""
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


def test_i26_nothing_is_reclaimed_for_a_lease_after_the_clocks_parted(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        job = await bench.enqueue("noop")
        await claim_and_die(bench, lease=30)
        loop_time = asyncio.get_running_loop().time
        clock_boot = bench.clock.boot
        reclaimer = Reclaimer(bench.store, lease=30, emitter=bench.emitter())
        await look(bench, reclaimer)
        # The store's machine slept for an hour that this process did not live through.
        bench.clock.boot = lambda: clock_boot() + 3600  # type: ignore[method-assign]
        await look(bench, reclaimer)
        assert (await bench.job(job)).state is State.RUNNING
        began = loop_time()
        while (await bench.job(job)).state is State.RUNNING:
            await asyncio.sleep(5)
            await look(bench, reclaimer)
        assert loop_time() - began == 30

    virtually(scenario)


@pytest.mark.parametrize("apart", [-3.0, 3.0])
def test_i26_clocks_that_part_either_way_are_noticed(virtually: Virtually, apart: float) -> None:
    """A store's clock that falls back says as little of its leases as one that runs ahead."""

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
            await look(bench, reclaimer)
            assert (await bench.job(job)).state is State.RUNNING
            await asyncio.sleep(1)
        assert [event.seconds for event in bench.told(ClocksParted)] == [pytest.approx(apart)]
        await asyncio.sleep(2)
        await look(bench, reclaimer)
        assert (await bench.job(job)).state is State.READY

    virtually(scenario)


def test_i26_nothing_is_reclaimed_by_an_old_look_at_the_clocks(virtually: Virtually) -> None:
    """They may have parted since: without a look of just now nothing is taken from anybody."""

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
        await look(bench, reclaimer)
        assert (await bench.job(job)).state is State.READY

    virtually(scenario)


def test_a_duty_is_ours_from_when_it_was_asked_for(virtually: Virtually) -> None:
    """The store counts the lease from before its answer: counted from the answer, two would lead."""

    async def scenario(bench: Bench) -> None:
        class Slow(MemoryStore):
            async def lead(self, names: Sequence[str], worker: str, lease: float) -> Led:
                led = await super().lead(names, worker, lease)
                await asyncio.sleep(3)
                return led

        slow: Any = Slow.__new__(Slow)
        slow.__dict__.update(bench.store.another().__dict__)
        leader = Leader(slow, "a", bench.emitter(), every=4.0)
        duty = leader.duty("duty")
        running = asyncio.create_task(leader.run())
        await asyncio.sleep(3.5)
        assert duty.ours
        assert duty.until == leader.lease
        running.cancel()

    virtually(scenario)


def test_only_one_worker_does_a_chore(virtually: Virtually) -> None:
    done: list[str] = []

    async def scenario(bench: Bench) -> None:
        async def chore(name: str) -> bool:
            done.append(name)
            return False

        leaders = {
            name: Leader(bench.store, name, bench.emitter(name), every=2.0) for name in ("a", "b", "c")
        }
        chores = [
            asyncio.create_task(every(10, leader.duty("duty"), partial(chore, name), bench.emitter(name)))
            for name, leader in leaders.items()
        ]
        chores += [asyncio.create_task(leader.run()) for leader in leaders.values()]
        await asyncio.sleep(105)
        assert len(done) == 11
        assert len(set(done)) == 1
        for task in chores:
            task.cancel()

    virtually(scenario)


def test_a_failing_chore_is_tried_again_and_a_long_one_goes_on_at_once(virtually: Virtually) -> None:
    calls: list[float] = []

    async def scenario(bench: Bench) -> None:
        async def chore() -> bool:
            calls.append(asyncio.get_running_loop().time())
            if len(calls) == 1:
                raise StoreUnavailable("down")
            if len(calls) == 2:
                raise RuntimeError("a bug")
            return len(calls) == 3

        task = asyncio.create_task(every(10, Duty("duty", led=False), chore, bench.emitter()))
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
    return Pruner(bench.store, Bookkeeper(bench.store, time), bench.emitter(), time)


async def cancel_jobs(bench: Bench, queue: str, jobs: int) -> None:
    for _ in range(jobs):
        await bench.enqueue("noop", queue=queue)
    await bench.store.amend(Filter(queue=queue), Cancel())


def test_j84_an_early_drop_is_told_once_an_hour_and_queue(virtually: Virtually) -> None:
    """Also when another worker leads for a while."""

    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        kept = QueueSettings(keep_cancelled=Retention(age=7 * DAY, count=5))
        await bench.store.declare({"default": kept, "other": kept})
        leader, another = _prunes(bench), _prunes(bench)
        for round_ in range(15):
            await cancel_jobs(bench, "default", 6)
            await cancel_jobs(bench, "other", 6 if round_ == 0 else 0)
            await (another if round_ in (3, 4) else leader).prune()
            await asyncio.sleep(600)
        told = [(event.queue, event.jobs) for event in bench.told(JobsDroppedEarly)]
        assert told == [("default", 1), ("other", 1), ("default", 37), ("default", 42)]

    virtually(scenario)


def test_many_jobs_are_dropped_in_short_rounds(virtually: Virtually) -> None:
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


def test_j84_what_is_kept_long_enough_is_not_told(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        await bench.store.declare({"default": QueueSettings(keep_done=Retention(age=1.0, count=5))})
        for _ in range(9):
            await bench.enqueue("noop")
        await bench.run_until_idle()
        await asyncio.sleep(2)
        await _prunes(bench).prune()
        assert bench.told(JobsDroppedEarly) == []
        assert await bench.store.counts() == {}

    virtually(scenario)


def test_i26_after_a_suspend_a_worker_that_never_led_reclaims_nothing_of_the_living(
    virtually: Virtually,
) -> None:
    """The leader's lease is over by the store's clock like any other, so another may lead first."""

    async def scenario(bench: Bench) -> None:
        async def long() -> None:
            await asyncio.sleep(60)

        bench.task(long)
        job = await bench.enqueue("long")
        owner = bench.worker(concurrency=1)
        running = [bench.start(owner)]
        await asyncio.sleep(0.1)
        running.append(bench.start(other := bench.worker()))
        await asyncio.sleep(13.95)  # the owner has just looked, the other is about to
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
