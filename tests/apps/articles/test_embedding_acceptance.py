"""Acceptance tests of articles: the fewest possible calls, the newest text, no gap in search, no loss after
kills.

The provider's log proves it."""

from __future__ import annotations

import math
import os
import signal
import sys
from asyncio.subprocess import create_subprocess_exec
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE

from tests.apps.articles.fake_qdrant import stand_in
from tests.apps.articles.generated_articles import fill
from tests.apps.articles.service_kit import Bench, bench_in, simulator, until
from tidemill import Filter, State
from tidemill_apps.articles.embed_requests import MANUAL_PRIORITY

ALL = 1_000
HANDFUL = 30
WORKERS = ("one", "two", "three")


async def test_a_thousand_articles_in_as_few_calls_as_there_can_be(tmp_path: Path) -> None:
    async with (
        stand_in() as served,
        bench_in(
            tmp_path,
            options={"latency": (0.2, 0.3)},
            qdrant_url=served.url,
            linger=0.5,
            reconcile_seconds=5.0,
            dimensions=64,
        ) as bench,
    ):
        ids = await fill(bench, ALL)
        assert await bench.articles.requests.request_all() == ALL
        waiting, running, last = ids[ALL // 2], ids[0], ids[-1]
        await bench.articles.change(waiting, content="等待时改过的文章")
        for _ in range(5):
            assert await bench.articles.requests.request(last, MANUAL_PRIORITY) is not None
        async with bench.run_worker():
            await until(lambda: is_processing(bench, running))
            await bench.articles.change(running, content="嵌入时改过的文章")
            await until(lambda: all_completed(bench), 60)
            least = math.ceil(await chunks_of_all(bench, ids) / bench.articles.settings.inputs_per_call)
            assert least <= len(bench.calls) <= 1.1 * least
            assert bench.provider.most_at_once == 2
            times = Counter(text for call in bench.calls for text in call)
            assert (times["等待时改过的文章"], times["嵌入时改过的文章"]) == (1, 1)
            assert any(f"article{last}" in text for call in bench.calls[:2] for text in call)
            await hides_without_a_call(bench, waiting, "等待时改过的文章")
        counts = (await bench.app.inspect.counts())[bench.articles.queue]
        # One was edited while its job ran.
        assert (counts[State.DONE], counts.get(State.FAILED, 0)) == (
            ALL + 1,
            0,
        )


async def all_completed(bench: Bench) -> bool:
    return (await bench.posts.count_by_status())["completed"] == ALL


async def chunks_of_all(bench: Bench, ids: list[int]) -> int:
    return sum(post.rag_chunks for post in await bench.posts.load(ids))


async def hides_without_a_call(bench: Bench, post_id: int, text: str) -> None:
    assert (await bench.found(text))[0] == post_id
    calls = len(bench.calls)
    await bench.articles.change(post_id, hide="1")
    assert post_id not in await bench.found(text)
    assert len(bench.calls) == calls


async def is_processing(bench: Bench, post_id: int) -> bool:
    return (await bench.post(post_id)).rag_status == "processing"


async def test_killed_workers_lose_nothing_and_leave_nothing_processing(tmp_path: Path) -> None:
    """Two of three processes are killed during their calls: billed, and never answered."""
    async with stand_in() as served, simulator(latency=(0.2, 0.3)) as server:
        bench = Bench(tmp_path, server, qdrant_url=served.url, inputs_per_call=8)
        async with bench.app:
            ids = await fill(bench, HANDFUL)
            await bench.articles.requests.request_all()
            async with workers_of(bench, tmp_path, server.url, served.url) as workers:
                for _ in range(2):
                    killed = workers.pop(await until(lambda: who_has_a_call(bench, workers)))
                    os.kill(killed, signal.SIGKILL)
                await bench.wait_until_settled(*ids)
            posts = await bench.posts.load(ids)
            assert {post.rag_status for post in posts} == {"completed"}
            await bench.articles.reconciler.sweep()
            points, _ = served.client.scroll("blog_posts", limit=10_000)
            found = Counter((point.payload or {})["postId"] for point in points)
            chunking = bench.articles.packer.chunker
            assert found == {post.id: len(chunking.split_markdown(post.content)) for post in posts}
            await bench.articles.close()


async def who_has_a_call(bench: Bench, workers: dict[str, int]) -> str | None:
    page = await bench.app.inspect.find(Filter(queue=bench.articles.queue, states=(State.RUNNING,)))
    return next((name for job in page.jobs for name in workers if f"{job.worker}".startswith(name)), None)


@asynccontextmanager
async def workers_of(bench: Bench, folder: Path, provider: str, qdrant: str) -> AsyncIterator[dict[str, int]]:
    """Starts worker processes; yields their ids by name. None starts before all are ready."""
    program = str(Path(__file__).with_name("worker_process.py"))
    await bench.app.inspect.pause(bench.articles.queue)
    places = (str(folder), provider, qdrant)
    words = (sys.executable, program, ",".join(WORKERS), *places)
    parent = await create_subprocess_exec(*words, stdout=PIPE, stderr=DEVNULL)
    workers: dict[str, int] = {}
    try:
        assert parent.stdout is not None
        while len(workers) < len(WORKERS):
            name, number = (await parent.stdout.readline()).decode().split()
            workers[name] = int(number)
        await until(lambda: are_there(bench, len(workers)))
        await bench.app.inspect.resume(bench.articles.queue)
        yield workers
    finally:
        for process in workers.values():
            os.kill(process, signal.SIGTERM)
        await parent.communicate()


async def are_there(bench: Bench, count: int) -> bool:
    return len(await bench.app.inspect.workers()) == count
