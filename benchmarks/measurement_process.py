"""Runs one measurement of one queue and prints one line of JSON: the figures and the queue's settings.

python -m benchmarks.measurement_process <measurement> <store> <queue> <url> <pid of the server or -> <size>
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.adapters import describe_queue
from benchmarks.case import Case
from benchmarks.empty_stores import EmptyStore

MEASUREMENT_FUNCTIONS = {
    "enqueue_lone": "enqueue:lone",
    "enqueue_together": "enqueue:together",
    "enqueue_bulk": "enqueue:bulk",
    "drain": "drain:one_process",
    "drain_100k": "drain:one_process",
    "drain_two": "drain:two_processes",
    "latency": "latency:at_a_hundred_a_second",
    "latency_in_process": "latency:in_process",
    "idle": "idle:idle",
    "footprint": "storage_size:footprint",
    "growth": "backlog_growth:growth",
    "growth_under_snapshot": "backlog_growth:growth_under_snapshot",
    "chains": "flows:chains",
    "lone_chain": "flows:lone_chain",
    "fan_out": "flows:fan_out",
    "schedules_at_once": "schedules:at_once",
    "schedules_spread": "schedules:spread",
    "ceilings": "upper_bounds:ceiling",
    "worker_cost": "tidemill_only:worker_cost",
    "small": "tidemill_only:small_backlog",
    "blocked_lane": "tidemill_only:blocked_lane",
}


def main() -> None:
    measurement, store, queue, url, pid, size = sys.argv[1:]
    place = EmptyStore(store, url, None if pid == "-" else int(pid))
    with tempfile.TemporaryDirectory(prefix="tidemill-start-log-") as folder:
        case = Case(measurement, queue, place, float(size), Path(folder))
        figures = measure(measurement)(case)
        print(json.dumps({"figures": figures, "how": describe_queue(store, queue)}), flush=True)
    os._exit(0)  # some libraries have threads that never end


def measure(measurement: str) -> Callable[[Case], dict[str, float]]:
    """Imports the measurement late, because the processes of the peers must not load Tidemill."""
    module, _, attribute = MEASUREMENT_FUNCTIONS[measurement].partition(":")
    function: Callable[[Case], dict[str, float]] = getattr(
        importlib.import_module(f"benchmarks.measurements.{module}"), attribute
    )
    return function


if __name__ == "__main__":
    main()
