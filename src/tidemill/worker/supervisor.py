"""Runs several worker processes under one parent process, which restarts workers that die.

The parent runs no jobs. If a worker dies, the parent reclaims its jobs at once. A worker whose parent dies
drains and stops. A single worker needs no supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from tidemill.clock import Entropy
from tidemill.contract.store import Store
from tidemill.errors import StoreError
from tidemill.telemetry.events import MaintenanceFailed, WorkerDied, WorkerStartFailed
from tidemill.telemetry.listeners import Signals
from tidemill.worker.event_emitter import error_fields
from tidemill.worker.isolation.bootstrap import die_with_parent, refuse_worker_in_child
from tidemill.worker.options import UniqueWorkerId
from tidemill.worker.reclaimer import emit_reclaimed

WORKER_ID_VARIABLE = "TIDEMILL_WORKER_ID"
SUPERVISOR_VARIABLE = "TIDEMILL_SUPERVISOR"

FIRST_RESTART_SECONDS = 0.1
MAX_RESTART_SECONDS = 5.0
HEALTHY_SECONDS = 10.0


def supervised_id() -> UniqueWorkerId | None:
    """Returns the worker id that a supervisor set for this process; None if there is no supervisor. Call it
    only once per process, because it removes the environment variables that it reads."""
    # A program that a job starts must not believe that it is this worker.
    worker = os.environ.pop(WORKER_ID_VARIABLE, None)
    parent = os.environ.pop(SUPERVISOR_VARIABLE, None)
    if parent is not None:
        die_with_parent(signal.SIGTERM, int(parent))
    return None if worker is None else UniqueWorkerId(worker)


class Supervisor:
    """Starts `command` once for each of `processes` workers and restarts workers that end. The command must
    get its worker id from `supervised_id`, and end with exit code 0 when it has drained.

    `until_idle`: True if the command ends by itself when there is nothing to do. It is then not restarted
    after exit code 0, unless it still holds jobs."""

    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        *,
        store: Store,
        entropy: Entropy,
        signals: Signals | None = None,
        until_idle: bool = False,
    ) -> None:
        self._command = tuple(command)
        self._processes = processes
        self._until_idle = until_idle
        self._store, self._entropy = store, entropy
        self._signals = signals or Signals()
        self._processes_by_worker: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self.restarts = 0

    @property
    def pids(self) -> dict[str, int]:
        """A mapping from worker id to the process id of each running worker."""
        return {worker: process.pid for worker, process in self._processes_by_worker.items()}

    async def run(self) -> None:
        """Runs until all workers have ended. A worker ends when it has drained after `stop`, or when it was
        idle and `until_idle` is True."""
        refuse_worker_in_child()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._processes):
                group.create_task(self._supervise_one())

    def stop(self) -> None:
        """Asks all workers to drain. A second call, at least a second later, makes them release their jobs at
        once."""
        self._stopping.set()
        for process in self._processes_by_worker.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()

    async def _supervise_one(self) -> None:
        loop, wait = asyncio.get_running_loop(), FIRST_RESTART_SECONDS
        while not self._stopping.is_set():
            began = loop.time()
            if await self._has_finished():
                return
            wait = (
                FIRST_RESTART_SECONDS
                if loop.time() - began >= HEALTHY_SECONDS
                else min(2 * wait, MAX_RESTART_SECONDS)
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stopping.wait()
            self.restarts += not self._stopping.is_set()

    async def _has_finished(self) -> bool:
        """Starts one worker and waits until its process ends. Returns True if the worker must not be
        restarted."""
        worker = self._entropy.new_id()
        try:
            code = await self._run_one(worker)
        except OSError as error:  # no process or no memory at the moment
            self._signals.emit(WorkerStartFailed(worker=worker, **error_fields(error)))
            return False
        left = await self._reclaim(worker)
        # A job may have called os._exit(0), so exit code 0 alone says nothing.
        if code == 0 and (self._stopping.is_set() or (self._until_idle and not left)):
            return True
        self._signals.emit(WorkerDied(worker=worker, exit_code=code, reclaimed=left))
        return False

    async def _run_one(self, worker: str) -> int:
        environment = {**os.environ, WORKER_ID_VARIABLE: worker, SUPERVISOR_VARIABLE: str(os.getpid())}
        process = await asyncio.create_subprocess_exec(*self._command, env=environment)
        self._processes_by_worker[worker] = process
        if self._stopping.is_set():  # stopped while this worker was starting
            process.terminate()
        try:
            return await process.wait()
        finally:
            del self._processes_by_worker[worker]

    async def _reclaim(self, worker: str) -> int:
        """Reclaims the jobs of a worker process that has ended. Returns how many; 0 if the store cannot be
        reached."""
        try:
            reclaimed = await self._store.reclaim(dead=[worker])
        except StoreError as error:  # its leases end by themselves
            self._signals.emit(MaintenanceFailed(worker=worker, operation="reclaim", **error_fields(error)))
            return 0
        await emit_reclaimed(self._signals, self._store, reclaimed)
        return len(reclaimed.ready) + len(reclaimed.poison)
