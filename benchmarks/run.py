"""Run the measurements, queues taking turns, and write the report.

python -m benchmarks.run [--quick] [--only drain] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import apsw

from benchmarks.plan import PLANS, Plan
from benchmarks.report import markdown
from benchmarks.targets import Results

FOLDER = Path(__file__).parent / "results"


def main() -> None:
    arguments = parse()
    chosen = [plan for plan in PLANS if not arguments.only or plan.measurement in arguments.only]
    results: Results = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        measure(chosen, arguments, results)
    except KeyboardInterrupt:
        print("\nStopped early; this is what was measured so far.")
    report = markdown(results, machine(quick=arguments.quick))
    print(f"\n{report}")
    save(results, report)


def measure(plans: list[Plan], arguments: argparse.Namespace, results: Results) -> None:
    for plan, queue in steps(plans, arguments.rounds, quick=arguments.quick):
        numbers = probe(plan.measurement, queue, plan.size_for(queue, quick=arguments.quick), arguments.disk)
        results.setdefault(plan.measurement, {}).setdefault(queue, []).append(numbers)
        figures = ", ".join(f"{name} {value:,.3f}" for name, value in numbers.items())
        print(f"{plan.measurement:<26}{queue:<16}{figures}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small and short: a look, not a result")
    parser.add_argument("--only", action="append", choices=[plan.measurement for plan in PLANS])
    parser.add_argument("--rounds", type=int, help="instead of each measurement's own number")
    parser.add_argument("--disk", help="a folder on the disk to measure; the default is the temporary folder")
    return parser.parse_args()


def steps(plans: list[Plan], rounds: int | None, *, quick: bool) -> Iterator[tuple[Plan, str]]:
    """Round by round through all measurements, the queues taking turns inside each: what is divided
    by each other was measured close together."""
    wanted = {plan: rounds or (1 if quick else plan.rounds) for plan in plans}
    for number in range(max(wanted.values(), default=0)):
        for plan in plans:
            if number < wanted[plan]:
                yield from ((plan, queue) for queue in plan.queues)


def probe(measurement: str, queue: str, size: int, disk: str | None) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-", dir=disk) as folder:
        command = [sys.executable, "-m", "benchmarks.probe", measurement, queue, folder, str(size)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=1800)
        numbers: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return numbers


def machine(*, quick: bool) -> dict[str, str]:
    peers = ("huey", "litequeue", "persist-queue")
    return {
        "run": time.strftime("%Y-%m-%d %H:%M") + (" (quick: a look, not a result)" if quick else ""),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "SQLite": f"{apsw.sqlite_lib_version()} (Tidemill), the standard library's (peers)",
        "peers": ", ".join(f"{name} {version(name)}" for name in peers),
    }


def save(results: Results, report: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    name = time.strftime("%Y%m%d-%H%M%S")
    (FOLDER / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (FOLDER / f"{name}.md").write_text(report)
    print(f"Written to {FOLDER / name}.md and .json")


if __name__ == "__main__":
    main()
