"""Several worker processes refresh many feeds on many sites; the log of the sites is the witness (S3, S5)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.apps.feeds.feed_server import FeedServer, feed_server
from tests.apps.feeds.politeness import score
from tests.apps.feeds.service_kit import FULL_SIZE, QUICK_SETTINGS, FeedBench, until
from tidemill_apps.feeds.feed_schedules import schedule_name
from tidemill_apps.feeds.feed_store import NewFeed

FEEDS, HOSTS, WORKERS = (1000, 200, 4) if FULL_SIZE else (100, 20, 2)
SITE_SECONDS, JITTER, DUE_PER_SECOND = 1.0, 1.0, 10
SETTINGS = {**QUICK_SETTINGS, "site_seconds": SITE_SECONDS, "jitter": JITTER, "check_seconds": 2.0}
ROUND_SECONDS = 60 + FEEDS / 5
pytestmark = [pytest.mark.alone, pytest.mark.timeout(2 * ROUND_SECONDS + 60)]


class Workers:
    """Worker processes of the same stores."""

    def __init__(self, jobs: str, database: str) -> None:
        self._jobs, self._database, self._pids = jobs, database, list[int]()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        names = ",".join(f"w{number}-{time.time_ns()}" for number in range(WORKERS))
        program = str(Path(__file__).with_name("worker_process.py"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, program, names, self._jobs, self._database, json.dumps(SETTINGS)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        self._pids = [int((await process.stdout.readline()).split()[1]) for _ in range(WORKERS)]
        try:
            yield
        finally:
            self.kill()
            await process.wait()

    def kill(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
        self._pids = []


async def fetched(bench: FeedBench) -> set[str]:
    feeds = await bench.feeds.store.find(limit=10 * FEEDS)
    return {feed.url for feed in feeds if feed.last_fetch_status == "success"}


async def wait_for_rounds(bench: FeedBench, rounds: int) -> None:
    async def done() -> bool:
        feeds = await bench.feeds.store.find(limit=10 * FEEDS)
        return all(feed.state.successes + feed.state.failed >= rounds for feed in feeds)

    await until(done, ROUND_SECONDS)


def start_lags(server: FeedServer, due: dict[str, float]) -> list[float]:
    """Returns how late each request of the second round came: after its due time, or after its site was free
    again."""
    free: dict[str, float] = {}
    lags = []
    for seen in sorted(server.log, key=lambda seen: seen.began):
        if seen.began >= min(due.values()):
            lags.append(seen.began - max(due[seen.path], free.get(seen.host, 0.0)))
        free[seen.host] = seen.began + SITE_SECONDS + JITTER
    return sorted(lags)


@pytest.mark.parametrize("store", ["sqlite", "redis"])
async def test_sites_see_a_polite_reader_though_all_workers_are_killed_s3_s5(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = f"sqlite:///{tmp_path / 'jobs.db'}"
    if store == "redis":
        jobs = str(request.getfixturevalue("redis_url"))
    async with feed_server() as server:
        bench = FeedBench(tmp_path, server, jobs, site_seconds=SITE_SECONDS, jitter=JITTER)
        async with bench.app:
            hosts = [f"127.0.{7 + number // 250}.{1 + number % 250}" for number in range(HOSTS)]
            await bench.feeds.add(
                [
                    NewFeed(url=server.url(f"/{number}", hosts[number % HOSTS]), refresh_interval=60)
                    for number in range(FEEDS)
                ]
            )
            workers = Workers(jobs, f"sqlite:///{tmp_path / 'feeds.db'}")
            async with workers.running():

                async def half() -> bool:
                    return len(await fetched(bench)) >= FEEDS // 2

                await until(half, ROUND_SECONDS)
                workers.kill()
            before = await fetched(bench)
            killed_at = time.time()
            async with workers.running():
                await wait_for_rounds(bench, 1)
                repeated = [
                    seen
                    for seen in server.log
                    if seen.began > killed_at and server.url(seen.path, seen.host.partition(":")[0]) in before
                ]
                assert repeated == []
                second = await begin_second_round(bench)
                await wait_for_rounds(bench, 2)
            lags = start_lags(server, second)
            found = score(
                server.log,
                site_seconds=SITE_SECONDS,
                wrong_validators=server.wrong_validators,
                most_at_once=server.most_at_once,
                not_before={},
            )
            with capsys.disabled():
                p99 = lags[int(0.99 * (len(lags) - 1))]
                print(
                    f"\n{store}: {FEEDS} feeds, {HOSTS} sites, {WORKERS} workers; start lag p99 {p99:.2f} s"
                )
                print(found.table())
            assert p99 < 5.0
            again = [seen for seen in server.log if seen.began >= min(second.values()) - 2]
            assert all(seen.began > second[seen.path] - 0.1 for seen in again)
            assert found.crowded == found.wrong_validators == found.at_once == 0
            assert found.unconditional <= found.requests - 2 * FEEDS  # in flight when the workers were killed
            for feed in await bench.feeds.store.find(limit=10 * FEEDS):
                tick = (await bench.app.schedules.get(schedule_name(feed.id))).next[0]
                assert 3500 - ROUND_SECONDS < tick - time.time() <= 3600
        await bench.feeds.close()


async def begin_second_round(bench: FeedBench) -> dict[str, float]:
    """Makes every feed due again, ten feeds per second, as if an hour had passed. Returns the due times by
    path."""
    now, store = time.time() + 2, bench.feeds.store
    feeds = await store.find(limit=10 * FEEDS)
    due = {feed.id: now + number / DUE_PER_SECOND for number, feed in enumerate(feeds)}
    async with store.database.transaction() as connection:
        for feed in feeds:
            await store.write_state(connection, feed, {"next_at": due[feed.id]})
    await bench.feeds.schedules.schedule(await store.find(limit=10 * FEEDS))
    return {f"/{feed.url.rpartition('/')[2]}": due[feed.id] for feed in feeds}
