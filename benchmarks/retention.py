"""Checks that a store keeps its size and speed while jobs come and go for a long time.

    python -m benchmarks.retention [--store sqlite] [--seconds 600] [--rate 1000] [--keep 5000]

Sends `--rate` jobs a second to a worker whose queue keeps `--keep` done jobs, on a private store of each
kind. The worker prunes every 30 s, its default. Prints one row per minute: the largest size of the store
(file, memory or database), started jobs, the time from sending to the start of the handler, and the
largest number of done jobs. The verdict:

    flat      the store is less than 5 % larger in the last third of the run than before
    claims    the median start of the last third takes at most 1.5 times as long as that of the first

A store remembers the ids of pruned jobs for an hour, and grows by them until then. `--ids-seconds`
shortens the hour for this run (default: a tenth of the run). The program exits with an error if a store
fails."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles

import msgspec

from benchmarks.empty_stores import EmptyStore, create_factory
from benchmarks.plan import STORES
from tidemill import Retention, Tidemill
from tidemill.client.task import Task
from tidemill.contract import jobs
from tidemill.core.states import State

QUEUE = "short"
TICK = 0.02
SAMPLE_SECONDS = 1.0
LEAST_SECONDS = 6.0
"""Two samples for each third of the run."""
ROWS = 10
LEAST_SAMPLES = 3
MOST_GROWTH, MOST_SLOWDOWN = 1.05, 1.5


class Sample(msgspec.Struct, frozen=True):
    """One second of the run. `waited` are milliseconds from sending to start."""

    at: float
    size: int
    kept: int
    waited: list[float]


class Verdict(msgspec.Struct, frozen=True):
    growth: float
    slowdown: float

    @property
    def is_flat(self) -> bool:
        return self.growth < MOST_GROWTH

    @property
    def is_fast(self) -> bool:
        return self.slowdown <= MOST_SLOWDOWN

    def __str__(self) -> str:
        flat, fast = ("ok" if good else "FAILED" for good in (self.is_flat, self.is_fast))
        return f"size x {self.growth:.3f} (flat: {flat}), median start x {self.slowdown:.2f} (claims: {fast})"


class Run:
    """Sends jobs, and samples the store once a second."""

    def __init__(self, place: EmptyStore, rate: int, keep: int) -> None:
        url = f"sqlite:///{place.url}/jobs.db" if place.store == "sqlite" else place.url
        self.app, self._place, self._rate = Tidemill(url), place, rate
        self.app.queue(QUEUE, keep_done=Retention(count=keep))
        self._waited: list[float] = []
        self.samples: list[Sample] = []
        self.task: Task[[float], None] = self._task()

    def _task(self) -> Task[[float], None]:
        @self.app.task(queue=QUEUE)
        async def start(sent: float) -> None:
            self._waited.append((time.monotonic() - sent) * 1000)

        return start

    async def run(self, seconds: float) -> list[Sample]:
        async with self.app:
            worker = self.app.worker(concurrency=100)
            working = asyncio.create_task(worker.run())
            looking = asyncio.create_task(self._look())
            await self._send(seconds)
            looking.cancel()
            worker.stop()
            await working
        return self.samples

    async def _send(self, seconds: float) -> None:
        """Sends jobs by the clock: after a slow second, the next one catches up."""
        began, sent = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * self._rate) - sent
            if due > 0:
                now = time.monotonic()
                await self.app.enqueue_many(self.task.job(now) for _ in range(due))
                sent += due
            await asyncio.sleep(TICK)

    async def _look(self) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            size = await asyncio.to_thread(self._place.bytes_used)
            kept = (await self.app.store.counts()).get(QUEUE, {}).get(State.DONE, 0)
            waited, self._waited = self._waited, []
            self.samples.append(Sample(time.monotonic() - began, size, kept, waited))


def verdict(samples: list[Sample]) -> Verdict:
    third = max(1, len(samples) // 3)
    first, before, last = samples[:third], samples[:-third], samples[-third:]
    growth = max(one.size for one in last) / max(one.size for one in before)
    slowdown = median(_waited(last)) / max(median(_waited(first)), 1e-9)
    return Verdict(growth, slowdown)


def _waited(samples: list[Sample]) -> list[float]:
    return [wait for one in samples for wait in one.waited] or [0.0]


def _rows(samples: list[Sample], seconds: float) -> Iterator[str]:
    step = max(1, round(len(samples) / (seconds / 60 if seconds >= 60 * ROWS else ROWS)))
    for start in range(0, len(samples), step):
        some = samples[start : start + step]
        waited = _waited(some)
        p99 = quantiles(waited, n=100)[98] if len(waited) > 1 else waited[0]
        yield (
            f"{some[-1].at:7.0f} {max(one.size for one in some) / 1e6:12.1f} {len(waited) / step:10.0f} "
            f"{median(waited):10.1f} {p99:10.1f} {max(one.kept for one in some):10}"
        )


@contextmanager
def _quiet_place(store: str) -> Iterator[EmptyStore]:
    with create_factory(store, None) as some, some.empty() as place:
        yield place


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=STORES, action="append", help="one kind; default: all")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=int, default=1000, help="jobs a second")
    parser.add_argument("--keep", type=int, default=5000, help="done jobs that the queue keeps")
    parser.add_argument("--ids-seconds", type=float, help="default: a tenth of --seconds")
    arguments = parser.parse_args()
    if arguments.seconds < LEAST_SECONDS:
        parser.error(f"--seconds: must be {LEAST_SECONDS:g} or more, is {arguments.seconds:g}")
    jobs.KNOWN_ID_SECONDS = arguments.ids_seconds or arguments.seconds / 10
    failed = False
    for store in arguments.store or STORES:
        with _quiet_place(store) as place:
            run = Run(place, arguments.rate, arguments.keep)
            samples = asyncio.run(run.run(arguments.seconds))
        print(
            f"{store}: {arguments.rate} jobs/s for {arguments.seconds:.0f} s, {arguments.keep} kept, "
            f"ids remembered for {jobs.KNOWN_ID_SECONDS:.0f} s"
        )
        print("      s    MB at most  started/s  median ms     p99 ms  most done")
        print("\n".join(_rows(samples, arguments.seconds)))
        if len(samples) < LEAST_SAMPLES:
            sys.exit(f"{store}: {len(samples)} samples, {LEAST_SAMPLES} are needed: give more --seconds")
        found = verdict(samples)
        print(f"{store}: {found}\n", flush=True)
        failed = failed or not (found.is_flat and found.is_fast)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
