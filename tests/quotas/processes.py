"""Worker processes of one application: started, killed and waited for."""

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


class Processes:
    """`module` is run by each. `environment` says to it what to do, and what it prints goes to `output`."""

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
        with suppress(ProcessLookupError):  # it has ended by itself
            victim.kill()
        await victim.wait()

    async def stop(self) -> None:
        while self.running:
            await self.kill()

    def check(self) -> None:
        """None has ended by itself: whoever waits for its jobs would wait for ever."""
        codes = [process.returncode for process in self.running if process.returncode is not None]
        assert codes == [], self._output.read_text()[-2000:]


async def ended(app: Tidemill, jobs: int, processes: Processes) -> Counter[str]:
    """How the jobs ended, when all have: done, or why not."""
    while await _live(app):
        processes.check()
        await asyncio.sleep(0.1)
    found = await app.store.find(Filter(), limit=jobs)
    return Counter(job.reason or job.state.value for job in found.jobs)


async def _live(app: Tidemill) -> int:
    counts = (await app.store.counts())["default"]
    return sum(count for state, count in counts.items() if state not in FINAL)
