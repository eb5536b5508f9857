"""Worker processes of one application: starts, kills and awaits them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tidemill import Tidemill
from tidemill.core.filters import Filter
from tidemill.core.states import FINAL

ROOT = Path(__file__).parents[2]


class WorkerProcesses:
    """Each process runs `module` with `environment`; its output goes to `output`."""

    def __init__(self, module: str, environment: dict[str, str], output: Path) -> None:
        self._module, self._environment, self._output = module, environment, output
        self.running: list[asyncio.subprocess.Process] = []

    async def start(self, times: int = 1) -> None:
        for _ in range(times):
            with self._output.open("ab") as output:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    self._module,
                    env={**os.environ, **self._environment},
                    cwd=ROOT,
                    stdout=output,
                    stderr=output,
                )
            self.running.append(process)

    async def kill(self, number: int = -1) -> None:
        victim = self.running.pop(number)
        with suppress(ProcessLookupError):  # it has ended already
            victim.kill()
        await victim.wait()

    async def stop(self) -> None:
        while self.running:
            await self.kill()

    def check(self) -> None:
        """Raises if a process has ended: a test that waits for its jobs would wait for ever."""
        codes = [process.returncode for process in self.running if process.returncode is not None]
        assert codes == [], self._output.read_text()[-2000:]


async def await_jobs(app: Tidemill, jobs: int, processes: WorkerProcesses) -> Counter[str]:
    """Waits until all jobs have ended; returns how they ended: done, or the reason."""
    while await _live(app):
        processes.check()
        await asyncio.sleep(0.1)
    found = await app.store.find(Filter(), limit=jobs)
    return Counter(job.reason or job.state.value for job in found.jobs)


async def _live(app: Tidemill) -> int:
    counts = (await app.store.counts())["default"]
    return sum(count for state, count in counts.items() if state not in FINAL)
