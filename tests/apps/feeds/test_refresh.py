"""One feed from its first fetch to the next: conditions, failures, redirects, refusals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.apps.feeds.feed_server import SeenRequest, answer_rss
from tests.apps.feeds.politeness import site_gaps
from tests.apps.feeds.service_kit import FeedBench, bench_in, until
from tidemill import ScheduleNotFound, State
from tidemill_apps.feeds.due_times import DAY_SECONDS
from tidemill_apps.feeds.feed_schedules import schedule_name

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[FeedBench]:
    async with bench_in(tmp_path) as bench:
        yield bench


async def next_tick(bench: FeedBench, feed_id: str) -> float:
    """Returns the next tick when the schedule has the time of the row, which the handler writes first."""

    async def poll() -> float | None:
        feed = await bench.feeds.store.get(feed_id)
        tick = (await bench.app.schedules.get(schedule_name(feed_id))).next[0]
        is_same = feed is not None and abs(tick - (feed.state.next_at or 0.0)) < 1
        return tick if is_same else None

    return await until(poll)


async def test_a_new_feed_is_fetched_at_once_and_scheduled_s19(bench: FeedBench) -> None:
    bench.server.answers["/feed"] = lambda _: answer_rss("潮汐", "一", "二")
    feed = await bench.add()
    async with bench.run_worker():
        done = await bench.wait_for_status(feed, "success")
    assert done.title == "潮汐"
    assert done.last_fetched is not None
    assert abs(done.last_fetched - time.time()) < 10
    articles = await bench.feeds.articles.find(feed.id, 10)
    assert {article.title for article in articles} == {"一", "二"}
    assert abs(await next_tick(bench, feed.id) - done.last_fetched - 3600) < 2
    [job] = await bench.jobs(states=(State.DONE,))
    assert (job.task, job.priority) == ("rss:fetch", 5)


async def test_validators_are_sent_byte_for_byte_and_304_changes_nothing(bench: FeedBench) -> None:
    feed = await bench.add("/etag")
    async with bench.run_worker():
        await bench.wait_for_runs(feed, 1)
        await bench.feeds.refresh(feed)
        done = await bench.wait_for_runs(feed, 2)
    first, second = bench.server.requests("/etag")
    assert "if-none-match" not in first.headers
    assert second.headers["if-none-match"] == '"/etag  W/v1"'
    assert done.state.etag == '"/etag  W/v1"'
    assert await bench.feeds.articles.count(feed.id) == 1
    assert bench.server.wrong_validators == 0


async def test_five_clicks_make_one_job_s8(bench: FeedBench) -> None:
    feed = await bench.add()
    for _ in range(5):
        await bench.feeds.refresh(feed)
    [job] = await bench.jobs()
    assert (job.priority, job.state) == (1, State.READY)
    async with bench.run_worker():
        await bench.wait_for_runs(feed, 1)
        await until(lambda: bench.jobs(states=(State.DONE,)))
    assert len(bench.server.log) == 1


async def test_a_bad_url_gets_three_attempts_and_a_next_run_s19(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        feed = await bench.add("/down", host="127.0.0.9")
        await bench.change(feed, url="http://127.0.0.9:1/feed")
        async with bench.run_worker():
            failed = await bench.wait_for_status(feed, "failed")
            [job] = await until(lambda: bench.jobs(states=(State.FAILED,)))
        assert job.attempts == 3
        assert failed.last_fetch_error
        assert (failed.state.failures, failed.state.failed) == (1, 1)
        assert abs(await next_tick(bench, feed.id) - time.time() - 3600) < 30


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (403, 1), (500, 3), (410, 1)])
async def test_server_errors_are_retried_and_others_not_s2(
    bench: FeedBench, status: int, requests: int
) -> None:
    bench.server.answers["/feed"] = lambda _: web.Response(status=status)
    feed = await bench.add()
    async with bench.run_worker():
        failed = await bench.wait_for_status(feed, "failed")
    assert len(bench.server.log) == requests
    assert str(status) in str(failed.last_fetch_error)
    week = await next_tick(bench, feed.id) - time.time() > 6 * DAY_SECONDS
    assert (failed.state.gone, week) == ((status == 410), (status == 410))


async def test_a_document_that_is_no_feed_is_not_fetched_again_s2(bench: FeedBench) -> None:
    bench.server.answers["/feed"] = lambda _: web.Response(text="no feed at all", content_type="text/plain")
    feed = await bench.add()
    async with bench.run_worker():
        failed = await bench.wait_for_status(feed, "failed")
    assert len(bench.server.log) == 1
    assert failed.last_fetch_error


async def test_a_web_page_leads_to_its_feed(bench: FeedBench) -> None:
    page = '<html><head><link rel="alternate" type="application/rss+xml" href="/real"></head></html>'
    bench.server.answers["/page"] = lambda _: web.Response(text=page, content_type="text/html")
    feed = await bench.add("/page")
    async with bench.run_worker():
        done = await bench.wait_for_status(feed, "success")
    assert done.url == bench.server.url("/real")
    assert await bench.feeds.articles.count(feed.id) == 1


async def test_a_429_closes_the_site_and_spends_no_attempt_s2(bench: FeedBench) -> None:
    refusals = iter([web.Response(status=429, headers={"retry-after": "1"})])
    bench.server.answers["/feed"] = lambda _: next(refusals, None) or answer_rss("潮汐", "一")
    feed, neighbour = await bench.add(), await bench.add("/other")
    async with bench.run_worker():
        await bench.wait_for_status(feed, "success")
        await bench.wait_for_status(neighbour, "success")
    refused, *rest = bench.server.requests("/feed")
    after = [seen for seen in bench.server.log if seen.began > refused.began + 0.05]
    assert min(seen.began for seen in after) - refused.began >= 1.0
    assert all(job.attempts == 1 for job in await bench.jobs(states=(State.DONE,)))
    assert len(rest) == 1


async def test_a_503_delays_its_feed_only(bench: FeedBench) -> None:
    bench.server.answers["/busy"] = lambda _: web.Response(status=503, headers={"retry-after": "7200"})
    busy, other = await bench.add("/busy"), await bench.add("/other")
    async with bench.run_worker():
        failed = await bench.wait_for_status(busy, "failed")
        await bench.wait_for_status(other, "success")
        await bench.feeds.refresh(busy)  # by hand, and still before Retry-After
        await until(lambda: bench.jobs(states=(State.DONE,), text="manual"))
    assert len(bench.server.requests("/busy")) == 1
    assert failed.state.next_reason == "retry_after"
    assert abs(await next_tick(bench, busy.id) - time.time() - 7200) < 30


async def test_max_age_and_ttl_delay_the_next_run_but_not_a_click(bench: FeedBench) -> None:
    bench.server.answers["/age"] = lambda _: answer_rss("a", "1", cache_control="max-age=10800")
    bench.server.answers["/ttl"] = lambda _: answer_rss("b", "1", extra="<ttl>240</ttl>")
    aged, slow = await bench.add("/age"), await bench.add("/ttl")
    async with bench.run_worker():
        await bench.wait_for_status(aged, "success")
        await bench.wait_for_status(slow, "success")
        assert abs(await next_tick(bench, aged.id) - time.time() - 10800) < 30
        assert abs(await next_tick(bench, slow.id) - time.time() - 4 * 3600) < 30
        await bench.feeds.refresh(aged)
        await bench.wait_for_runs(aged, 2)
    assert (await bench.get(slow)).state.next_reason == "ttl"


async def test_a_permanent_redirect_is_stored_after_five_answers_over_a_day(bench: FeedBench) -> None:
    bench.server.answers["/old"] = lambda _: web.Response(status=301, headers={"location": "/new"})
    feed = await bench.add("/old")
    async with bench.run_worker():
        for runs in range(1, 6):
            seen = await bench.wait_for_runs(feed, runs)
            assert (seen.url.endswith("/old"), seen.state.redirect_count) == (True, runs)
            if runs == 5:
                await bench.feeds.store.set_state(feed, redirect_since=time.time() - DAY_SECONDS - 1)
            await bench.feeds.refresh(feed)
        stored = await bench.wait_for_runs(feed, 6)
        assert (stored.url, stored.state.redirect_url) == (bench.server.url("/new"), None)
        await bench.feeds.refresh(stored)
        await bench.wait_for_runs(feed, 7)
    assert "if-none-match" in bench.server.log[-1].headers


async def test_a_redirect_takes_a_unit_of_the_site_that_it_leads_to_s3(tmp_path: Path) -> None:
    async with bench_in(tmp_path, site_seconds=1.0) as bench:
        target = bench.server.url("/c", "127.0.4.2")
        bench.server.answers["/a"] = lambda _: web.Response(status=302, headers={"location": target})
        feeds = [await bench.add("/a", host="127.0.4.1"), await bench.add("/b", host="127.0.4.2")]
        async with bench.run_worker():
            for feed in feeds:
                await bench.wait_for_status(feed, "success")
        assert {seen.path for seen in bench.server.log} == {"/a", "/b", "/c"}
        assert min(site_gaps(bench.server.log)) >= 1.0
        assert (await bench.get(feeds[0])).url.endswith("/a")  # a 302 is never stored


async def test_a_redirect_that_its_own_slow_site_cannot_serve_is_a_failure(tmp_path: Path) -> None:
    async with bench_in(tmp_path, site_seconds=60.0) as bench:
        bench.server.answers["/old"] = lambda _: web.Response(status=301, headers={"location": "/new"})
        feed = await bench.add("/old")
        async with bench.run_worker():
            failed = await bench.wait_for_status(feed, "failed")
        assert bench.server.url("/new") in str(failed.last_fetch_error)
        assert [seen.path for seen in bench.server.log] == ["/old"]
        assert abs(await next_tick(bench, feed.id) - time.time() - 3600) < 30


async def test_a_feed_found_in_a_page_of_a_slow_site_waits_for_its_turn_s3(tmp_path: Path) -> None:
    page = '<html><head><link rel="alternate" type="application/rss+xml" href="/real"></head></html>'
    async with bench_in(tmp_path, site_seconds=6.0) as bench:
        bench.server.answers["/page"] = lambda _: web.Response(text=page, content_type="text/html")
        feed = await bench.add("/page")
        async with bench.run_worker():
            done = await bench.wait_for_status(feed, "success")
        assert done.url == bench.server.url("/real")
        assert min(site_gaps(bench.server.log)) >= 6.0


async def test_a_redirect_never_leads_onto_another_feed(bench: FeedBench) -> None:
    bench.server.answers["/old"] = lambda _: web.Response(status=301, headers={"location": "/new"})
    feed, _ = await bench.add("/old"), await bench.add("/new")
    since = time.time() - DAY_SECONDS - 1
    await bench.feeds.store.set_state(
        feed, redirect_url=bench.server.url("/new"), redirect_count=8, redirect_since=since
    )
    async with bench.run_worker():
        await bench.wait_for_status(feed, "success")
    assert (await bench.get(feed)).url.endswith("/old")


async def test_a_mended_url_recovers_by_itself(bench: FeedBench) -> None:
    bench.server.answers["/wrong"] = lambda _: web.Response(status=404)
    feed = await bench.add("/wrong")
    async with bench.run_worker():
        failed = await bench.wait_for_status(feed, "failed")
        await bench.feeds.change(failed, url=bench.server.url("/right"))
        done = await bench.wait_for_status(feed, "success")
    assert (done.state.failures, done.last_fetch_error) == (0, None)


async def test_a_feed_deleted_during_its_refresh_gets_no_next_run_s11(bench: FeedBench) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(_: SeenRequest) -> web.Response:
        entered.set()
        await leave.wait()
        return answer_rss("潮汐", "一")

    bench.server.answers["/feed"] = slow
    feed = await bench.add()
    async with bench.run_worker():
        await entered.wait()
        await bench.feeds.delete(feed)
        leave.set()
        [job] = await until(lambda: bench.jobs(states=(State.DONE,)))
    assert b"deleted" in (job.result or b"")
    with pytest.raises(ScheduleNotFound):
        await bench.app.schedules.get(schedule_name(feed.id))
    assert await bench.feeds.articles.count(feed.id) == 0


async def test_a_changed_interval_moves_the_next_run_s7(bench: FeedBench) -> None:
    feed = await bench.add()
    async with bench.run_worker():
        done = await bench.wait_for_status(feed, "success")
        await bench.feeds.change(done, refresh_interval=120)
    assert abs(await next_tick(bench, feed.id) - time.time() - 7200) < 30


async def test_slow_feeds_use_two_slots_of_five(tmp_path: Path) -> None:
    waiting: set[str] = set()
    most = 0

    async def slow(seen: SeenRequest) -> web.Response:
        nonlocal most
        waiting.add(seen.path)
        most = max(most, len(waiting))
        await asyncio.sleep(0.3)
        waiting.discard(seen.path)
        return answer_rss(seen.path, "一")

    async with bench_in(tmp_path, check_seconds=60) as bench:
        feeds = []
        for number in range(5):
            bench.server.answers[f"/slow{number}"] = slow
            feed = await bench.add(f"/slow{number}", host=f"127.0.1.{number + 1}")
            await bench.feeds.store.set_state(feed, timed_out=True)
            feeds.append(await bench.get(feed))
        await bench.feeds.schedules.refresh_now(feeds, "manual")
        async with bench.run_worker():
            for feed in feeds:
                await bench.wait_for_status(feed, "success")
    assert most == 2


async def test_our_own_network_blames_no_feed(tmp_path: Path) -> None:
    async with bench_in(tmp_path, attempts=1) as bench:
        feeds = [await bench.add(f"/{number}", host=f"127.0.2.{number + 1}") for number in range(8)]
        for number, feed in enumerate(feeds):
            await bench.change(feed, url=f"http://127.0.2.{number + 1}:1/feed")
        async with bench.run_worker():

            async def snoozed() -> bool:
                return (await bench.feeds.history.connections(time.time())).failed >= 8

            await until(snoozed)
        statuses = [(await bench.get(feed)).last_fetch_status for feed in feeds]
        assert statuses.count("failed") <= 4
        assert (await bench.feeds.history.connections(time.time())).network_down
