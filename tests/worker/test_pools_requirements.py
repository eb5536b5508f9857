"""Requirements of users for pools, with a real worker and store in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.worker.bench import Bench, Virtually
from tidemill.core.limits import Limit
from tidemill.core.queues import QueueSettings

MINUTE = 60.0


def most_within(moments: list[float], seconds: float) -> int:
    return max(sum(first <= at < first + seconds for at in moments) for first in moments)


def test_job_starts_per_queue_and_one_pool_of_calls_for_all_n2(virtually: Virtually) -> None:
    """Two starts per minute of one queue, ten of another, and five calls per minute for both together; a
    full job makes two calls."""

    async def scenario(bench: Bench) -> None:
        starts: dict[str, list[float]] = {"metadata": [], "embedding": []}
        calls: list[float] = []
        shared = await bench.pool("calls", Limit.requests(5, per="minute"))
        metadata_starts = await bench.pool("metadata starts", Limit.jobs(2, per="minute"))
        embedding_starts = await bench.pool("embedding starts", Limit.jobs(10, per="minute"))

        async def metadata() -> None:
            starts["metadata"].append(bench.clock.boot())
            calls.extend([bench.clock.boot()] * 2)

        async def embedding() -> None:
            starts["embedding"].append(bench.clock.boot())
            calls.append(bench.clock.boot())

        bench.task(metadata, pool=[metadata_starts, shared], cost={shared: {"requests": 2}})
        bench.task(embedding, pool=[embedding_starts, shared])
        jobs = [await bench.enqueue("metadata", queue="metadata") for _ in range(6)]
        jobs += [await bench.enqueue("embedding", queue="embedding") for _ in range(30)]
        workers = [bench.worker(queues={"metadata": 1, "embedding": 1}, concurrency=5) for _ in range(2)]
        runs = [bench.start(worker) for worker in workers]
        await bench.ended(*jobs)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*runs)
        assert most_within(starts["metadata"], MINUTE) == 2
        assert most_within(starts["embedding"], MINUTE) <= 10
        assert most_within(calls, MINUTE) == 5
        assert max(calls) < 10 * MINUTE, "42 calls at five a minute: nothing is left unused"

    virtually(scenario)


def test_five_at_a_time_never_two_of_one_feed_and_a_hosts_rate_s3_s14(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        running: Counter[str] = Counter()
        most: Counter[str] = Counter()
        by_host: dict[str, list[float]] = {"a": [], "b": []}
        await bench.store.declare({"feeds": QueueSettings(concurrency=5, key_concurrency=1)})
        site = await bench.pool("site", Limit.requests(1, per="second"), keyed=True)

        async def refresh(feed: str, host: str) -> None:
            by_host[host].append(bench.clock.boot())
            running.update((feed, "all"))
            for name in (feed, "all"):
                most[name] = max(most[name], running[name])
            await asyncio.sleep(8)
            running.subtract((feed, "all"))

        bench.task(refresh, pool=site.by(lambda feed, host: host))
        jobs = [
            await bench.enqueue(
                "refresh", f'{{"feed": "{feed}", "host": "{host}"}}'.encode(), queue="feeds", key=feed
            )
            for feed, host in [("one", "a"), ("two", "a"), ("three", "b"), ("four", "b")] * 5
        ]
        workers = [bench.worker(queues={"feeds": 1}, concurrency=10) for _ in range(2)]
        runs = [bench.start(worker) for worker in workers]
        await bench.ended(*jobs)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*runs)
        assert most["all"] <= 5
        assert {most[feed] for feed in ("one", "two", "three", "four")} == {1}
        assert [most_within(by_host[host], 1.0) for host in "ab"] == [1, 1]

    virtually(scenario)
