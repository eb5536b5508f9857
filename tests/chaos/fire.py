"""Real processes on one SQLite file, killed and stopped at random, and the reckoning afterwards."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.ledger import Witness, read
from tidemill.core.states import State
from tidemill.stores.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]
QUIET_WITHIN = 90.0


@dataclass
class Report:
    witness: Witness
    counts: dict[State, int]
    kills: int
    stops: int
    missing: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        witness = self.witness
        return (
            f"accepted {len(witness.accepted)}, runs {sum(witness.started.values())}, "
            f"kills {self.kills}, stops {self.stops}, lost {len(self.missing)}, "
            f"stale writes refused {witness.refused}, accepted {len(witness.stale_writes_accepted())}; "
            f"store {self.counts}"
        )


class Fire:
    """Workers and producers are replaced when they die; stops last longer than a lease."""

    def __init__(self, folder: Path, seed: int, *, per_second: float) -> None:
        self._folder, self._random = folder, random.Random(seed)
        self._per_second = per_second
        self._workers: dict[int, asyncio.subprocess.Process] = {}
        self._producers: dict[int, asyncio.subprocess.Process] = {}
        self._stopped: dict[int, float] = {}
        self.kills = self.stops = 0

    async def burn(self, seconds: float, *, workers: int = 3, producers: int = 2) -> Report:
        try:
            await self._start(workers, producers)
            began = time.monotonic()
            while time.monotonic() - began < seconds or self._too_tame(began, seconds):
                await asyncio.sleep(self._random.uniform(0.2, 0.7))
                await self._hurt_someone()
                self._resume(older_than=2.6)
                await self._start(workers, producers)
            await self._end(self._producers, signal.SIGKILL)
            self._resume(older_than=0)
            await self._start(workers, 0)
            await self._until_quiet()
        finally:
            await self._end(self._workers, signal.SIGKILL)
            await self._end(self._producers, signal.SIGKILL)
        return await self._reckon()

    def _too_tame(self, began: float, seconds: float) -> bool:
        """No stopped worker has come back with an outcome yet: go on a while, or nothing is shown."""
        return time.monotonic() - began < 3 * seconds and not read(self._folder).refused

    async def _start(self, workers: int, producers: int) -> None:
        for alive in (self._workers, self._producers):
            for pid in [pid for pid, process in alive.items() if process.returncode is not None]:
                del alive[pid]
        while len(self._workers) < workers:
            process = await self._spawn("tests.chaos.worker")
            self._workers[process.pid] = process
        while len(self._producers) < producers:
            process = await self._spawn("tests.chaos.producer", str(self._per_second))
            self._producers[process.pid] = process

    async def _spawn(self, module: str, *arguments: str) -> asyncio.subprocess.Process:
        environment = {**os.environ, "CHAOS_FOLDER": str(self._folder), "PYTHONPATH": str(ROOT)}
        with (self._folder / "output.txt").open("ab") as output:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *arguments, env=environment, stdout=output, stderr=output
            )

    async def _hurt_someone(self) -> None:
        """A kill for anyone; a stop only for a worker, since a stopped writer stops all others too."""
        if self._random.random() < 0.5:
            pid = self._random.choice([*self._workers, *self._producers])
            process = self._workers.get(pid) or self._producers[pid]
            self._stopped.pop(pid, None)
            process.kill()
            await process.wait()
            self.kills += 1
        elif running := [pid for pid in self._workers if pid not in self._stopped]:
            pid = self._random.choice(running)
            os.kill(pid, signal.SIGSTOP)
            self._stopped[pid] = time.monotonic()
            self.stops += 1

    def _resume(self, *, older_than: float) -> None:
        for pid, since in list(self._stopped.items()):
            if time.monotonic() - since >= older_than:
                os.kill(pid, signal.SIGCONT)
                del self._stopped[pid]

    async def _until_quiet(self) -> None:
        store = await SqliteStore(self._folder / "jobs.db").open()
        try:
            async with asyncio.timeout(QUIET_WITHIN):
                while True:
                    counts = (await store.counts()).get("default", {})
                    if not any(counts.get(state) for state in (State.READY, State.SCHEDULED, State.RUNNING)):
                        return
                    await asyncio.sleep(0.2)
        finally:
            await store.close()

    async def _end(self, processes: dict[int, asyncio.subprocess.Process], how: signal.Signals) -> None:
        for process in processes.values():
            if process.returncode is None:
                process.send_signal(how)
                await process.wait()
        processes.clear()

    async def _reckon(self) -> Report:
        witness = read(self._folder)
        store = await SqliteStore(self._folder / "jobs.db").open()
        counts = (await store.counts()).get("default", {})
        names = sorted(witness.accepted)
        jobs = await store.get(names)
        await store.close()
        missing = [
            name for name, job in zip(names, jobs, strict=True) if job is None or job.state is not State.DONE
        ]
        missing += [name for name in names if not witness.committed[name] and name not in missing]
        return Report(witness, counts, self.kills, self.stops, missing)
