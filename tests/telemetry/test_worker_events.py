"""Every event about workers and the store comes from a real worker or supervisor."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worker.bench import Bench, Unreliable, Virtually
from tidemill import Tidemill
from tidemill.cli.minding import mind_unknown
from tidemill.clock import SystemClock, SystemEntropy
from tidemill.contract.jobs import Extended, Pruned
from tidemill.core.claims import ClaimRequest, Heartbeat, Share
from tidemill.core.job import Group, NewJob
from tidemill.errors import StoreUnavailable
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import (
    ChoreBroke,
    ChoreFailed,
    ClocksParted,
    Draining,
    Event,
    GraceOver,
    HeartbeatBroke,
    HeartbeatFailed,
    JobReclaimed,
    OutcomesUntold,
    QueuesUnknown,
    StoreBack,
    StoreLost,
    WorkerDied,
    WorkerNotStarted,
    WorkerStarted,
    WorkerStopped,
)
from tidemill.telemetry.signals import Signals
from tidemill.worker import Worker, WorkerOptions
from tidemill.worker.reclaimer import Reclaimer
from tidemill.worker.supervisor import Supervisor


async def noop() -> None: ...


async def breaks() -> None:
    raise ValueError("no")


def test_a_worker_says_what_it_serves_what_it_did_and_what_it_left(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        bench.task(breaks)
        for _ in range(3):
            await bench.enqueue("noop")
        await bench.enqueue("noop", delay=60)
        await bench.enqueue("noop", delay=60, queue="another")
        await bench.enqueue("breaks")
        worker = await bench.run_until_idle(queues={"default": 2}, concurrency=4)
        assert bench.told(WorkerStarted) == [
            WorkerStarted(worker=worker.id, queues={"default": 2}, concurrency=4)
        ]
        [stopped] = bench.told(WorkerStopped)
        assert (stopped.worker, stopped.done, stopped.retried, stopped.failed) == (worker.id, 3, 1, 0)
        assert stopped.scheduled == 2  # the one for later, and the retry
        assert (stopped.ready, stopped.paused) == (0, None)

    virtually(scenario)


def test_a_worker_that_is_idle_says_what_a_pause_kept_from_it(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        for queue in ("default", "closed", "another"):
            await bench.enqueue("noop", queue=queue)
        await bench.store.pause("closed")
        await bench.store.pause("another")
        await bench.run_until_idle(queues={"default": 1, "closed": 1})
        [stopped] = bench.told(WorkerStopped)
        assert (stopped.done, stopped.ready, stopped.paused) == (1, 1, ("closed",))

    virtually(scenario)


def test_i20_a_drain_is_told_and_what_the_grace_time_cut_off(virtually: Virtually) -> None:
    async def long() -> None:
        await asyncio.sleep(3600)

    async def scenario(bench: Bench) -> None:
        bench.task(long)
        await bench.enqueue("long")
        running = bench.start(worker := bench.worker(grace=7))
        await asyncio.sleep(1)
        worker.stop()
        await running
        assert bench.told(Draining) == [Draining(worker=worker.id, running=1, grace=7)]
        assert bench.told(GraceOver) == [GraceOver(worker=worker.id, running=1)]
        [stopped] = bench.told(WorkerStopped)
        assert (stopped.released, stopped.scheduled) == (1, None)

    virtually(scenario)


def test_an_outage_is_told_with_its_length_and_once(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        store = Unreliable(bench.store)
        running = bench.start(worker := bench.worker(store=store))
        await asyncio.sleep(1)
        store.down = True
        await asyncio.sleep(30)
        store.down = False
        await asyncio.sleep(10)
        [lost], [back] = bench.told(StoreLost), bench.told(StoreBack)
        assert (lost.worker, lost.error, lost.message) == (worker.id, "StoreUnavailable", "down")
        assert back.seconds == pytest.approx(30, abs=6)
        worker.stop()
        await running

    virtually(scenario)


def test_a_worker_that_cannot_tell_the_store_says_so(virtually: Virtually) -> None:
    async def long() -> None:
        await asyncio.sleep(3600)

    async def scenario(bench: Bench) -> None:
        bench.task(long)
        await bench.enqueue("long")
        store = Unreliable(bench.store)
        running = bench.start(worker := bench.worker(store=store, grace=1))
        await asyncio.sleep(1)
        store.down = True
        worker.stop()
        await running
        assert bench.told(OutcomesUntold) == [OutcomesUntold(worker=worker.id, outcomes=1)]

    virtually(scenario)


class Faulty(Unreliable):
    """`beat` and `pruning` are raised by those verbs while they are set."""

    beat: Exception | None = None
    pruning: Exception | None = None

    async def extend(self, heartbeat: Heartbeat) -> Extended:
        if self.beat is not None:
            raise self.beat
        return await super().extend(heartbeat)

    async def prune(self, limit: int = 1000) -> Pruned:
        if self.pruning is not None:
            raise self.pruning
        return await super().prune(limit)


def test_a_heartbeat_that_fails_is_told_once_per_outage(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        store = Faulty(bench.store)
        running = bench.start(worker := bench.worker(store=store))
        for _ in range(2):
            store.beat = StoreUnavailable("gone fishing")
            await asyncio.sleep(40)
            store.beat = None
            await asyncio.sleep(40)
        told = bench.told(HeartbeatFailed)
        assert [(event.worker, event.message) for event in told] == [(worker.id, "gone fishing")] * 2
        worker.stop()
        await running

    virtually(scenario)


def test_chores_that_fail_or_break_are_told(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        store = Faulty(bench.store)
        running = bench.start(worker := bench.worker(store=store, prune_every=10))
        store.pruning = StoreUnavailable("busy")
        await asyncio.sleep(35)
        store.pruning = ZeroDivisionError("a bug")
        await asyncio.sleep(10)
        store.pruning = None
        [failed], [broke] = bench.told(ChoreFailed), bench.told(ChoreBroke)
        assert (failed.chore, failed.error, failed.message) == ("prune", "StoreUnavailable", "busy")
        assert (broke.chore, broke.error, broke.message) == ("prune", "ZeroDivisionError", "a bug")
        assert "in prune" in broke.traceback
        worker.stop()
        await running

    virtually(scenario)


def test_i26_clocks_that_part_are_told(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        reclaimer, boot = Reclaimer(bench.store, 30, bench.emitter("w")), bench.clock.boot
        reclaimer.watch(await bench.store.read_clock(), 0.0)
        bench.clock.boot = lambda: boot() + 3600  # type: ignore[method-assign]
        reclaimer.watch(await bench.store.read_clock(), 0.0)
        assert bench.told(ClocksParted) == [ClocksParted(worker="w", seconds=3600, pause=30)]

    virtually(scenario)


class BreaksOnce(MemoryStore):
    """The heartbeat's own handle on the store has a bug, the first time."""

    broken = False

    async def extend(self, heartbeat: Heartbeat) -> Extended:
        if not BreaksOnce.broken:
            BreaksOnce.broken = True
            raise ZeroDivisionError("a bug")
        return await super().extend(heartbeat)


