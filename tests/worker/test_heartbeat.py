"""The heartbeat renews leases, notices lost claims, and sends reports."""

from __future__ import annotations

import asyncio
import threading

from tests.worker.bench import NO_POOLS, Bench, Virtually
from tidemill.clock import SystemClock, SystemEntropy
from tidemill.contract.jobs import ExtendResult
from tidemill.contract.reader import LOG_LINES_PER_ATTEMPT
from tidemill.core.claims import ClaimedJob, Heartbeat
from tidemill.core.filters import Filter
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import JobRelease
from tidemill.core.states import State
from tidemill.errors import StoreUnavailable
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.context import Context
from tidemill.tasks.definition import make_task_definition
from tidemill.testing.clocks import VirtualClock
from tidemill.worker import Worker, WorkerOptions
from tidemill.worker.attempt import Attempt, CancelReason
from tidemill.worker.heartbeat import make_held_job


def test_i7_a_long_job_keeps_its_lease(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def long() -> None:
            await asyncio.sleep(200)

        bench.task(long)
        job = await bench.enqueue("long")
        await bench.run_until_idle(lease=3, reclaim_every=1)
        record = await bench.job(job)
        assert (record.state, record.attempts, record.crashes) == (State.DONE, 1, 0)

    virtually(scenario)


def test_i19_a_cancelled_job_is_stopped_at_once(virtually: Virtually) -> None:
    stopped = []

    async def scenario(bench: Bench) -> None:
        async def long(ctx: Context) -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                stopped.append((asyncio.get_running_loop().time(), ctx.cancelled))

        bench.task(long)
        job = await bench.enqueue("long")
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(20.5)
        await bench.store.amend(Filter(ids=(job,)), CancelJobs())
        await asyncio.sleep(0.01)
        assert [(round(at, 1), cancelled) for at, cancelled in stopped] == [(20.5, True)]
        assert ((await bench.job(job)).state, worker.stats.lost) == (State.CANCELLED, 1)
        worker.stop()
        await running

    virtually(scenario)


def test_progress_is_seen_within_half_a_second(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def reports(ctx: Context) -> None:
            for step in range(100):
                await ctx.progress(step / 100, f"step {step}")
                await asyncio.sleep(0.01)
            await asyncio.sleep(100)

        bench.task(reports)
        job = await bench.enqueue("reports")
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(0.6)
        first = (await bench.job(job)).progress
        assert first is not None
        assert first > 0.4
        await asyncio.sleep(1)
        assert ((await bench.job(job)).progress, (await bench.job(job)).note) == (0.99, "step 99")
        assert worker.stats.beats <= 5, "a hundred reports share a few beats"
        worker.stop_now()
        await running

    virtually(scenario)


def test_the_last_log_lines_of_a_short_job_are_stored(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def talks(ctx: Context) -> None:
            ctx.log("first")
            ctx.log("last")
            await ctx.progress(1)

        bench.task(talks)
        jobs = [await bench.enqueue("talks") for _ in range(25)]
        await bench.run_until_idle()
        for job in jobs:
            assert [line.line for line in await bench.store.logs(job)] == ["first", "last"]
            assert ((await bench.job(job)).state, (await bench.job(job)).progress) == (State.DONE, 1)

    virtually(scenario)


class Deaf(MemoryStore):
    """A store that stops receiving heartbeats."""

    def __init__(self, store: MemoryStore) -> None:
        self.__dict__.update(store.new_handle().__dict__)
        self.deaf = False

    async def extend(self, heartbeat: Heartbeat) -> ExtendResult:
        if self.deaf:
            raise StoreUnavailable("not heard")
        return await super().extend(heartbeat)


def test_reports_wait_for_a_heartbeat_that_succeeds(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def talks(ctx: Context) -> None:
            ctx.log("said while nobody heard")
            await ctx.progress(0.5)
            await asyncio.sleep(100)

        bench.task(talks)
        job = await bench.enqueue("talks")
        store = Deaf(bench.store)
        store.deaf = True
        worker = bench.worker(store=store)
        running = bench.start(worker)
        await asyncio.sleep(5)
        assert await bench.store.logs(job) == []
        store.deaf = False
        await asyncio.sleep(15)
        assert [line.line for line in await bench.store.logs(job)] == ["said while nobody heard"]
        assert (await bench.job(job)).progress == 0.5
        worker.stop_now()
        await running

    virtually(scenario)


def test_i6_a_lost_lease_stops_the_attempt_and_its_outcome_is_dropped(virtually: Virtually) -> None:
    ends: list[str] = []

    async def scenario(bench: Bench) -> None:
        async def long() -> None:
            try:
                await asyncio.sleep(60)
                ends.append("ran to its end")
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise

        bench.task(long)
        job = await bench.enqueue("long")
        store = Deaf(bench.store)
        worker = bench.worker(store=store, lease=6, reclaim_every=1, concurrency=1)
        running = bench.start(worker)
        await asyncio.sleep(1)
        store.deaf = True
        await asyncio.sleep(15)
        store.deaf = False
        await asyncio.sleep(3)
        assert ends == ["cancelled"]
        assert ((await bench.job(job)).crashes, worker.stats.lost) == (1, 1)
        await asyncio.sleep(70)
        assert (await bench.job(job)).state is State.DONE
        worker.stop()
        await running

    virtually(scenario)


def test_a_log_line_has_the_time_when_it_was_logged(virtually: Virtually) -> None:
    """Even if the worker's clock is wrong: only the store's clock counts."""

    async def talks(ctx: Context) -> None:
        ctx.log("one")
        await asyncio.sleep(0.3)
        ctx.log("two")
        await asyncio.sleep(60)

    async def scenario(bench: Bench) -> None:
        bench.task(talks)
        job = await bench.enqueue("talks")
        store = Deaf(bench.store)
        store.deaf = True
        bench.clock = VirtualClock(skew=300)
        began = bench.store._shared.records.clock.wall()
        running = bench.start(worker := bench.worker(store=store))
        await asyncio.sleep(20)
        assert await bench.store.logs(job) == []
        store.deaf = False
        await asyncio.sleep(15)
        logged = [(line.line, round(line.at - began, 3)) for line in await bench.store.logs(job)]
        assert logged == [("one", 0.0), ("two", 0.3)]
        worker.stop_now()
        await running

    virtually(scenario)


def test_i21_a_job_that_outran_its_timeout_is_listed_but_not_renewed() -> None:
    """Seen while the worker's loop is blocked: nothing there could cancel or settle the attempt."""
    job = ClaimedJob("a", "default", "t", b"{}", 1, 2, 1, 5, "", 0, 0, None, None, 0.0, 0.0, "")
    attempt = Attempt(job, None, lambda: None, lambda: 0.0, NO_POOLS)
    assert make_held_job(attempt, now=1e9).renew, "claimed ahead: no timeout runs yet"
    attempt.deadline = 100.0
    assert make_held_job(attempt, now=104.9).renew
    assert not make_held_job(attempt, now=105.1).renew
    attempt.stop, attempt.deadline = CancelReason.TIMEOUT, 105.0
    assert make_held_job(attempt, now=104.9).renew
    assert not make_held_job(attempt, now=105.1).renew
    attempt.outcome = JobRelease()
    assert make_held_job(attempt, now=1e9).renew, "its outcome is on the way"


async def test_i7_a_blocked_loop_does_not_cost_the_lease() -> None:
    """In real time: the heartbeat's thread renews while a handler blocks the loop for three leases."""
    store = await MemoryStore().open()
    beaten = threading.Semaphore(0)

    class Heard(MemoryStore):
        def new_handle(self) -> Heard:
            return self

        async def close(self) -> None: ...

        async def extend(self, heartbeat: Heartbeat) -> ExtendResult:
            extended = await super().extend(heartbeat)
            if heartbeat.held:
                beaten.release()
            return extended

    async def blocks() -> None:
        for _ in range(9):
            assert beaten.acquire(timeout=30)

    heard = Heard()
    heard.__dict__.update(store.__dict__)
    await store.insert([JobGroup("default", (NewJob(id="1", task="blocks", payload=b"{}"),))])
    worker = Worker(
        heard,
        {"blocks": make_task_definition(blocks, name="blocks")},
        options=WorkerOptions(lease=0.3, until_idle=True),
        clock=SystemClock(),
        entropy=SystemEntropy(),
    )
    await worker.run()
    [job] = await store.get(["1"])
    assert job is not None
    assert (job.state, job.crashes) == (State.DONE, 0)


async def test_a_crashed_heartbeat_is_restarted_and_delays_no_outcome() -> None:
    """In a real thread: one heartbeat fails with a bug in the store, the next one succeeds."""
    store = await MemoryStore().open()
    broken = threading.Event()

    class Breaks(MemoryStore):
        def new_handle(self) -> Breaks:
            return self

        async def close(self) -> None: ...

        async def extend(self, heartbeat: Heartbeat) -> ExtendResult:
            if heartbeat.held and not broken.is_set():
                broken.set()
                raise RuntimeError("a bug")
            return await super().extend(heartbeat)

    async def talks(ctx: Context) -> None:
        ctx.log("said")

    breaks = Breaks()
    breaks.__dict__.update(store.__dict__)
    new = tuple(NewJob(id=str(number), task="talks", payload=b"{}") for number in range(3))
    await store.insert([JobGroup("default", new)])
    worker = Worker(
        breaks,
        {"talks": make_task_definition(talks, name="talks")},
        options=WorkerOptions(until_idle=True, concurrency=1),
        clock=SystemClock(),
        entropy=SystemEntropy(),
    )
    async with asyncio.timeout(20):
        await worker.run()
    assert broken.is_set()
    assert worker.stats.done == 3


def test_i7_a_failed_heartbeat_is_repeated_within_a_second(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        store = Deaf(bench.store)
        worker = bench.worker(store=store, lease=30)
        running = bench.start(worker)
        await asyncio.sleep(9)
        before = worker.stats.beats
        store.deaf = True
        await asyncio.sleep(3)
        store.deaf = False
        await asyncio.sleep(1)
        assert worker.stats.beats == before + 1
        await asyncio.sleep(8)
        assert worker.stats.beats == before + 1, "and then as often as before"
        worker.stop()
        await running

    virtually(scenario)


def test_log_lines_during_an_outage_are_bounded(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def talks(ctx: Context) -> None:
            for number in range(20):
                for line in range(LOG_LINES_PER_ATTEMPT // 2):
                    ctx.log(f"{number}-{line}")
                await asyncio.sleep(1)
            await asyncio.sleep(60)

        bench.task(talks)
        job = await bench.enqueue("talks")
        store = Deaf(bench.store)
        sent: list[int] = []
        extend = store.extend

        async def watched(heartbeat: Heartbeat) -> ExtendResult:
            sent.extend(len(held.log) for held in heartbeat.held)
            return await extend(heartbeat)

        store.extend = watched  # type: ignore[method-assign]
        store.deaf = True
        worker = bench.worker(store=store, lease=120)
        running = bench.start(worker)
        await asyncio.sleep(30)
        store.deaf = False
        await asyncio.sleep(2)
        assert max(sent) == LOG_LINES_PER_ATTEMPT
        assert (await bench.store.logs(job))[-1].line == f"19-{LOG_LINES_PER_ATTEMPT // 2 - 1}"
        worker.stop_now()
        await running

    virtually(scenario)
