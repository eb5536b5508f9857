"""Renews the leases of claimed jobs and sends progress and log lines, usually from a separate thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tidemill.contract.coordination import WakeupListener, worker_topic
from tidemill.contract.store import Store
from tidemill.core.claims import Heartbeat, HeldJob, LogEntry
from tidemill.errors import StoreError
from tidemill.telemetry.events import HeartbeatCrashed, HeartbeatFailed
from tidemill.worker.attempt import CLEANUP_SECONDS, Attempt, CancelReason
from tidemill.worker.claim_planner import ClaimPlanner
from tidemill.worker.event_emitter import EventEmitter, error_fields, error_fields_with_traceback
from tidemill.worker.executor import Executor
from tidemill.worker.in_flight import InFlight
from tidemill.worker.metrics import WorkerStats
from tidemill.worker.options import REARM_SECONDS, WorkerOptions
from tidemill.worker.outbox import Outbox, ReportBuffer

REPORT_SECONDS = 0.5
RETRY_SECONDS = 1.0
"""Seconds until a failed heartbeat is repeated; after another whole period a lease might be over."""
FINAL_REPORT_SECONDS = 0.02
"""Seconds an outcome waits for its attempt's last report, so that no log line is lost. A heartbeat lists
every claimed job, so there are at most fifty of these per second."""


class WorkerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The worker's name, host and process id, as the list of workers shows them."""

    worker: str
    host: str = ""
    pid: int = 0


