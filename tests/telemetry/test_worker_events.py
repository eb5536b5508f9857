"""A real worker or supervisor emits every event about workers and the store."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worker.bench import Bench, Unreliable, Virtually
from tidemill import Tidemill
from tidemill.cli.startup import warn_unknown_queues
from tidemill.clock import SystemClock, SystemEntropy
from tidemill.contract.jobs import ExtendResult, PruneResult
from tidemill.core.claims import ClaimRequest, Heartbeat, QueueShare
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.errors import StoreUnavailable
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.events import (
    ClockSkewDetected,
    Event,
    GraceExpired,
    HeartbeatCrashed,
    HeartbeatFailed,
    JobReclaimed,
    MaintenanceCrashed,
    MaintenanceFailed,
    OutcomesUndelivered,
    StoreLost,
    StoreRecovered,
    UnknownQueues,
    WorkerDied,
    WorkerDraining,
    WorkerStarted,
    WorkerStartFailed,
    WorkerStopped,
)
from tidemill.telemetry.listeners import Signals
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
        assert bench.events_of(WorkerStarted) == [
            WorkerStarted(worker=worker.id, queues={"default": 2}, concurrency=4)
        ]
        [stopped] = bench.events_of(WorkerStopped)
        assert (stopped.worker, stopped.done, stopped.retried, stopped.failed) == (worker.id, 3, 1, 0)
        assert stopped.scheduled == 2  # the scheduled job and the retry
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
        [stopped] = bench.events_of(WorkerStopped)
        assert (stopped.done, stopped.ready, stopped.paused) == (1, 1, ("closed",))

    virtually(scenario)


def test_i20_a_drain_and_an_expired_grace_time_emit_events(virtually: Virtually) -> None:
    async def long() -> None:
        await asyncio.sleep(3600)

    async def scenario(bench: Bench) -> None:
        bench.task(long)
        await bench.enqueue("long")
        running = bench.start(worker := bench.worker(grace=7))
        await asyncio.sleep(1)
        worker.stop()
        await running
        assert bench.events_of(WorkerDraining) == [WorkerDraining(worker=worker.id, running=1, grace=7)]
        assert bench.events_of(GraceExpired) == [GraceExpired(worker=worker.id, running=1)]
        [stopped] = bench.events_of(WorkerStopped)
        assert (stopped.released, stopped.scheduled) == (1, None)

    virtually(scenario)


def test_an_outage_emits_one_event_each_at_its_start_and_end(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        store = Unreliable(bench.store)
        running = bench.start(worker := bench.worker(store=store))
        await asyncio.sleep(1)
        store.down = True
        await asyncio.sleep(30)
        store.down = False
        await asyncio.sleep(10)
        [lost], [back] = bench.events_of(StoreLost), bench.events_of(StoreRecovered)
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
        assert bench.events_of(OutcomesUndelivered) == [OutcomesUndelivered(worker=worker.id, outcomes=1)]

    virtually(scenario)


class Faulty(Unreliable):
    """A store that raises `beat` and `pruning` in these operations while they are set."""

    beat: Exception | None = None
    pruning: Exception | None = None

    async def extend(self, heartbeat: Heartbeat) -> ExtendResult:
        if self.beat is not None:
            raise self.beat
        return await super().extend(heartbeat)

    async def prune(self, limit: int = 1000) -> PruneResult:
        if self.pruning is not None:
            raise self.pruning
        return await super().prune(limit)


def test_a_failing_heartbeat_emits_one_event_per_outage(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        store = Faulty(bench.store)
        running = bench.start(worker := bench.worker(store=store))
        for _ in range(2):
            store.beat = StoreUnavailable("gone fishing")
            await asyncio.sleep(40)
            store.beat = None
            await asyncio.sleep(40)
        events = bench.events_of(HeartbeatFailed)
        assert [(event.worker, event.message) for event in events] == [(worker.id, "gone fishing")] * 2
        worker.stop()
        await running

    virtually(scenario)


def test_failed_and_crashed_maintenance_emits_events(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        store = Faulty(bench.store)
        running = bench.start(worker := bench.worker(store=store, prune_every=10))
        store.pruning = StoreUnavailable("busy")
        await asyncio.sleep(35)
        store.pruning = ZeroDivisionError("a bug")
        await asyncio.sleep(10)
        store.pruning = None
        [failed], [broke] = bench.events_of(MaintenanceFailed), bench.events_of(MaintenanceCrashed)
        assert (failed.operation, failed.error, failed.message) == ("prune", "StoreUnavailable", "busy")
        assert (broke.operation, broke.error, broke.message) == ("prune", "ZeroDivisionError", "a bug")
        assert "in prune" in broke.traceback
        worker.stop()
        await running

    virtually(scenario)


def test_i26_clock_skew_emits_an_event(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        reclaimer, boot = Reclaimer(bench.store, 30, bench.emitter("w")), bench.clock.boot
        reclaimer.watch(await bench.store.read_clock(), 0.0)
        bench.clock.boot = lambda: boot() + 3600  # type: ignore[method-assign]
        reclaimer.watch(await bench.store.read_clock(), 0.0)
        assert bench.events_of(ClockSkewDetected) == [ClockSkewDetected(worker="w", seconds=3600, pause=30)]

    virtually(scenario)


class BreaksOnce(MemoryStore):
    """A store whose first heartbeat raises a programming error."""

    broken = False

    async def extend(self, heartbeat: Heartbeat) -> ExtendResult:
        if not BreaksOnce.broken:
            BreaksOnce.broken = True
            raise ZeroDivisionError("a bug")
        return await super().extend(heartbeat)


async def test_a_crashed_heartbeat_emits_an_event() -> None:
    store = await BreaksOnce().open()
    events, loop, signals = asyncio.Queue[HeartbeatCrashed](), asyncio.get_running_loop(), Signals()
    signals.subscribe(lambda event: loop.call_soon_threadsafe(events.put_nowait, event), HeartbeatCrashed)
    options: dict[str, Any] = {"clock": SystemClock(), "entropy": SystemEntropy(), "signals": signals}
    worker = Worker(store, {}, options=WorkerOptions(), **options)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(10):
        broke = await events.get()
    assert (broke.worker, broke.error) == (worker.id, "ZeroDivisionError")
    assert "in extend" in broke.traceback
    worker.stop()
    await running


async def _supervise(command: list[str], kind: type[Event]) -> list[Any]:
    """Runs a supervisor until the first event of this type."""
    store, signals, events = await MemoryStore().open(), Signals(), list[Any]()
    supervisor = Supervisor(command, 1, store=store, entropy=SystemEntropy(), signals=signals)

    def record(event: Event) -> None:
        events.append(event)
        supervisor.stop()

    signals.subscribe(record, kind)
    async with asyncio.timeout(20):
        await supervisor.run()
    return events


async def test_a_dead_worker_process_emits_worker_died() -> None:
    [died] = await _supervise([sys.executable, "-S", "-c", "raise SystemExit(3)"], WorkerDied)
    assert (died.exit_code, died.reclaimed) == (3, 0)


async def test_a_worker_process_that_cannot_start_emits_worker_start_failed() -> None:
    [failed] = await _supervise(["/nowhere/python"], WorkerStartFailed)
    assert failed.error == "FileNotFoundError"


async def test_every_job_of_a_dead_worker_emits_job_reclaimed() -> None:
    store, signals, events = await MemoryStore().open(), Signals(), list[Event]()
    supervisor = Supervisor([], 1, store=store, entropy=SystemEntropy(), signals=signals)
    signals.subscribe(events.append, JobReclaimed)
    await store.insert([JobGroup("default", (NewJob(id="a", task="noop", payload=b"{}"),))])
    shares = (QueueShare("default", 1),)
    await store.claim(ClaimRequest(worker="dead", number=1, shares=shares, limit=1, lease=30))
    assert await supervisor._reclaim("dead") == 1
    assert [(event.job, event.error) for event in events if isinstance(event, JobReclaimed)] == [
        ("a", "WorkerDied")
    ]


async def test_a_worker_says_which_store_it_works_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path is absolute, because a relative path means another file in another folder."""
    monkeypatch.chdir(tmp_path)
    for url, store in (("sqlite:///jobs.db", f"sqlite:///{tmp_path}/jobs.db"), ("memory://", "memory://")):
        app, events = Tidemill(url), list[WorkerStarted]()
        app.on(WorkerStarted)(events.append)
        app.queue("feeds")
        async with app:
            await app.worker(until_idle=True).run()
        assert [started.store for started in events] == [store]


def test_undeclared_queues_emit_unknown_queues() -> None:
    app, events = Tidemill("memory://"), list[UnknownQueues]()
    app.queue("feeds")
    app.on(UnknownQueues)(events.append)
    warn_unknown_queues(app, ["feeds", "feds"])
    assert events == [UnknownQueues(unknown=("feds",), known=("feeds",))]