async def test_a_heartbeat_that_breaks_is_told_and_started_again() -> None:
    store = await BreaksOnce().open()
    told, loop, signals = asyncio.Queue[HeartbeatBroke](), asyncio.get_running_loop(), Signals()
    signals.subscribe(lambda event: loop.call_soon_threadsafe(told.put_nowait, event), HeartbeatBroke)
    options: dict[str, Any] = {"clock": SystemClock(), "entropy": SystemEntropy(), "signals": signals}
    worker = Worker(store, {}, options=WorkerOptions(), **options)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(10):
        broke = await told.get()
    assert (broke.worker, broke.error) == (worker.id, "ZeroDivisionError")
    assert "in extend" in broke.traceback
    worker.stop()
    await running


async def _supervise(command: list[str], kind: type[Event]) -> list[Any]:
    """Until the first such event."""
    store, signals, told = await MemoryStore().open(), Signals(), list[Any]()
    supervisor = Supervisor(command, 1, store=store, entropy=SystemEntropy(), signals=signals)

    def hear(event: Event) -> None:
        told.append(event)
        supervisor.stop()

    signals.subscribe(hear, kind)
    async with asyncio.timeout(20):
        await supervisor.run()
    return told


async def test_a_worker_process_that_dies_is_told() -> None:
    [died] = await _supervise([sys.executable, "-S", "-c", "raise SystemExit(3)"], WorkerDied)
    assert (died.exit_code, died.reclaimed) == (3, 0)


async def test_a_worker_process_that_cannot_be_started_is_told() -> None:
    [told] = await _supervise(["/nowhere/python"], WorkerNotStarted)
    assert told.error == "FileNotFoundError"


async def test_what_a_dead_worker_held_is_told_job_by_job() -> None:
    store, signals, told = await MemoryStore().open(), Signals(), list[Event]()
    supervisor = Supervisor([], 1, store=store, entropy=SystemEntropy(), signals=signals)
    signals.subscribe(told.append, JobReclaimed)
    await store.insert([Group("default", (NewJob(id="a", task="noop", payload=b"{}"),))])
    shares = (Share("default", 1),)
    await store.claim(ClaimRequest(worker="dead", number=1, shares=shares, limit=1, lease=30))
    assert await supervisor._reclaim("dead") == 1
    assert [(event.job, event.error) for event in told if isinstance(event, JobReclaimed)] == [
        ("a", "WorkerDied")
    ]


async def test_a_worker_says_which_store_it_works_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the root: in another folder a relative path is another file."""
    monkeypatch.chdir(tmp_path)
    for url, store in (("sqlite:///jobs.db", f"sqlite:///{tmp_path}/jobs.db"), ("memory://", "memory://")):
        app, told = Tidemill(url), list[WorkerStarted]()
        app.on(WorkerStarted)(told.append)
        app.queue("feeds")
        async with app:
            await app.worker(until_idle=True).run()
        assert [started.store for started in told] == [store]


def test_queues_nobody_declared_are_told() -> None:
    app, told = Tidemill("memory://"), list[QueuesUnknown]()
    app.queue("feeds")
    app.on(QueuesUnknown)(told.append)
    mind_unknown(app, ["feeds", "feds"])
    assert told == [QueuesUnknown(unknown=("feds",), known=("feeds",))]
