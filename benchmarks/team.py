"""Worker processes of one queue, started beside the process that measures them and killed by it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.servers.program import ends_with_us

from benchmarks.case import Case
from benchmarks.tally import Tally

LOOK = 0.001
PATIENCE = 240.0


class Team:
    def __init__(
        self, tally: Tally, view: memoryview[float], processes: list[subprocess.Popen[bytes]]
    ) -> None:
        self.tally, self.view, self._processes = tally, view, processes

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    @property
    def started(self) -> int:
        return sum(self.tally.counts(self.view))

    def until(self, jobs: int, look: Callable[[int], None] = lambda _: None) -> None:
        """Wait until so many were started; `look` sees every number on the way there."""
        deadline = time.monotonic() + PATIENCE
        while (started := self.started) < jobs:
            look(started)
            if any(process.poll() is not None for process in self._processes):
                raise RuntimeError("a worker process ended")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{started} of {jobs} jobs were started within {PATIENCE:.0f} s")
            time.sleep(LOOK)
        look(started)


@contextmanager
def team(case: Case, *, workers: int = 1, room: int = 0) -> Iterator[Team]:
    """`room` is how many lateness figures each worker keeps."""
    tally = Tally(case.folder / "tally", workers, room)
    view = tally.create()
    processes = [_start(case, tally, number) for number in range(workers)]
    try:
        yield Team(tally, view, processes)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def _start(case: Case, tally: Tally, number: int) -> subprocess.Popen[bytes]:
    said = [case.place.store, case.queue, case.place.url, str(tally.path), tally.rows, tally.room, number]
    command = [sys.executable, "-m", "benchmarks.work", *map(str, said)]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        preexec_fn=ends_with_us(),  # noqa: PLW1509 - one system call, looked up before the fork
    )
