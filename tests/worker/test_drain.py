"""I20: a stopped worker claims nothing more, finishes what it can, and releases the rest."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Sequence

import pytest

from tests.worker.bench import Bench, Unreliable, Virtually
from tidemill.clock import SystemClock, SystemEntropy
from tidemill.core.claims import ClaimRequest, Settlement, SettleResult
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.definition import make_task_definition
from tidemill.testing.clocks import VirtualClock
from tidemill.testing.virtual_loop import run_virtual
from tidemill.worker import Worker, WorkerOptions
from tidemill.worker.drain import SECOND_SIGNAL_SECONDS, StopRequests, stop_on_signals


async def _sleeps(seconds: float) -> None:
    await asyncio.sleep(seconds)


def test_i20_running_jobs_finish_within_the_grace_time(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(_sleeps)
        short = await bench.enqueue("_sleeps", b'{"seconds":5}')
        long = await bench.enqueue("_sleeps", b'{"seconds":500}')
        waiting = await bench.enqueue("_sleeps", b'{"seconds":1}')
        worker = bench.worker(concurrency=2, grace=10)
        running = bench.start(worker)
        await asyncio.sleep(1)
        worker.stop()
        began = asyncio.get_running_loop().time()
        await running
        assert 10 <= asyncio.get_running_loop().time() - began < 10.1
        assert (await bench.job(short)).state is State.DONE
        for job in (long, waiting):
            record = await bench.job(job)
            assert (record.state, record.attempts, record.crashes) == (State.READY, 0, 0)

    virtually(scenario)


def test_i20_a_drained_worker_ends_as_soon_as_it_is_done(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(_sleeps)
        await bench.enqueue("_sleeps", b'{"seconds":5}')
        worker = bench.worker(grace=100)
        running = bench.start(worker)
        await asyncio.sleep(1)
        worker.stop()
        await running
        assert asyncio.get_running_loop().time() < 5.1

    virtually(scenario)


def test_a_forced_stop_releases_everything_at_once(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(_sleeps)
        job = await bench.enqueue("_sleeps", b'{"seconds":500}')
        worker = bench.worker(grace=100)
        running = bench.start(worker)
        await asyncio.sleep(1)
        worker.stop()
        await asyncio.sleep(1)
        worker.stop_now()
        await running
        assert asyncio.get_running_loop().time() < 2.1
        assert ((await bench.job(job)).state, (await bench.job(job)).attempts) == (State.READY, 0)

    virtually(scenario)


def test_an_attempt_that_ignores_the_drain_is_released_anyway(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        over = asyncio.Event()

        async def deaf() -> None:
            while not over.is_set():
                try:
                    await over.wait()
                except asyncio.CancelledError:
                    continue

        bench.task(deaf)
        job = await bench.enqueue("deaf")
        worker = bench.worker(grace=2)
        running = bench.start(worker)
        await asyncio.sleep(1)
        worker.stop()
        await running
        assert asyncio.get_running_loop().time() < 8.1
        assert (await bench.job(job)).state is State.READY
        over.set()

    virtually(scenario)


def test_i20_a_claim_under_way_at_the_stop_is_released_unrun(virtually: Virtually) -> None:
    ran: list[int] = []

    async def scenario(bench: Bench) -> None:
        async def note() -> None:
            ran.append(1)

        bench.task(note)
        jobs = [await bench.enqueue("note") for _ in range(50)]
        store = Unreliable(bench.store)
        store.slow = 1
        worker = bench.worker(store=store, concurrency=5)
        running = bench.start(worker)
        await asyncio.sleep(0.5)
        worker.stop()
        await running
        assert (ran, worker.stats.claimed, worker.stats.released) == ([], 5, 5)
        assert {(await bench.job(job)).state for job in jobs} == {State.READY}

    virtually(scenario)


def test_a_worker_stopped_before_it_runs_claims_nothing(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.enqueue("noop")
        worker = bench.worker()
        worker.stop()
        await bench.start(worker)
        assert worker.stats.claimed == 0

    virtually(scenario)


def test_a_stopped_worker_lets_another_lead_at_once(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(0.1)
        assert not (await bench.store.lead(["reclaim"], "another", 10)).leads
        worker.stop()
        await running
        assert (await bench.store.lead(["reclaim"], "another", 10)).leads

    virtually(scenario)


async def test_both_signals_stop_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.worker.drain.SECOND_SIGNAL_SECONDS", 0.0)
    stops: asyncio.Queue[str] = asyncio.Queue()
    with stop_on_signals(lambda: stops.put_nowait("stop"), lambda: stops.put_nowait("hurry")):
        os.kill(os.getpid(), signal.SIGTERM)
        assert await stops.get() == "stop"
        os.kill(os.getpid(), signal.SIGINT)
        assert await stops.get() == "hurry"


def test_i20_a_signal_that_arrives_twice_at_once_does_not_force_the_stop(virtually: Virtually) -> None:
    """One from the process group and one from the supervisor."""
    heard: list[str] = []

    async def scenario(bench: Bench) -> None:
        requests = StopRequests(lambda: heard.append("stop"), lambda: heard.append("hurry"))
        requests.received()
        requests.received()
        await asyncio.sleep(SECOND_SIGNAL_SECONDS / 2)
        requests.received()
        assert heard == ["stop"]
        await asyncio.sleep(SECOND_SIGNAL_SECONDS)
        requests.received()
        assert heard == ["stop", "hurry"]

    virtually(scenario)


def test_a_cancelled_worker_releases_everything(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(_sleeps)
        jobs = [await bench.enqueue("_sleeps", b'{"seconds":500}') for _ in range(3)]
        running = bench.start(bench.worker(concurrency=2))
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert asyncio.get_running_loop().time() == 1
        for job in jobs:
            record = await bench.job(job)
            assert (record.state, record.attempts, record.crashes) == (State.READY, 0, 0)

    virtually(scenario)


def test_a_store_that_is_down_cannot_keep_a_worker_from_stopping(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(_sleeps)
        await bench.enqueue("_sleeps", b'{"seconds":3}')
        await bench.enqueue("_sleeps", b'{"seconds":500}')
        store = Unreliable(bench.store)
        worker = bench.worker(store=store, grace=10)
        running = bench.start(worker)
        await asyncio.sleep(1)
        store.down = True
        worker.stop()
        await running
        assert asyncio.get_running_loop().time() < 1 + 10 + 5 + 5 + 2.1

    virtually(scenario)


def test_a_drain_continues_after_an_outage_within_its_time(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(_sleeps)
        job = await bench.enqueue("_sleeps", b'{"seconds":3}')
        store = Unreliable(bench.store)
        worker = bench.worker(store=store, grace=10)
        running = bench.start(worker)
        await asyncio.sleep(1)
        store.down = True
        worker.stop()
        await asyncio.sleep(5)
        store.down = False
        await running
        assert (await bench.job(job)).state is State.DONE

    virtually(scenario)


def test_i20_a_loop_that_ends_under_its_worker_charges_nothing() -> None:
    """In real time: `asyncio.run` cancels every task at once, the handlers' too."""
    store = MemoryStore()

    async def main() -> None:
        began = asyncio.Event()

        async def long() -> None:
            began.set()
            await asyncio.sleep(600)

        await store.open()
        await store.insert([JobGroup("default", (NewJob(id="a", task="long", payload=b"{}"),))])
        worker = Worker(
            store,
            {"long": make_task_definition(long, name="long", retry=Retry(attempts=1))},
            options=WorkerOptions(),
            clock=SystemClock(),
            entropy=SystemEntropy(),
        )
        background = asyncio.create_task(worker.run())
        await began.wait()
        assert not background.done()

    asyncio.run(main())
    [job] = store.blocking.get(["a"])
    assert job is not None
    assert (job.state, job.attempts, job.crashes) == (State.READY, 0, 0)


