"""Measures the cost of a pool per no-op job: a drain with a pool that never refuses, and one without a
pool.

    python -m benchmarks.pool_cost [jobs] [--store sqlite] [--profile]

Runs one process with default settings. The pool allows 1e9 requests a minute, so that only its
bookkeeping is measured. Prints jobs per second and CPU time per job. The runs alternate, so that a slow
minute of the machine affects all of them."""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import logging
import pstats
import tempfile
import time
from pathlib import Path

import structlog

from tidemill import Limit, Tidemill

STORES = ("memory", "sqlite")
ROUNDS = 3


async def drain(store: str, jobs: int, folder: Path, *, pooled: bool) -> tuple[float, float]:
    """Returns jobs per second, and microseconds of CPU time per job."""
    url = "memory://" if store == "memory" else f"sqlite:///{folder}/jobs.db"
    app = Tidemill(url)
    wide = app.pool("wide", Limit.requests(1e9, per="minute"))
    task = app.task(name="noop", pool=wide if pooled else None)
    noop = task(_noop)
    async with app:
        await app.enqueue_many(noop.job(number) for number in range(jobs))
        began, spent = time.perf_counter(), time.process_time()
        await app.worker(until_idle=True).run()
        took, cpu = time.perf_counter() - began, time.process_time() - spent
    return jobs / took, cpu / jobs * 1e6


async def _noop(number: int) -> None:
    """The no-op handler."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="?", type=int, default=5_000)
    parser.add_argument("--store", action="append", choices=STORES)
    parser.add_argument("--profile", action="store_true", help="profile only the runs with a pool")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    profile = cProfile.Profile() if arguments.profile else None
    for _ in range(1 if profile else ROUNDS):
        for store in arguments.store or STORES:
            for pooled in (True,) if profile else (False, True):
                with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
                    if profile is not None:
                        profile.enable()
                    speed, cpu = asyncio.run(drain(store, arguments.jobs, Path(folder), pooled=pooled))
                    if profile is not None:
                        profile.disable()
                what = "with a pool" if pooled else "without"
                print(f"{store:<8}{what:<12}{speed:>9,.0f} jobs/s{cpu:>9.1f} µs of CPU a job", flush=True)
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)


if __name__ == "__main__":
    main()