class HeartbeatSender:
    """Sends the heartbeats of a worker and handles the store's answers.

    `to_worker`: calls a function on the worker's event loop."""

    def __init__(
        self,
        identity: WorkerIdentity,
        options: WorkerOptions,
        in_flight: InFlight,
        stats: WorkerStats,
        emitter: EventEmitter,
        *,
        reports: ReportBuffer,
        executor: Executor,
        outbox: Outbox,
        planner: ClaimPlanner,
        to_worker: Callable[..., Any],
    ) -> None:
        self._identity, self._options, self._planner = identity, options, planner
        self._in_flight, self._stats, self._emitter = in_flight, stats, emitter
        self._reports, self._executor, self._outbox, self._to_worker = reports, executor, outbox, to_worker
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._is_urgent = False
        self._failing = False

    async def run(self, store: Store) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._reports.attach(self._loop, self._wake)
        listener = store.listen([worker_topic(self._identity.worker)])
        listening = asyncio.create_task(self._listen(listener, self._wake))
        try:
            while True:
                await self._beat(store)
                await self._until_next()
        finally:
            self._reports.detach()
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            listener.close()
            self._put_reported(self._reports.take_final())

    async def sign_off(self, store: Store) -> None:
        """Removes this worker from the list of workers at once. Call it only when the worker holds no
        jobs."""
        await store.extend(self._message(self._in_flight.received, [], lease=0.0))

    async def _listen(self, listener: WakeupListener, wake: asyncio.Event) -> None:
        """Requests a heartbeat after each wake-up of this worker, which means that a running job was
        cancelled."""
        time, was_away = asyncio.get_running_loop().time, False
        while True:
            listener.arm()
            armed = time()
            if was_away:
                self._beat_at_once(wake)
            woken = await listener.wait(REARM_SECONDS)
            listener.disarm()
            if woken:
                self._beat_at_once(wake)
            # During an outage a listener cannot be armed and returns at once. Wake-ups during this sleep are
            # covered by a heartbeat after it.
            rest = armed + RETRY_SECONDS - time()
            was_away = woken and rest > 0
            if was_away:
                await asyncio.sleep(rest)

    def _beat_at_once(self, wake: asyncio.Event) -> None:
        self._is_urgent = True
        wake.set()

    async def _until_next(self) -> None:
        assert self._loop is not None  # noqa: S101 - running
        assert self._wake is not None  # noqa: S101 - running
        beaten = self._loop.time()
        while (left := beaten + self._wait_seconds() - self._loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()
            self._wake.clear()

    def _wait_seconds(self) -> float:
        """Returns the seconds between the last heartbeat and the next one; 0 if the next one must be sent
        immediately."""
        if self._is_urgent:
            return 0.0
        if self._reports.has_final:
            return FINAL_REPORT_SECONDS
        usual = self._options.beat_every
        if self._failing:
            return min(RETRY_SECONDS, usual)
        return min(REPORT_SECONDS, usual) if self._reports.has_new else usual

    async def _beat(self, store: Store) -> None:
        self._reports.has_new = self._is_urgent = False
        reported = self._reports.take_final()
        try:
            await self._send_heartbeat(store)
        except StoreError as error:
            self._emit_failure(error)
        finally:  # a failed report must not hold back the outcome
            self._put_reported(reported)
        self._measure_lag()

    async def _send_heartbeat(self, store: Store) -> None:
        received = self._in_flight.received  # read before `held`: see InFlight
        listed = list(self._in_flight.held.values())
        leased_until = listed[0].boot() + self._options.lease if listed else 0.0
        message = self._message(received, listed)
        extended = await store.extend(message)
        self._failing = False
        self._stats.beats += 1
        for attempt in listed:
            if attempt.report is not None:
                attempt.report.sent()
        lost = set(extended.lost)
        for attempt, held in zip(listed, message.held, strict=True):
            if held.renew and attempt.job.id not in lost:
                attempt.leased_until = leased_until
        if lost:
            self._to_worker(self._executor.lose, [attempt for attempt in listed if attempt.job.id in lost])

    def _message(self, received: int, listed: list[Attempt], lease: float | None = None) -> Heartbeat:
        now = asyncio.get_running_loop().time()
        return Heartbeat(
            worker=self._identity.worker,
            received=received,
            lease=self._options.lease if lease is None else lease,
            held=tuple([make_held_job(attempt, now) for attempt in listed]),
            host=self._identity.host,
            pid=self._identity.pid,
            queues=self._planner.queues,
            concurrency=self._options.concurrency,
        )

    def _emit_failure(self, error: StoreError) -> None:
        if not self._failing:
            self._failing = True
            self._emitter.worker_event(HeartbeatFailed, **error_fields(error))

    def emit_crash(self, error: Exception) -> None:
        """Emits an event about an unexpected error in the heartbeat. The caller then restarts the
        heartbeat."""
        self._emitter.worker_event(HeartbeatCrashed, **error_fields_with_traceback(error))

    def _measure_lag(self) -> None:
        assert self._loop is not None  # noqa: S101 - running
        loop, sent = self._loop, self._loop.time()

        def answered() -> None:
            self._stats.loop_lag = max(0.0, loop.time() - sent)

        self._to_worker(answered)

    def _put_reported(self, attempts: list[Attempt]) -> None:
        if attempts:
            self._to_worker(self._outbox.put_reported, attempts)


def _latest_end(attempt: Attempt) -> float:
    """Returns the event-loop time after which the heartbeat no longer renews the attempt's lease. This is
    CLEANUP_SECONDS after its timeout."""
    return attempt.deadline if attempt.stop is CancelReason.TIMEOUT else attempt.deadline + CLEANUP_SECONDS


def make_held_job(attempt: Attempt, now: float) -> HeldJob:
    job = attempt.job
    renew = attempt.outcome is not None or _latest_end(attempt.batch or attempt) > now
    report = attempt.report
    if report is None:
        return HeldJob(job=job.id, fence=job.fence, claim=job.claim, renew=renew)
    fraction, note = report.take() or (None, None)
    return HeldJob(
        job=job.id,
        fence=job.fence,
        claim=job.claim,
        renew=renew,
        progress=fraction,
        note=note,
        log=_make_log_entries(report.unsent, attempt.boot()) if report.unsent else (),
    )


def _make_log_entries(lines: Iterable[tuple[float, str]], now: float) -> tuple[LogEntry, ...]:
    return tuple(LogEntry(line, max(0.0, now - at)) for at, line in lines)


class LoopHeartbeat:
    """Sends heartbeats on the worker's event loop, over the worker's own store connection. For tests under
    virtual time."""

    def __init__(self, heartbeat: HeartbeatSender, store: Store) -> None:
        self._task = asyncio.create_task(heartbeat.run(store))

    def stop(self) -> None:
        self._task.cancel()

    async def stopped(self, within: float) -> None:
        await asyncio.wait([self._task], timeout=within)


class ThreadHeartbeat:
    """Sends heartbeats from a separate thread with its own store connection. It restarts itself after an
    unexpected error."""

    def __init__(self, heartbeat: HeartbeatSender, store: Store) -> None:
        self._heartbeat, self._store = heartbeat, store
        self._loop = asyncio.new_event_loop()
        self._stopping = threading.Event()
        self._main: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run_thread, name="tidemill-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        with contextlib.suppress(RuntimeError):  # the thread may have closed its loop already
            self._loop.call_soon_threadsafe(self._cancel)

    async def stopped(self, within: float) -> None:
        """Waits at most `within` seconds until the thread has ended."""
        await asyncio.to_thread(self._thread.join, within)

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _run_thread(self) -> None:
        with (
            asyncio.Runner(loop_factory=lambda: self._loop) as runner,
            contextlib.suppress(asyncio.CancelledError),
        ):
            runner.run(self._run_heartbeats())

    async def _run_heartbeats(self) -> None:
        self._main = asyncio.current_task()
        while not self._stopping.is_set():
            store = self._store.new_handle()
            try:
                await store.open()
                await self._heartbeat.run(store)
            except Exception as error:  # noqa: BLE001 - a worker without a heartbeat loses everything it holds
                self._heartbeat.emit_crash(error)
                await asyncio.sleep(1)
            finally:
                await store.close()
