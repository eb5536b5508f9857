"""Run the measurements, queues taking turns, and write the report.

python -m benchmarks.run [--store redis] [--quick] [--only drain] [--without rq] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks import page
from benchmarks.adapters import versions
from benchmarks.adapters.redis import bullmq_node
from benchmarks.places import Place, Places, places
from benchmarks.plan import MEASUREMENTS, PLANS, STORES, Plan
from benchmarks.report import Run, save

PATIENCE = 1800


@dataclass
class Chosen:
    stores: list[str]
    only: list[str]
    queues: list[str]
    without: list[str]
    rounds: int | None
    disk: str | None
    quick: bool
    plans: dict[str, list[Plan]] = field(init=False)

    def __post_init__(self) -> None:
        self.plans = {
            store: [plan for plan in PLANS[store] if not self.only or plan.measurement in self.only]
            for store in self.stores
        }

    @property
    def complete(self) -> bool:
        return not (self.only or self.queues or self.without or self.rounds or self.quick)

    def queues_of(self, plan: Plan) -> Iterator[str]:
        for queue in plan.queues:
            if queue not in self.without and (not self.queues or queue in self.queues):
                yield queue

    def steps(self, store: str) -> Iterator[tuple[Plan, str]]:
        """Round by round through all measurements, the queues taking turns inside each: what is divided
        by each other was measured close together."""
        plans = self.plans[store]
        wanted = {plan: self.rounds or (1 if self.quick else plan.rounds) for plan in plans}
        for number in range(max(wanted.values(), default=0)):
            for plan in plans:
                if number < wanted[plan]:
                    yield from ((plan, queue) for queue in self.queues_of(plan))


def main() -> None:
    chosen = parse()
    runs: list[Run] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for store in chosen.stores:
            with places(store, chosen.disk) as around:
                runs.append(Run(store, machine(chosen) | around.described() | versions(store)))
                measure(store, chosen, around, runs[-1])
    except KeyboardInterrupt:
        print("\nStopped early; this is what was measured so far.")
        chosen.rounds = 1  # not complete
    files = [save(run) for run in runs]
    if chosen.complete and len(runs) == len(STORES):
        page.write(runs)
    elif chosen.complete:
        print("For the page in the documentation, with those of the other stores:")
        print("python -m benchmarks.page", *files)


def measure(store: str, chosen: Chosen, around: Places, run: Run) -> None:
    if any(queue == "bullmq-node" for _, queue in chosen.steps(store)):
        bullmq_node.install()
    for plan, queue in chosen.steps(store):
        size = plan.size_for(queue, quick=chosen.quick)
        rounds = run.results.setdefault(plan.measurement, {}).setdefault(queue, [])
        with around.empty() as place:
            try:
                numbers = probe(plan.measurement, queue, place, size)
            except (subprocess.SubprocessError, IndexError, ValueError) as error:
                # A peer that fails is missing from the report, which says so; it does not end the run.
                rounds.append({})
                run.failed.append(f"{plan.measurement} of {queue}: {_reason(error)}")
                print(f"{store:<10}{plan.measurement:<26}{queue:<16}{run.failed[-1]}", flush=True)
                continue
        rounds.append(numbers)
        figures = ", ".join(f"{name} {value:,.3f}" for name, value in numbers.items())
        print(f"{store:<10}{plan.measurement:<26}{queue:<16}{figures}", flush=True)


def probe(measurement: str, queue: str, place: Place, size: float) -> dict[str, float]:
    said = [measurement, place.store, queue, place.url, str(place.pid or "-"), str(size)]
    command = [sys.executable, "-m", "benchmarks.probe", *said]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    numbers: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return numbers


def _reason(error: Exception) -> str:
    said = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
    return (said.strip().splitlines() or [str(error)])[-1][:200]


def parse() -> Chosen:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", action="append", choices=STORES, help="all of them unless named")
    parser.add_argument("--quick", action="store_true", help="small and short: a look, not a result")
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="this measurement")
    parser.add_argument("--queue", action="append", help="this queue")
    parser.add_argument("--without", action="append", help="not this queue")
    parser.add_argument("--rounds", type=int, help="instead of each measurement's own number")
    parser.add_argument("--disk", help="a folder on the disk to measure SQLite on; else the temporary folder")
    said = parser.parse_args()
    return Chosen(
        stores=said.store or list(STORES),
        only=said.only or [],
        queues=said.queue or [],
        without=said.without or [],
        rounds=said.rounds,
        disk=said.disk,
        quick=said.quick,
    )


def machine(chosen: Chosen) -> dict[str, str]:
    kind = "" if chosen.complete else " (a look, not a result)"
    return {
        "run": time.strftime("%Y-%m-%d %H:%M") + kind,
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    }


if __name__ == "__main__":
    main()
