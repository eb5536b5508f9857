"""Queues of different weights in one worker: measured shares, and the delay of a job in a flood (Q5)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from tidemill import Task, Tidemill

WEIGHTS = {"podcast": 10, "rss": 5, "default": 1}
ROUNDS = 1500
HANDLER_SECONDS = 0.05


def declare_queues(app: Tidemill) -> None:
    for name, weight in WEIGHTS.items():
        app.queue(name, weight=weight)


async def test_claims_are_shared_by_weight_within_a_tenth_q5(tmp_path: Path) -> None:
    """Counts the starts of no-op jobs in 1 500 rounds, while every queue still has a backlog."""
    app = Tidemill(f"sqlite:///{tmp_path / 'jobs.db'}")
    declare_queues(app)
    started: list[str] = []

    def declare(queue: str) -> Task[[], None]:
        @app.task(name=f"{queue}:run", queue=queue)
        async def run() -> None:
            started.append(queue)

        return run

    tasks = {queue: declare(queue) for queue in WEIGHTS}
    async with app:
        for queue, weight in WEIGHTS.items():
            await app.enqueue_many(tasks[queue].job() for _ in range(weight * ROUNDS + 1_000))
        await app.worker(until_idle=True, concurrency=10).run()
    counted = Counter(started[: ROUNDS * sum(WEIGHTS.values())])
    for queue, weight in WEIGHTS.items():
        assert counted[queue] == pytest.approx(ROUNDS * weight, rel=0.1), counted


@pytest.mark.alone
async def test_a_podcast_starts_at_once_in_a_flood_of_feeds_q5(tmp_path: Path) -> None:
    """10 000 `rss` jobs wait and all slots are busy when the podcast is sent."""
    app = Tidemill(f"sqlite:///{tmp_path / 'jobs.db'}")
    declare_queues(app)
    durations: list[float] = []
    flooded, spoken = asyncio.Event(), asyncio.Event()
    started: list[float] = []

    @app.task(name="rss:fetch", queue="rss")
    async def fetch(feed: int) -> None:
        began = time.perf_counter()
        await asyncio.sleep(HANDLER_SECONDS)
        durations.append(time.perf_counter() - began)
        if len(durations) == 100 * (len(started) + 1):
            flooded.set()

    @app.task(name="podcast:generation", queue="podcast")
    async def generate(podcast_id: int) -> None:
        started.append(time.perf_counter())
        spoken.set()

    delays = []
    async with app:
        for first in range(0, 10_000, 1000):
            await app.enqueue_many(fetch.job(feed) for feed in range(first, first + 1000))
        worker = app.worker(concurrency=10)
        running = asyncio.create_task(worker.run())
        for podcast_id in range(5):
            await flooded.wait()
            sent = time.perf_counter()
            await generate.enqueue(podcast_id)
            await spoken.wait()
            delays.append(started[-1] - sent)
            durations.clear()
            flooded.clear()
            spoken.clear()
        worker.stop()
        await running
    assert max(delays) <= 3 * HANDLER_SECONDS + 0.1, delays
