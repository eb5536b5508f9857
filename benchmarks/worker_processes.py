"""Worker processes of one queue; the measuring process starts and kills them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.servers.program import ends_with_us

from benchmarks.case import Case
from benchmarks.start_log import StartLog

POLL_SECONDS = 0.001
TIMEOUT_SECONDS = 240.0


class WorkerGroup:
    def __init__(
        self, tally: StartLog, view: memoryview[float], processes: list[subprocess.Popen[bytes]]
    ) -> None:
        self.tally, self.view, self._processes = tally, view, processes

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    @property
    def started(self) -> int:
        return sum(self.tally.counts(self.view))

    def until(self, jobs: int, look: Callable[[int], None] = lambda _: None) -> None:
        """Waits until `jobs` jobs have started; `look` gets every number on the way."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (started := self.started) < jobs:
            look(started)
            if any(process.poll() is not None for process in self._processes):
                raise RuntimeError("a worker process ended")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{started} of {jobs} jobs were started within {TIMEOUT_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        look(started)


@contextmanager
def start_workers(case: Case, *, workers: int = 1, room: int = 0) -> Iterator[WorkerGroup]:
    """Starts worker processes and kills them at the end. `room` is the number of lateness values that each
    keeps."""
    tally = StartLog(case.folder / "tally", workers, room)
    view = tally.create()
    processes = [_start(case, tally, number) for number in range(workers)]
    try:
        yield WorkerGroup(tally, view, processes)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def _start(case: Case, tally: StartLog, number: int) -> subprocess.Popen[bytes]:
    said = [case.place.store, case.queue, case.place.url, str(tally.path), tally.rows, tally.room, number]
    command = [sys.executable, "-m", "benchmarks.worker_main", *map(str, said)]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        preexec_fn=ends_with_us(),  # noqa: PLW1509 - one system call, looked up before the fork
    )
