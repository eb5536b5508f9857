"""Every feed keeps its schedule: at the start, after a change by another program, and after a loss."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec import ValidationError, convert

from tests.apps.feeds.service_kit import FeedBench, bench_in, until
from tidemill import ScheduleNotFound, State
from tidemill_apps.feeds.feed_schedules import FeedSnapshot, schedule_name
from tidemill_apps.feeds.feed_store import Feed, NewFeed

pytestmark = pytest.mark.timeout(60)
HOUR = 3600.0


@pytest.fixture(params=["sqlite", "redis"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FeedBench]:
    jobs = str(request.getfixturevalue("redis_url")) if request.param == "redis" else ""
    async with bench_in(tmp_path, jobs, check_seconds=0.2) as bench:
        yield bench


async def insert(bench: FeedBench, path: str, fetched: float | None, interval: int = 60) -> Feed:
    """Inserts a row as another program does: without a state and without a schedule."""
    new = NewFeed(url=bench.server.url(path), refresh_interval=interval)
    [feed] = await bench.feeds.store.add([new])
    async with bench.feeds.store.database.transaction() as connection:
        await connection.execute(bench.feeds.store.tables.states.delete())
    await bench.change(feed, last_fetched=fetched)
    return await bench.get(feed)


async def next_tick(bench: FeedBench, feed: Feed) -> float:
    return (await bench.app.schedules.get(schedule_name(feed.id))).next[0]


async def test_at_the_start_new_and_overdue_feeds_run_and_others_wait_s7_s9(bench: FeedBench) -> None:
    now = time.time()
    new = await insert(bench, "/new", None)
    late = await insert(bench, "/late", now - 1.5 * HOUR)
    overdue = await insert(bench, "/overdue", now - 3 * HOUR)
    waiting = await insert(bench, "/waiting", now - 0.5 * HOUR)
    async with bench.run_worker():
        for feed in (new, late, overdue):
            await bench.wait_for_status(feed, "success")
    assert {seen.path for seen in bench.server.log} == {"/new", "/late", "/overdue"}
    assert abs(await next_tick(bench, waiting) - now - 0.5 * HOUR) < 5
    priorities = {
        job.payload.split(b'"feedUrl":"')[1].split(b'"')[0]: job.priority for job in await bench.jobs()
    }
    found = {url.decode().rpartition("/")[2]: priority for url, priority in priorities.items()}
    assert found["new"] == found["late"] == 5
    assert found["overdue"] == 2


async def test_a_missing_schedule_is_restored(bench: FeedBench) -> None:
    feed = await insert(bench, "/feed", time.time())
    async with bench.run_worker():

        async def scheduled() -> bool:
            try:
                return bool(await next_tick(bench, feed))
            except ScheduleNotFound:
                return False

        await until(scheduled)
        await bench.app.schedules.remove(schedule_name(feed.id))
        await until(scheduled)
    assert bench.server.log == []


async def test_a_row_that_another_program_changes_moves_the_next_run(bench: FeedBench) -> None:
    feed = await insert(bench, "/feed", time.time())
    async with bench.run_worker():

        async def due_in(hours: float) -> bool:
            try:
                return abs(await next_tick(bench, feed) - time.time() - hours * HOUR) < 30
            except ScheduleNotFound:
                return False

        await until(lambda: due_in(1))
        await bench.change(feed, refresh_interval=180)
        await until(lambda: due_in(3))
        await bench.change(feed, url=bench.server.url("/mended"))
        await bench.wait_for_status(feed, "success")
    assert [seen.path for seen in bench.server.log] == ["/mended"]


async def test_a_row_that_another_program_deletes_loses_its_schedule(bench: FeedBench) -> None:
    feed = await insert(bench, "/feed", time.time())
    await bench.feeds.schedules.check()
    table = bench.feeds.store.tables.feeds
    async with bench.feeds.store.database.transaction() as connection:
        await connection.execute(table.delete().where(table.c.id == feed.id))
    await bench.feeds.schedules.check()
    with pytest.raises(ScheduleNotFound):
        await next_tick(bench, feed)


async def test_twice_scheduled_is_one_job_s19(bench: FeedBench) -> None:
    feed = await insert(bench, "/feed", None)
    for _ in range(2):
        await bench.feeds.schedules.schedule([feed])
        await bench.feeds.schedules.refresh_now([feed], "overdue")
    [job] = await bench.jobs()
    assert (job.priority, job.state) == (2, State.READY)


async def test_a_paused_feed_is_not_fetched_and_is_due_after_the_pause(bench: FeedBench) -> None:
    feed = await insert(bench, "/feed", None)
    await bench.feeds.schedules.schedule([feed])
    await bench.feeds.schedules.pause(feed, "too long")
    other = await bench.add("/other")
    async with bench.run_worker():
        await bench.wait_for_status(other, "success")
        await bench.feeds.schedules.check()
        assert bench.server.requests("/feed") == []
        await bench.feeds.schedules.resume(await bench.get(feed))
        await bench.wait_for_status(feed, "success")


async def test_a_tick_that_comes_too_early_fetches_nothing(bench: FeedBench) -> None:
    feed = await bench.add("/feed")
    async with bench.run_worker():
        await until(lambda: bench.jobs(states=(State.DONE,)))
        await bench.feeds.schedules.refresh_now([await bench.get(feed)], "normal")

        async def ended() -> bool:
            return len(await bench.jobs(states=(State.DONE,))) == 2

        await until(ended)
        assert abs(await next_tick(bench, feed) - time.time() - HOUR) < 30
    assert len(bench.server.log) == 1


async def test_a_restart_after_five_minutes_finds_all_feeds_scheduled_s19(bench: FeedBench) -> None:
    feeds = [await insert(bench, f"/{number}", time.time(), 30) for number in range(5)]
    await bench.feeds.schedules.check()
    before = {feed.id: await next_tick(bench, feed) for feed in feeds}
    await bench.app.close()
    assert {feed.id: await next_tick(bench, feed) for feed in feeds} == before
    assert await bench.feeds.schedules.check(start=True) == 0
    assert {feed.id: await next_tick(bench, feed) for feed in feeds} == before


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("feedId", "seven"),
        ("feedUrl", "ftp://a.example/"),
        ("refreshInterval", 0),
        ("refreshInterval", 10_081),
        ("priority", "urgent"),
        ("lastFetched", "yesterday"),
        ("userId", 7),
    ],
)
def test_the_payload_is_typed_s6(field: str, value: object) -> None:
    good = {"feedId": str(uuid4()), "feedUrl": "https://a.example/feed", "refreshInterval": 60}
    assert convert(good, FeedSnapshot).priority == "normal"
    with pytest.raises(ValidationError, match=field):
        convert({**good, field: value}, FeedSnapshot)


async def test_a_row_with_a_bad_url_shows_why_and_stops_no_other_feed(bench: FeedBench) -> None:
    """Another program wrote the row, so nothing has checked its URL."""
    bad, good = await insert(bench, "/bad", None), await insert(bench, "/good", None)
    await bench.change(bad, url="javascript:1")
    await bench.feeds.schedules.check()
    assert await next_tick(bench, good)
    with pytest.raises(ScheduleNotFound):
        await next_tick(bench, bad)
    row = await bench.get(bad)
    assert row.last_fetch_status == "failed"
    assert (row.last_fetch_error or "").startswith("url: must begin")
    await bench.change(bad, url=bench.server.url("/bad"))
    await bench.feeds.schedules.check()
    assert await next_tick(bench, bad)
