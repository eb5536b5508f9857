"""One measurement of one queue, in a process of its own. Prints one line of JSON.

python -m benchmarks.probe <measurement> <store> <queue> <url> <pid of the server or -> <size>
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.case import Case
from benchmarks.places import Place

MEASURES = {
    "enqueue_lone": "enqueue:lone",
    "enqueue_together": "enqueue:together",
    "enqueue_bulk": "enqueue:bulk",
    "drain": "drains:one_process",
    "drain_100k": "drains:one_process",
    "drain_two": "drains:two_processes",
    "latency": "latency:at_a_hundred_a_second",
    "latency_in_process": "latency:in_process",
    "idle": "idle:idle",
    "footprint": "footprint:footprint",
    "growth": "growth:growth",
    "growth_under_snapshot": "growth:growth_under_snapshot",
    "chains": "flows:chains",
    "lone_chain": "flows:lone_chain",
    "fan_out": "flows:fan_out",
    "schedules_at_once": "schedules:at_once",
    "schedules_spread": "schedules:spread",
    "ceilings": "ceilings:ceiling",
    "worker_cost": "own:worker_cost",
    "small": "own:small",
    "blocked_lane": "own:blocked_lane",
}


def main() -> None:
    measurement, store, queue, url, pid, size = sys.argv[1:]
    place = Place(store, url, None if pid == "-" else int(pid))
    with tempfile.TemporaryDirectory(prefix="tidemill-tally-") as folder:
        case = Case(measurement, queue, place, float(size), Path(folder))
        print(json.dumps(measure(measurement)(case)), flush=True)
    os._exit(0)  # some libraries keep threads that never end


def measure(measurement: str) -> Callable[[Case], dict[str, float]]:
    """Loaded only now: the processes of the peers must not load Tidemill."""
    module, _, attribute = MEASURES[measurement].partition(":")
    function: Callable[[Case], dict[str, float]] = getattr(
        importlib.import_module(f"benchmarks.measure.{module}"), attribute
    )
    return function


if __name__ == "__main__":
    main()
