"""Several worker processes under one parent that restarts the ones that die.

The parent runs no jobs, so nothing a job does can hurt it. A worker's death is told to the store
at once, instead of when its leases are over. A worker whose parent dies drains and stops.

One process is run without a supervisor unless one is asked for: what starts it (systemd, a
container) restarts it, and its jobs come back when their leases are over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from tidemill.clock import Entropy
from tidemill.contract.store import Store
from tidemill.errors import StoreError
from tidemill.telemetry.events import ChoreFailed, WorkerDied, WorkerNotStarted
from tidemill.telemetry.signals import Signals
from tidemill.worker.emitter import described
from tidemill.worker.options import FreshId
from tidemill.worker.parent import die_with_parent
from tidemill.worker.reclaimer import tell
from tidemill.worker.runners.main_module import refuse_worker_in_child

WORKER_ID = "TIDEMILL_WORKER_ID"
SUPERVISOR = "TIDEMILL_SUPERVISOR"

FIRST_WAIT = 0.1
LONGEST_WAIT = 5.0
HEALTHY_AFTER = 10.0


def supervised_id() -> FreshId | None:
    """Called once by a process that may have been started by a supervisor: its worker's id.

    The variables are taken out, so that nothing a job starts takes itself for this worker."""
    worker = os.environ.pop(WORKER_ID, None)
    parent = os.environ.pop(SUPERVISOR, None)
    if parent is not None:
        die_with_parent(signal.SIGTERM, int(parent))
    return None if worker is None else FreshId(worker)


class Supervisor:
    """`command` starts one worker that asks `supervised_id` who it is and ends with 0 when drained.

    `until_idle`: the command ends by itself when there is nothing to do. Otherwise a worker that
    ends is started again whatever its exit code: a job may have called `os._exit(0)`."""

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
        self._living: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self.restarts = 0

    @property
    def pids(self) -> dict[str, int]:
        """Which worker runs where."""
        return {worker: process.pid for worker, process in self._living.items()}

    async def run(self) -> None:
        """Until every worker has drained, or ended by itself because it was idle."""
        refuse_worker_in_child()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._processes):
                group.create_task(self._keep_one())

    def stop(self) -> None:
        """Drain all workers. Once more, and they hand everything back at once."""
        self._stopping.set()
        for process in self._living.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()

    async def _keep_one(self) -> None:
        loop, wait = asyncio.get_running_loop(), FIRST_WAIT
        while not self._stopping.is_set():
            began = loop.time()
            if await self._has_finished():
                return
            wait = FIRST_WAIT if loop.time() - began >= HEALTHY_AFTER else min(2 * wait, LONGEST_WAIT)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stopping.wait()
            self.restarts += not self._stopping.is_set()

    async def _has_finished(self) -> bool:
        """Run one worker to its end. True when it is not to be replaced."""
        worker = self._entropy.new_id()
        try:
            code = await self._run_one(worker)
        except OSError as error:  # no process, no memory: for now
            self._signals.emit(WorkerNotStarted(worker=worker, **described(error)))
            return False
        left = await self._reclaim(worker)
        if code == 0 and (self._stopping.is_set() or (self._until_idle and not left)):
            return True
        self._signals.emit(WorkerDied(worker=worker, exit_code=code, reclaimed=left))
        return False

    async def _run_one(self, worker: str) -> int:
        environment = {**os.environ, WORKER_ID: worker, SUPERVISOR: str(os.getpid())}
        process = await asyncio.create_subprocess_exec(*self._command, env=environment)
        self._living[worker] = process
        if self._stopping.is_set():  # told to stop while this one was being started
            process.terminate()
        try:
            return await process.wait()
        finally:
            del self._living[worker]

    async def _reclaim(self, worker: str) -> int:
        """How many jobs an ended worker still held: none when it drained."""
        try:
            reclaimed = await self._store.reclaim(dead=[worker])
        except StoreError as error:  # its leases end by themselves
            self._signals.emit(ChoreFailed(worker=worker, chore="reclaim", **described(error)))
            return 0
        await tell(self._signals, self._store, reclaimed)
        return len(reclaimed.ready) + len(reclaimed.poison)
