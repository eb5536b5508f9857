"""The run times of jobs, as their worker measures them."""

from __future__ import annotations

import asyncio
from bisect import bisect_left

from tests.worker.bench import Bench, Virtually
from tests.worker.conftest import virtually
from tidemill.errors import GiveUp, RetryAfter, SnoozeFor
from tidemill.metrics.catalogue import JOB_DURATION
from tidemill.metrics.rollup import load_samples

__all__ = ["virtually"]


def test_every_attempt_is_in_the_bucket_of_its_time(virtually: Virtually) -> None:
    """In virtual time seconds are exact, also on a bucket's bound and beyond the last bound."""
    lasting = (0.0, 0.005, 0.006, 1.0, 59.5, 60.0, 900.0, 1234.0)

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def scenario(bench: Bench) -> None:
        bench.task(sleep, timeout=3600.0)
        for queue in ("a", "b"):
            for seconds in lasting:
                await bench.enqueue("sleep", b'{"seconds":%r}' % seconds, queue=queue)
        await bench.run_until_idle(queues={"a": 1, "b": 1}, concurrency=100)
        found = dict((await load_samples(bench.store))[JOB_DURATION.name].series)
        expected = [0] * (len(JOB_DURATION.bounds) + 1)
        for seconds in lasting:
            expected[bisect_left(JOB_DURATION.bounds, seconds)] += 1
        assert set(found) == {("a", "sleep"), ("b", "sleep")}
        for *counts, total in found.values():
            assert counts == expected
            assert abs(total - sum(lasting)) < 0.01

    virtually(scenario)


def test_attempts_count_however_they_ended_unless_they_were_handed_back(virtually: Virtually) -> None:
    ends = [None, GiveUp("no"), RetryAfter(1), SnoozeFor(1), ValueError("again")]
    left = list(ends)

    async def end() -> None:
        if left and (error := left.pop(0)) is not None:
            raise error

    async def wait() -> None:
        await asyncio.sleep(3600)

    async def scenario(bench: Bench) -> None:
        bench.task(end)
        bench.task(wait, timeout=7200.0)
        for _ in ends:
            await bench.enqueue("end")
        await bench.enqueue("wait", queue="long")
        worker = bench.worker(queues={"default": 1, "long": 1}, grace=1.0)
        running = bench.start(worker)
        await asyncio.sleep(600)
        worker.stop()
        await running
        found = dict((await load_samples(bench.store))[JOB_DURATION.name].series)
        assert set(found) == {("default", "end")}
        assert sum(found["default", "end"][:-1]) == len(ends) + 3  # three jobs ran a second time
        assert worker.stats.released == 1

    virtually(scenario)
