"""Runs the measurements, with the queues taking turns, and writes the report.

python -m benchmarks.run [--store redis] [--quick] [--only drain] [--without rq] [--rounds 3]
python -m benchmarks.run --resume benchmarks/results/<file>.json"""

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
from typing import Any, NamedTuple

from tests.servers.program import ends_with_us

from benchmarks import report_page, saved_runs
from benchmarks.adapters import versions
from benchmarks.adapters.redis import bullmq_node
from benchmarks.empty_stores import EmptyStore, StoreFactory, create_factory
from benchmarks.plan import MEASUREMENTS, STORES, MeasurementPlan
from benchmarks.progress import Progress
from benchmarks.report import save
from benchmarks.saved_runs import SavedRun
from benchmarks.selection import Selection

MAX_TRIES = 2
"""Failures after which a measurement of a queue is not tried again."""


def main() -> None:
    said = parse()
    runs = load_or_create_runs(said)
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
    elif left := format_resume_command(runs):
        print(f"To go on: make bench BENCH='{left}'")


def load_or_create_runs(said: argparse.Namespace) -> dict[Path, SavedRun]:
    """Returns the runs to resume, or new ones."""
    taken_up = {path: saved_runs.read(path) for path in said.resume}
    stores = said.store or ([] if taken_up else STORES)
    asked = Selection(said.only, said.queue, said.without, said.rounds, said.quick)
    return taken_up | {saved_runs.new_file(store): SavedRun(store, {}, asked=asked) for store in stores}


def attempt(path: Path, run: SavedRun, disk: str | None) -> None:
    try:
        with create_factory(run.store, disk) as around:
            run.about = run.about or machine(run.asked) | around.described() | versions(run.store)
            measure(run, around, lambda: saved_runs.write(path, run))
    except Exception as error:  # noqa: BLE001 - the other stores are measured anyway
        fail(run, f"{run.store}: {reason(error)}")
        saved_runs.write(path, run)


def measure(run: SavedRun, around: StoreFactory, keep: Callable[[], None]) -> None:
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


def measured(run: SavedRun, around: StoreFactory, plan: MeasurementPlan, queue: str) -> dict[str, float]:
    """Returns the figures; empty if the measurement failed. The report gives the reason, and the run
    continues."""
    earlier = run.results.get(plan.measurement, {}).get(queue, [])
    if earlier.count({}) >= MAX_TRIES:
        return {}
    size = plan.size_for(queue, quick=run.asked.quick)
    try:
        with around.empty() as place:
            probed = probe(plan.measurement, queue, place, size, plan.patience)
    except Exception as error:  # noqa: BLE001 - after any failure, the other queues are measured
        fail(run, f"{plan.measurement} of {queue}: {reason(error)}")
        return {}
    run.how[queue] = probed.how
    return probed.figures


class MeasurementResult(NamedTuple):
    figures: dict[str, float]
    how: tuple[str, str]


def probe(measurement: str, queue: str, place: EmptyStore, size: float, patience: float) -> MeasurementResult:
    said = [measurement, place.store, queue, place.url, str(place.pid or "-"), str(size)]
    answer = json.loads(run_module("benchmarks.measurement_process", said, patience).splitlines()[-1])
    settings, forgets = answer["how"]
    return MeasurementResult(answer["figures"], (settings, forgets))


def run_module(module: str, words: list[str], patience: float) -> str:
    """Runs a module in a new session, so that a timeout stops it together with its workers."""
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


def fail(run: SavedRun, what: str) -> None:
    run.failed.append(what)
    print(what, flush=True)


def reason(error: Exception) -> str:
    """Returns the last line of the output, where Python names the error."""
    said = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it did not end within {error.timeout:.0f} s"
    return ((said or "").strip().splitlines() or [str(error) or type(error).__name__])[-1][:200]


def format_resume_command(runs: dict[Path, SavedRun]) -> str:
    """Returns the command that resumes the incomplete runs."""
    left = {path: run for path, run in runs.items() if run.left()}
    return " ".join(
        f"--resume {path}" if path.exists() else f"--store {run.store}" for path, run in left.items()
    )


def show_page(runs: dict[Path, SavedRun]) -> None:
    if {run.store for run in runs.values()} == set(STORES):
        report_page.write(runs.values())
    else:
        print("For the page in the documentation, with those of the other stores:")
        print("python -m benchmarks.report_page", *runs)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    many: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("--store", **many, choices=STORES, help="default: all")
    parser.add_argument("--quick", action="store_true", help="small and short: a preview, not a result")
    parser.add_argument("--only", **many, choices=MEASUREMENTS, help="only this measurement")
    parser.add_argument("--queue", **many, help="only this queue")
    parser.add_argument("--without", **many, help="without this queue")
    parser.add_argument("--rounds", type=int, help="overrides the number of rounds of each measurement")
    parser.add_argument(
        "--disk", help="a folder on the disk to measure SQLite on; default: the temporary folder"
    )
    parser.add_argument("--resume", **many, type=Path, help="a file of results: run its missing measurements")
    return parser.parse_args()


def machine(asked: Selection) -> dict[str, str]:
    kind = "" if asked.complete else " (a look, not a result)"
    return {
        "run": time.strftime("%Y-%m-%d %H:%M") + kind,
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    }


if __name__ == "__main__":
    main()
