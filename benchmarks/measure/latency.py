"""From the call that enqueues to the first line of the handler, one job at a time.

The worker is idle when the job comes, and waits in whatever way its library waits.
"""

from __future__ import annotations

import queue
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.adapters import Adapter

WARM_UP = 3
PATIENCE = 30.0


def in_process(adapter: Adapter, samples: int) -> dict[str, float]:
    arrived: queue.SimpleQueue[float] = queue.SimpleQueue()
    taken: list[float] = []
    with adapter.serve(lambda sent: arrived.put(time.monotonic() - sent)):
        for _ in range(samples + WARM_UP):
            _pause()
            adapter.send(time.monotonic())
            taken.append(arrived.get(timeout=PATIENCE))
    return summary(taken[WARM_UP:])


def across_processes(adapter: Adapter, samples: int, name: str, folder: Path) -> dict[str, float]:
    """The monotonic clock is the machine's: both processes read the same one."""
    command = [sys.executable, "-m", "benchmarks.probe", "serve", name, str(folder)]
    taken: list[float] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        if server.stdin is None or server.stdout is None:
            raise RuntimeError("the worker process has no pipes")
        server.stdout.readline()
        for _ in range(samples + WARM_UP):
            _pause()
            adapter.send(time.monotonic())
            taken.append(float(server.stdout.readline()))
        server.stdin.close()
        server.wait(PATIENCE)
    return summary(taken[WARM_UP:])


def summary(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {
        "p50_ms": statistics.median(ordered) * 1e3,
        "p99_ms": ordered[round(last * 0.99)] * 1e3,
        "max_ms": ordered[-1] * 1e3,
    }


def _pause() -> None:
    """Long enough for the worker to be idle again, uneven so that no poll falls into step."""
    time.sleep(random.uniform(0.005, 0.105))
