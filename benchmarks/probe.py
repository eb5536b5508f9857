"""One measurement of one queue, in a process of its own. Prints one line of JSON.

python -m benchmarks.probe <measurement> <adapter> <folder> [size]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.adapters import Adapter, load
from benchmarks.measure import idle, latency, throughput

Measure = Callable[[Adapter, int], dict[str, float]]

PLAIN: dict[str, Measure] = {
    "enqueue_lone": throughput.enqueue_lone,
    "enqueue_together": throughput.enqueue_together,
    "drain": throughput.drain,
    "latency_in_process": latency.in_process,
    "idle": idle.idle,
}


def main() -> None:
    measurement, name, folder, *size = sys.argv[1:]
    adapter = load(name)
    adapter.open(Path(folder))
    try:
        if measurement == "serve":
            serve(adapter)
        else:
            print(json.dumps(run(measurement, adapter, name, Path(folder), int(size[0]))))
    finally:
        adapter.close()


def run(measurement: str, adapter: Adapter, name: str, folder: Path, size: int) -> dict[str, float]:
    if measurement == "latency_across_processes":
        return latency.across_processes(adapter, size, name, folder)
    if measurement in PLAIN:
        return PLAIN[measurement](adapter, size)
    from benchmarks.measure import own  # the peers' processes must not load Tidemill

    measure: Measure = getattr(own, measurement)
    return measure(adapter, size)


def serve(adapter: Adapter) -> None:
    """The other end of `across_processes`: a worker that reports every start, until its input ends."""

    def report(sent: float) -> None:
        print(time.monotonic() - sent, flush=True)

    with adapter.serve(report):
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
