"""Compares the speed of two checkouts with plain no-op jobs, in alternating rounds.

    python -m benchmarks.checkout_comparison ../other-checkout [--store sqlite] [--jobs 20000] [--rounds 7]

Each round drains the same number of jobs with one worker process, first from the other checkout, then from
this one. Prints jobs per second, and CPU time per job of the worker and the server together: the medians of
both checkouts and their ratio."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import structlog

from benchmarks.cpu_time import cpu_seconds
from benchmarks.empty_stores import EmptyStore, create_factory
from tidemill import Tidemill

STORES = ("sqlite", "redis", "postgres")
THIS_CHECKOUT = Path(__file__).resolve().parent.parent
RUN_TIMEOUT_SECONDS = 300


async def drain_jobs(url: str, jobs: int) -> dict[str, float]:
    """Enqueues the jobs, then runs a worker until no job is left. Returns the worker's seconds and CPU
    seconds."""
    app = Tidemill(url)
    noop = app.task(name="noop")(_noop)
    async with app:
        await app.enqueue_many(noop.job(number) for number in range(jobs))
        print("enqueued", flush=True)
        sys.stdin.readline()  # the parent reads the server's CPU time first
        started, cpu = time.perf_counter(), time.process_time()
        await app.worker(until_idle=True).run()
        return {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}


async def _noop(number: int) -> None:
    """The no-op handler."""


def run_round(checkout: Path, place: EmptyStore, jobs: int) -> tuple[float, float]:
    """Drains the jobs with the code of `checkout`. Returns jobs per second, and CPU microseconds per job."""
    url = f"sqlite:///{place.url}/jobs.db" if place.store == "sqlite" else place.url
    command = [sys.executable, str(Path(__file__).resolve()), "--drain", url, "--jobs", str(jobs)]
    # This file imports benchmarks and tests of this checkout; PYTHONPATH puts the other src first.
    environment = os.environ | {"PYTHONPATH": f"{checkout / 'src'}:{THIS_CHECKOUT}"}
    with subprocess.Popen(
        command, cwd=THIS_CHECKOUT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        if child.stdout is None or child.stdout.readline() != "enqueued\n":
            raise SystemExit(f"the worker of {checkout} did not start")
        before = _server_cpu(place)
        output, _ = child.communicate("go\n", timeout=RUN_TIMEOUT_SECONDS)
    measured = json.loads(output.splitlines()[-1])
    cpu = measured["cpu"] + _server_cpu(place) - before
    return jobs / measured["seconds"], cpu / jobs * 1e6


def _server_cpu(place: EmptyStore) -> float:
    return 0.0 if place.pid is None else cpu_seconds(place.pid)


def compare(other: Path, store: str, jobs: int, rounds: int) -> None:
    checkouts = {"other": other.resolve(), "this": THIS_CHECKOUT}
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in checkouts}
    with create_factory(store, None) as factory:
        for _ in range(rounds):
            for name, checkout in checkouts.items():
                with factory.empty() as place:
                    results[name].append(run_round(checkout, place, jobs))
    medians = {
        name: (median(speed for speed, _ in rows), median(cpu for _, cpu in rows))
        for name, rows in results.items()
    }
    for name, (speed, cpu) in medians.items():
        print(f"{store:<10}{name:<7}{speed:>10,.0f} jobs/s{cpu:>9.1f} µs of CPU per job", flush=True)
    speed, cpu = (here / there for here, there in zip(medians["this"], medians["other"], strict=True))
    print(f"{store:<10}{'ratio':<7}{speed:>10.2f} times the jobs/s{cpu:>6.2f} times the CPU", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", nargs="?", type=Path, help="the folder of the other checkout")
    parser.add_argument("--store", action="append", choices=STORES)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--drain", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drain:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
        print(json.dumps(asyncio.run(drain_jobs(options.drain, options.jobs))))
        return
    if options.other is None or not (options.other / "src" / "tidemill").is_dir():
        parser.error("other: must be the folder of a checkout that has src/tidemill")
    for store in options.store or STORES:
        compare(options.other, store, options.jobs, options.rounds)


if __name__ == "__main__":
    main()
