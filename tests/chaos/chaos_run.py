"""Runs real processes on one store, kills and stops them and its server at random, and checks the result."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.chaos_stores import ChaosStore
from tests.chaos.event_files import EventSummary, read_events
from tests.servers.server import Server
from tidemill import Tidemill
from tidemill.core.jobs import Job
from tidemill.core.states import FINAL, State

ROOT = Path(__file__).parents[2]
QUIET_DEADLINE_SECONDS = 120.0
CLOCK_SKEW_SECONDS = 300.0
"""Maximum clock error in seconds. Only workers of a server store run on separate machines."""
EVENTS_PER_SERVER_FAULT = 8
"""One in this number of faults hits the server."""
KILL_SHARE = 0.4
"""Share of kills among all faults; the others are stops."""
MAX_JOBS_PER_PAGE = 1000


@dataclass
class ChaosReport:
    witness: EventSummary
    counts: dict[State, int]
    faults: dict[str, int]
    missing: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        witness = self.witness
        faults = ", ".join(f"{name} {count}" for name, count in self.faults.items())
        return (
            f"accepted {len(witness.accepted)}, runs {sum(witness.started.values())}, "
            f"{faults}, lost {len(self.missing)}, "
            f"stale writes refused {witness.refused}, accepted {len(witness.stale_writes_accepted())}; "
            f"store {self.counts}"
        )


class ChaosRun:
    """One run. Dead workers and producers are replaced; stops last longer than a lease.

    `concurrency` is per worker. `programs` are the modules of a worker and of a producer. `is_shown`
    returns whether the faults have hit what the test is about."""

    def __init__(
        self,
        folder: Path,
        place: ChaosStore,
        seed: int,
        *,
        per_second: float,
        concurrency: int = 20,
        programs: tuple[str, str] = ("tests.chaos.worker", "tests.chaos.producer"),
        is_shown: Callable[[EventSummary], bool] = lambda witness: witness.refused > 0,
    ) -> None:
        (self._worker, self._producer), self._is_shown = programs, is_shown
        self._folder, self._place, self._random = folder, place, random.Random(seed)
        self._per_second, self._concurrency = per_second, concurrency
        self._workers: dict[int, asyncio.subprocess.Process] = {}
        self._producers: dict[int, asyncio.subprocess.Process] = {}
        self._stopped: dict[int, float] = {}
        self._faults = dict.fromkeys(["kills", "stops", "server kills", "server stops"], 0)

    async def run(self, seconds: float, *, workers: int = 3, producers: int = 2) -> ChaosReport:
        try:
            await self._start(workers, producers)
            await self._until_begun()
            began = time.monotonic()
            while time.monotonic() - began < seconds or self._missing_faults(began, seconds):
                await asyncio.sleep(self._random.uniform(0.2, 0.7))
                await self._kill_or_pause_process()
                self._resume(older_than=self._random.uniform(2.6, 4.5))
                await self._start(workers, producers)
            await self._end(self._producers, signal.SIGKILL)
            self._resume(older_than=0)
            await self._until_quiet(workers)
        finally:
            await self._end(self._workers, signal.SIGKILL)
            await self._end(self._producers, signal.SIGKILL)
        return await self._check_outcomes()

    async def _until_begun(self) -> None:
        async with asyncio.timeout(QUIET_DEADLINE_SECONDS):
            while not self._begun(self._workers):  # noqa: ASYNC110 - another process signals it by a file
                await asyncio.sleep(0.05)

    def _missing_faults(self, began: float, seconds: float) -> bool:
        """Returns whether the run should continue because a needed fault has not happened yet.

        For example, no stopped worker has come back with an outcome yet. Without that, the run proves
        nothing."""
        return time.monotonic() - began < 3 * seconds and not self._is_shown(read_events(self._folder))

    async def _start(self, workers: int, producers: int) -> None:
        for alive in (self._workers, self._producers):
            for pid in [pid for pid, process in alive.items() if process.returncode is not None]:
                del alive[pid]
        while len(self._workers) < workers:
            process = await self._spawn(self._worker, str(self._concurrency))
            self._workers[process.pid] = process
        while len(self._producers) < producers:
            process = await self._spawn(self._producer, str(self._per_second))
            self._producers[process.pid] = process

    async def _spawn(self, module: str, *arguments: str) -> asyncio.subprocess.Process:
        wrong = self._random.uniform(-CLOCK_SKEW_SECONDS, CLOCK_SKEW_SECONDS) if self._place.server else 0.0
        variables = {"FOLDER": str(self._folder), "URL": self._place.url, "SKEW": str(wrong)}
        environment = {f"CHAOS_{word}": value for word, value in variables.items()}
        with (self._folder / "output.txt").open("ab") as output:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", module, *arguments),
                env={**os.environ, **environment},
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )

    async def _kill_or_pause_process(self) -> None:
        """Kills any process, or stops a worker. A stopped writer would block all other processes of a file.

        Processes that have not started yet are spared; on a busy machine they would be the only targets."""
        server = self._place.server
        kills = self._random.random() < KILL_SHARE
        awake = [pid for pid in self._begun([*self._workers, *self._producers]) if pid not in self._stopped]
        working = [pid for pid in awake if pid in self._workers]
        if server is not None and working and self._random.randrange(EVENTS_PER_SERVER_FAULT) == 0:
            await self._kill_or_pause_server(server, kills=kills)
        elif kills and awake:
            pid = self._random.choice(awake)
            process = self._workers.get(pid) or self._producers[pid]
            process.kill()
            await process.wait()
            self._faults["kills"] += 1
        elif working:
            pid = self._random.choice(working)
            os.kill(pid, signal.SIGSTOP)
            self._stopped[pid] = time.monotonic()
            self._faults["stops"] += 1

    def _begun(self, pids: Iterable[int]) -> list[int]:
        return [pid for pid in pids if (self._folder / f"{pid}.log").exists()]

    async def _kill_or_pause_server(self, server: Server, *, kills: bool) -> None:
        """Kills the server for a moment, or stops it for longer than a lease."""
        if kills:
            server.kill()
            await asyncio.sleep(self._random.uniform(0, 0.5))
            await asyncio.to_thread(server.start)
        else:
            server.pause()
            await asyncio.sleep(self._random.uniform(0.5, 3.0))
            server.resume()
        self._faults["server kills" if kills else "server stops"] += 1

    def _resume(self, *, older_than: float) -> None:
        for pid, since in list(self._stopped.items()):
            if time.monotonic() - since >= older_than:
                os.kill(pid, signal.SIGCONT)
                del self._stopped[pid]

    async def _until_quiet(self, workers: int) -> None:
        async with asyncio.timeout(QUIET_DEADLINE_SECONDS), Tidemill(self._place.url) as app:
            while True:
                await self._start(workers, 0)
                counts = (await app.store.counts()).get("default", {})
                if not any(count for state, count in counts.items() if state not in FINAL):
                    return
                await asyncio.sleep(0.2)

    async def _end(self, processes: dict[int, asyncio.subprocess.Process], signal_: signal.Signals) -> None:
        for process in processes.values():
            if process.returncode is None:
                process.send_signal(signal_)
                await process.wait()
        processes.clear()

    async def _check_outcomes(self) -> ChaosReport:
        witness = read_events(self._folder)
        names = sorted(witness.accepted)
        jobs: list[Job | None] = []
        async with Tidemill(self._place.url) as app:
            counts = (await app.store.counts()).get("default", {})
            for first in range(0, len(names), MAX_JOBS_PER_PAGE):
                jobs += await app.store.get(names[first : first + MAX_JOBS_PER_PAGE])
            wrong = await app.store.check()
        assert wrong == ()
        missing = {
            name for name, job in zip(names, jobs, strict=True) if job is None or job.state is not State.DONE
        }
        missing.update(name for name in names if not witness.committed[name])
        return ChaosReport(witness, counts, self._faults, sorted(missing))