class Hangs(MemoryStore):
    """A store that answers nothing while the worker shuts down. `left` is set by its last settlement."""

    def __init__(self) -> None:
        super().__init__()
        self.left = asyncio.Event()

    def new_handle(self) -> Hangs:
        return self

    async def close(self) -> None: ...

    async def settle(
        self, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
        if request is None:
            self.left.set()
            await asyncio.Event().wait()
        return await super().settle(settlements, request)

    async def resign(self, duties: Sequence[str], worker: str) -> None:
        await asyncio.Event().wait()


def test_a_hanging_store_cannot_keep_a_worker_from_ending() -> None:
    async def main() -> None:
        clock = VirtualClock()
        bench = Bench(Hangs(), clock)
        worker = bench.worker(grace=1)
        running = bench.start(worker)
        await asyncio.sleep(1)
        worker.stop()
        async with asyncio.timeout(60):
            await running

    run_virtual(main())


async def test_a_worker_cancelled_twice_leaves_no_heartbeat_behind() -> None:
    """A heartbeat that continued would keep its jobs from all other workers."""
    store, began = Hangs(), asyncio.Event()

    async def long() -> None:
        began.set()
        await asyncio.sleep(600)

    await store.insert([JobGroup("default", (NewJob(id="a", task="long", payload=b"{}"),))])
    tasks = {"long": make_task_definition(long, name="long")}
    worker = Worker(store, tasks, options=WorkerOptions(), clock=SystemClock(), entropy=SystemEntropy())
    threads = set(threading.enumerate())
    running = asyncio.create_task(worker.run())
    await began.wait()
    [heartbeat] = [
        thread
        for thread in threading.enumerate()
        if thread.name == "tidemill-heartbeat" and thread not in threads
    ]
    running.cancel()
    await store.left.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await asyncio.to_thread(heartbeat.join, 5)
    assert not heartbeat.is_alive()
