"""The declarations of the feeds application: queue, task, pool, logs, alerts, and its size in Redis."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import redis.asyncio
import structlog
from aiohttp import web

from tests.apps.feeds.service_kit import FULL_SIZE, bench_in, until
from tests.apps.feeds.web_kit import site_in
from tidemill import ConfigurationError, Tidemill
from tidemill_apps.feeds.due_times import DAY_SECONDS
from tidemill_apps.feeds.feed_store import NewFeed
from tidemill_apps.feeds.settings import FeedsSettings, load_settings

FEEDS_IN_REDIS = 1000 if FULL_SIZE else 100
MAX_REDIS_BYTES = 600_000 + 4_400 * FEEDS_IN_REDIS
"""Connections, and a schedule and a finished job per feed. A thousand feeds take at most 5 MB."""
LOG_FIELDS = {"jobId", "feedId", "feedUrl", "attempt", "priority", "duration"}


async def test_one_queue_and_one_task_serve_both_sources_s18_q6(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        queue, task = bench.app.queues["rss"], bench.app.tasks["rss:fetch"]
        assert (queue.concurrency, queue.key_concurrency) == (5, 2)
        assert (queue.keep_done.age, queue.keep_done.count) == (DAY_SECONDS, 1000)
        assert queue.keep_failed.age == 7 * DAY_SECONDS
        assert (task.retry.attempts, task.retry.first, task.retry.jitter) == (3, 2.0, 0)
        assert (task.timeout, bench.feeds.settings.fetch_limits.seconds) == (900.0, 5.0)
        assert (FeedsSettings().fetch_seconds, FeedsSettings().site_seconds) == (30.0, 1.0)


async def test_log_lines_have_the_fields_of_the_source_s6(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        bench.server.answers["/bad"] = lambda _: web.Response(status=404)
        good, bad = await bench.add("/feed?key=geheim"), await bench.add("/bad")
        with structlog.testing.capture_logs() as lines:
            async with bench.run_worker():
                await bench.wait_for_status(good, "success")
                await bench.wait_for_status(bad, "failed")
        done = next(line for line in lines if line["event"] == "feed refreshed")
        failed = next(line for line in lines if line["event"] == "feed failed")
    assert LOG_FIELDS | {"articleCount", "delaySeconds"} <= done.keys()
    assert (done["articleCount"], done["delaySeconds"], done["feedId"]) == (1, 3600, good.id)
    assert LOG_FIELDS | {"error"} <= failed.keys()
    assert "geheim" not in str(lines)


async def test_a_feed_that_fails_for_a_day_and_a_dead_network_raise_alerts(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        bench = site.bench
        feed, fine = await bench.add("/feed?key=geheim"), await bench.add("/fine")
        measures = bench.app.notifications.measures
        assert await measures["feed fails for a day"]() == {}  # type: ignore[misc]
        since = time.time() - 1.5 * DAY_SECONDS
        await bench.feeds.store.set_state(feed, failing_since=since)
        await bench.feeds.store.set_state(fine, failing_since=time.time() - 60)
        [(name, hours)] = (await measures["feed fails for a day"]()).items()  # type: ignore[misc]
        assert "geheim" not in name
        assert hours == pytest.approx(36, abs=0.1)
        assert await measures["network down"]() == 0.0  # type: ignore[misc]
        async with bench.feeds.store.database.transaction() as connection:
            for number in range(5):
                await bench.feeds.history.count_connection(
                    connection, f"site{number}", time.time(), connected=False
                )
        assert await measures["network down"]() == 1.0  # type: ignore[misc]


@pytest.mark.timeout(60 + FEEDS_IN_REDIS / 5)
async def test_a_thousand_feeds_fit_in_five_megabytes_of_redis_s5(tmp_path: Path, redis_url: str) -> None:
    async with bench_in(tmp_path, redis_url, jitter=0.1, check_seconds=3600) as bench:
        client = redis.asyncio.Redis.from_url(redis_url)
        await bench.app.inspect.counts()
        empty = (await client.info("memory"))["used_memory"]
        hosts = [f"127.1.0.{1 + number % 200}" for number in range(FEEDS_IN_REDIS)]
        new = [
            NewFeed(url=bench.server.url(f"/{number}", host), refresh_interval=60)
            for number, host in enumerate(hosts)
        ]
        feeds = await bench.feeds.add(new)
        async with bench.run_worker():
            for runs in (1, 2):
                for feed in feeds:
                    await bench.wait_for_runs(feed, runs)
                if runs == 1:
                    await bench.feeds.schedules.refresh_now(feeds, "manual")
            await until(lambda: _idle(bench.app))
            used = (await client.info("memory"))["used_memory"]
        await client.aclose()
    assert used - empty < MAX_REDIS_BYTES


async def _idle(app: Tidemill) -> bool:
    counts = (await app.inspect.counts()).get("rss", {})
    return not any(count for state, count in counts.items() if state.value in ("ready", "running"))


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="FEEDS_SLOW_CONCURRENCY: must be at most"):
        load_settings({"FEEDS_CONCURRENCY": "1"})
    with pytest.raises(ConfigurationError, match="FEEDS_DEFAULT_INTERVAL"):
        load_settings({"FEEDS_DEFAULT_INTERVAL": "0"})
