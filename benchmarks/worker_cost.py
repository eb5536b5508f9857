"""Measures the CPU time of the worker per no-op job, on a fake store that costs next to nothing.

    python benchmarks/worker_cost.py [jobs] [--uvloop] [--profile]

The fake store returns prepared claims and answers every settlement `ok`. The heartbeat, maintenance,
timeouts and retention checks of a real worker are on. Prints the process's CPU time per job, without the
cost of preparing the claims. A worker's throughput can never exceed 1 / that number."""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import time
from collections.abc import Sequence
from typing import Any

from tidemill.clock import SystemClock, SystemEntropy
from tidemill.contract.jobs import ExtendResult
from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob, ClaimRequest, ClaimResult, Heartbeat, Settlement, SettleResult
from tidemill.core.outcomes import WriteAnswer
from tidemill.stores.memory.store import MemoryStore
from tidemill.tasks.definition import make_task_definition
from tidemill.worker import Worker, WorkerOptions


class PreparedStore(MemoryStore):
    """A memory store that returns jobs from a prepared list, one round trip per loop iteration."""

    def prepare(self, jobs: int) -> None:
        self._jobs = [_claimed(number) for number in range(jobs, 0, -1)]
        self.largest = 0

    def new_handle(self) -> PreparedStore:
        return self

    async def close(self) -> None:
        """Does nothing: both handles are this object."""

    async def extend(self, heartbeat: Heartbeat) -> ExtendResult:  # noqa: ARG002 - the signature of the contract
        return ExtendResult(lost=())

    async def settle(
        self, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
        await asyncio.sleep(0)
        answers = [WriteAnswer.OK] * len(settlements)
        if request is None:
            return SettleResult(answers)
        self.largest = max(self.largest, request.limit)
        taken = self._jobs[-request.limit :]
        del self._jobs[-request.limit :]
        taken.reverse()
        return SettleResult(answers, ClaimResult(jobs=taken, more=bool(self._jobs)))


def _claimed(number: int) -> ClaimedJob:
    named: dict[str, Any] = {"id": f"{number:032x}", "queue": "default", "task": "noop", "lane": ""}
    counts: dict[str, Any] = {"fence": 1, "claim": 1, "attempt": 1, "crashes": 0, "generation": 0, "part": 0}
    times: dict[str, Any] = {"created": 0.0, "due": 0.0, "timeout": None}
    return ClaimedJob(payload=b'{"number":1}', priority=5, trace=None, **named, **counts, **times)


async def noop(number: int) -> None:
    """The no-op handler."""


async def measure(jobs: int, concurrency: int) -> tuple[float, int]:
    store = PreparedStore()
    await store.open()
    store.prepare(jobs)
    standin: Store = store
    options = WorkerOptions(concurrency=concurrency, until_idle=True)
    tasks = {"noop": make_task_definition(noop, name="noop")}
    worker = Worker(standin, tasks, options=options, clock=SystemClock(), entropy=SystemEntropy())
    began = time.process_time()
    await worker.run()
    spent = time.process_time() - began
    if worker.stats.done != jobs:
        raise SystemExit(f"{worker.stats.done} of {jobs} jobs done: {worker.stats}")
    return spent / jobs * 1e6, store.largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="?", type=int, default=100_000)
    parser.add_argument("--uvloop", action="store_true")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    if arguments.uvloop:
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    profile = cProfile.Profile() if arguments.profile else None
    for concurrency in (10, 100):
        if profile is not None:
            profile.enable()
        cost, largest = asyncio.run(measure(arguments.jobs, concurrency))
        print(f"concurrency {concurrency:4}: {cost:6.2f} µs a job (largest claim {largest})")
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(20)


if __name__ == "__main__":
    main()
