"""Run the measurements, queues taking turns, and write the report.

python -m benchmarks.run [--store redis] [--quick] [--only drain] [--without rq] [--rounds 3]
python -m benchmarks.run --resume benchmarks/results/<file>.json
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.servers.program import ends_with_us

from benchmarks import kept, page
from benchmarks.adapters import how, versions
from benchmarks.adapters.redis import bullmq_node
from benchmarks.choice import Choice
from benchmarks.kept import Run
from benchmarks.places import Place, Places, places
from benchmarks.plan import MEASUREMENTS, STORES, Plan
from benchmarks.progress import Progress
from benchmarks.report import save

TRIES = 2
"""Failures after which a measurement of a queue is not tried again."""


def main() -> None:
    said = parse()
    runs = begun(said)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for path, run in runs.items():
            attempt(path, run, said.disk)
    except KeyboardInterrupt:
        print("\nStopped early; this is what was measured so far.")
    for path, run in runs.items():
        if run.results:
            save(path, run)
    if all(run.complete for run in runs.values()):
        show_page(runs)
    elif left := to_go_on(runs):
        print(f"To go on: make bench BENCH='{left}'")


def begun(said: argparse.Namespace) -> dict[Path, Run]:
    """What is taken up again, and what is new."""
    taken_up = {path: kept.read(path) for path in said.resume}
    stores = said.store or ([] if taken_up else STORES)
    asked = Choice(said.only, said.queue, said.without, said.rounds, said.quick)
    return taken_up | {kept.new_file(store): Run(store, {}, asked=asked) for store in stores}


def attempt(path: Path, run: Run, disk: str | None) -> None:
    try:
        with places(run.store, disk) as around:
            run.about = run.about or machine(run.asked) | around.described() | versions(run.store)
            measure(run, around, lambda: kept.write(path, run))
    except Exception as error:  # noqa: BLE001 - the other stores are measured all the same
        fail(run, f"{run.store}: {reason(error)}")
        kept.write(path, run)


def measure(run: Run, around: Places, keep: Callable[[], None]) -> None:
    left = run.left()
    progress = Progress(left)
    print(f"{run.store}: {progress.opening()}", flush=True)
    if bullmq_node.QUEUES & {queue for _, queue in left}:
        try:
            bullmq_node.install()
        except (OSError, subprocess.SubprocessError) as error:
            fail(run, f"BullMQ on Node could not be installed: {reason(error)}")
    for plan, queue in left:
        figures = measured(run, around, plan, queue)
        run.results.setdefault(plan.measurement, {}).setdefault(queue, []).append(figures)
        keep()
        shown = ", ".join(f"{name} {value:,.3f}" for name, value in figures.items()) or "failed"
        print(f"{progress.step()} {run.store} {plan.measurement} {queue}: {shown}", flush=True)


def measured(run: Run, around: Places, plan: Plan, queue: str) -> dict[str, float]:
    """Nothing when it failed: the report says so, and why; it does not end the run."""
    earlier = run.results.get(plan.measurement, {}).get(queue, [])
    if earlier.count({}) >= TRIES:
        return {}
    size = plan.size_for(queue, quick=run.asked.quick)
    try:
        with around.empty() as place:
            figures = probe(plan.measurement, queue, place, size, plan.patience)
        run.how[queue] = run.how.get(queue) or how(run.store, queue)
    except Exception as error:  # noqa: BLE001 - whatever went wrong, the others are measured
        fail(run, f"{plan.measurement} of {queue}: {reason(error)}")
        return {}
    return figures


def probe(measurement: str, queue: str, place: Place, size: float, patience: float) -> dict[str, float]:
    said = [measurement, place.store, queue, place.url, str(place.pid or "-"), str(size)]
    figures: dict[str, float] = json.loads(said_by("benchmarks.probe", said, patience).splitlines()[-1])
    return figures


def said_by(module: str, words: list[str], patience: float) -> str:
    """In a session of its own: whoever has to be stopped is stopped with the workers it started."""
    command = [sys.executable, "-m", module, *words]
    ends = ends_with_us()
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=ends,  # noqa: PLW1509 - one system call, looked up before the fork
    ) as process:
        try:
            out, complaints = process.communicate(timeout=patience)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, out, complaints)
    return out


def fail(run: Run, what: str) -> None:
    run.failed.append(what)
    print(what, flush=True)


def reason(error: Exception) -> str:
    """The last line of what it said, which is where Python names the error."""
    said = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it did not end within {error.timeout:.0f} s"
    return ((said or "").strip().splitlines() or [str(error) or type(error).__name__])[-1][:200]


def to_go_on(runs: dict[Path, Run]) -> str:
    """What takes up those that have not come to their end."""
    left = {path: run for path, run in runs.items() if run.left()}
    return " ".join(
        f"--resume {path}" if path.exists() else f"--store {run.store}" for path, run in left.items()
    )


def show_page(runs: dict[Path, Run]) -> None:
    if {run.store for run in runs.values()} == set(STORES):
        page.write(runs.values())
    else:
        print("For the page in the documentation, with those of the other stores:")
        print("python -m benchmarks.page", *runs)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    many: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("--store", **many, choices=STORES, help="all of them unless named")
    parser.add_argument("--quick", action="store_true", help="small and short: a look, not a result")
    parser.add_argument("--only", **many, choices=MEASUREMENTS, help="this measurement")
    parser.add_argument("--queue", **many, help="this queue")
    parser.add_argument("--without", **many, help="not this queue")
    parser.add_argument("--rounds", type=int, help="instead of each measurement's own number")
    parser.add_argument("--disk", help="a folder on the disk to measure SQLite on; else the temporary folder")
    parser.add_argument("--resume", **many, type=Path, help="a file of results: measure what it has not")
    return parser.parse_args()


def machine(asked: Choice) -> dict[str, str]:
    kind = "" if asked.complete else " (a look, not a result)"
    return {
        "run": time.strftime("%Y-%m-%d %H:%M") + kind,
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    }


if __name__ == "__main__":
    main()
