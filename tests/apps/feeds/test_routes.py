"""The HTTP API of feeds: what it answers, and what it refuses without a change."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.apps.feeds.feed_server import SeenRequest, answer_rss, feed_server
from tests.apps.feeds.service_kit import FeedBench, until
from tests.apps.feeds.web_kit import ANONYMOUS, OPERATOR, VIEWER, FeedSite, site_in
from tidemill import State

pytestmark = pytest.mark.timeout(60)
OPML = """<?xml version="1.0"?><opml version="2.0"><body><outline text="新闻">
<outline type="rss" text="潮汐" xmlUrl="{0}"/><outline type="rss" text="b" xmlUrl="{1}"/>
<outline type="rss" text="file" xmlUrl="file:///etc/passwd"/></outline></body></opml>"""


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FeedSite]:
    async with site_in(tmp_path) as site:
        yield site


async def add(site: FeedSite, path: str = "/feed", **more: object) -> str:
    answer = await site.call("POST", "/api/feeds", {"url": site.bench.server.url(path), **more})
    assert answer.status == 200, answer.text
    return str(answer.json["id"])


async def test_a_feed_is_added_refreshed_and_listed(site: FeedSite) -> None:
    feed = await add(site, refreshInterval=5)
    async with site.bench.run_worker():

        async def done() -> bool:
            answer = await site.call("GET", f"/api/feeds/{feed}", who=VIEWER)
            return bool(answer.json["lastFetchStatus"] == "success")

        await until(done)
    [shown] = (await site.call("GET", "/api/feeds?status=success", who=VIEWER)).json
    assert (shown["refreshInterval"], shown["nextReason"], shown["successes"]) == (5, "interval", 1)
    assert (await site.call("GET", "/api/feeds?status=failed", who=VIEWER)).json == []
    history = (await site.call("GET", f"/api/feeds/{feed}/history", who=VIEWER)).json
    assert [hour["successes"] for hour in history["hours"]] == [1]
    assert [article["text"] for article in history["articles"]] == ["text of item-feed"]


async def test_refresh_now_runs_within_five_seconds_s19(site: FeedSite) -> None:
    feed = await add(site)
    async with site.bench.run_worker():

        async def requests(count: int) -> bool:
            return len(site.bench.server.log) >= count

        await until(lambda: requests(1))
        await until(lambda: site.bench.jobs(states=(State.DONE,)))
        began = time.monotonic()
        assert (await site.call("POST", f"/api/feeds/{feed}/refresh", who=OPERATOR)).status == 200
        await until(lambda: requests(2))
        assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"url": "nothing"}, "url"),
        ({"url": "ftp://a.example/feed"}, "url"),
        ({"url": "http://user:secret@a.example/feed"}, "url"),
        ({"url": "http://a.example/", "refreshInterval": 0}, "refreshInterval"),
        ({"url": "http://a.example/", "refreshInterval": 10_081}, "refreshInterval"),
        ({"url": "http://a.example/", "interval": 5}, "interval"),
        ({}, "url"),
    ],
)
async def test_bad_input_names_its_field_and_changes_nothing(
    site: FeedSite, body: dict[str, object], field: str
) -> None:
    answer = await site.call("POST", "/api/feeds", body)
    assert answer.status in (400, 422)
    assert field in answer.text
    assert "secret" not in answer.text
    assert (await site.call("GET", "/api/feeds")).json == []
    assert await site.bench.jobs() == ()


async def test_a_url_that_exists_is_refused(site: FeedSite) -> None:
    await add(site)
    answer = await site.call("POST", "/api/feeds", {"url": site.bench.server.url("/feed")})
    assert (answer.status, answer.json["field"]) == (409, "url")
    other = await add(site, "/other")
    answer = await site.call("PATCH", f"/api/feeds/{other}", {"url": site.bench.server.url("/feed")})
    assert (answer.status, answer.json["field"]) == (422, "url")


@pytest.mark.parametrize("feed", ["seven", "6f1c2a54-2f0e-4a57-9f5e-0d2b0a7f9a11"])
async def test_an_unknown_feed_is_404(site: FeedSite, feed: str) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/refresh"), ("GET", "/history")):
        answer = await site.call(method, f"/api/feeds/{feed}{path}")
        assert (answer.status, answer.json["field"]) == (404, "id")
    chinese = await site.call("GET", f"/api/feeds/{feed}", accept_language="zh")
    assert "没有订阅源" in chinese.text


async def test_a_change_moves_the_next_run_and_a_delete_ends_it_s7(site: FeedSite) -> None:
    feed = await add(site)
    changed = await site.call("PATCH", f"/api/feeds/{feed}", {"refreshInterval": 30, "title": "新"})
    assert (changed.json["refreshInterval"], changed.json["title"]) == (30, "新")
    assert (await site.call("DELETE", f"/api/feeds/{feed}")).status in (200, 204)
    assert (await site.call("GET", f"/api/feeds/{feed}")).status == 404
    assert (await site.bench.app.schedules.list()).schedules == ()


async def test_pause_and_resume(site: FeedSite) -> None:
    feed = await add(site)
    paused = await site.call("POST", f"/api/feeds/{feed}/pause", {"reason": "too loud"}, who=OPERATOR)
    assert (paused.json["paused"], paused.json["nextReason"], paused.json["nextAt"]) == (True, "paused", None)
    resumed = await site.call("POST", f"/api/feeds/{feed}/resume", who=OPERATOR)
    assert (resumed.json["paused"], resumed.json["nextReason"]) == (False, "new")


async def test_roles(site: FeedSite) -> None:
    feed = await add(site)
    assert (await site.call("GET", "/api/feeds", who=ANONYMOUS)).status == 401
    assert (await site.call("POST", "/api/feeds", {"url": "http://a.example/"}, who=OPERATOR)).status == 403
    assert (await site.call("DELETE", f"/api/feeds/{feed}", who=OPERATOR)).status == 403
    assert (await site.call("POST", f"/api/feeds/{feed}/refresh", who=VIEWER)).status == 403


async def test_a_viewer_sees_no_query_values(site: FeedSite) -> None:
    feed = await add(site, "/feed?key=geheim")
    assert "geheim" in (await site.call("GET", f"/api/feeds/{feed}")).text
    for path in (f"/api/feeds/{feed}", "/api/feeds", "/api/feeds/opml"):
        assert "geheim" not in (await site.call("GET", path, who=VIEWER)).text


async def test_opml_is_imported_with_progress_and_exported(site: FeedSite) -> None:
    server = site.bench.server
    server.answers["/b"] = lambda _: web.Response(status=404)
    document = OPML.format(server.url("/a"), server.url("/b"))
    done = (await site.call("POST", "/api/feeds/opml", {"opml": document})).json
    assert (done["added"], done["known"], len(done["refused"])) == (2, 0, 1)
    path = f"/api/feeds/imports/{done['importId']}"
    assert (await site.call("GET", path)).json == {"total": 2, "fetched": 0, "failed": 0}
    async with site.bench.run_worker():

        async def fetched() -> bool:
            return bool((await site.call("GET", path)).json["fetched"] == 2)

        await until(fetched)
    assert (await site.call("GET", path)).json == {"total": 2, "fetched": 2, "failed": 1}
    exported = (await site.call("GET", "/api/feeds/opml")).text
    assert server.url("/a") in exported
    again = (await site.call("POST", "/api/feeds/opml", {"opml": exported})).json
    assert (again["added"], again["known"]) == (0, 2)


@pytest.mark.parametrize(
    "document",
    [
        "no XML at all",
        "<html></html>",
        "<opml><body/></opml>",
        '<!DOCTYPE a [<!ENTITY b "c">]><opml>&b;</opml>',
        "x" * 2_000_001,
        "<opml>" + "".join(f'<outline xmlUrl="http://a/{n}"/>' for n in range(5001)) + "</opml>",
    ],
    ids=["text", "html", "empty", "entities", "bytes", "outlines"],
)
async def test_a_document_that_is_no_opml_is_refused_with_a_remedy(site: FeedSite, document: str) -> None:
    answer = await site.call("POST", "/api/feeds/opml", {"opml": document})
    assert (answer.status, answer.json["field"]) == (422, "opml")
    assert ";" in answer.json["detail"]
    assert (await site.call("GET", "/api/feeds")).json == []


async def test_the_worker_route_says_whether_one_runs_s12(site: FeedSite) -> None:
    assert (await site.call("GET", "/api/worker")).json == {"status": "stopped", "concurrency": 5}
    async with site.bench.run_worker():

        async def running() -> bool:
            return bool((await site.call("GET", "/api/worker")).json["status"] == "running")

        await until(running)


async def test_a_webhook_says_what_was_refreshed_s16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBHOOK_SECRET", "s" * 32)
    monkeypatch.setenv("TIDEMILL_WEBHOOKS_ALLOW", "127.0.0.0/8")
    async with feed_server() as server:
        server.answers["/feed"] = lambda _: answer_rss("潮汐", "一", "二")
        server.answers["/hook"] = lambda _: web.Response()
        bench = FeedBench(tmp_path, server, webhook_url=server.url("/hook"))
        async with bench.app:
            await bench.feeds.store.prepare()
            feed = await bench.add("/feed")
            async with bench.run_worker():

                async def delivered() -> list[SeenRequest]:
                    return server.requests("/hook")

                [delivery] = await until(delivered)
            await bench.feeds.close()
    expected = {"event": "feed.refreshed", "feedId": feed.id, "articleCount": 2}
    assert (
        expected.items() <= {**json.loads(delivery.body), **json.loads(delivery.body).get("data", {})}.items()
    )
