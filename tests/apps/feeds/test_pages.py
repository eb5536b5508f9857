"""The pages of feeds: their content, their forms, both languages, and nothing that a feed could inject."""

from __future__ import annotations

import re
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from aiohttp import web

from tests.apps.feeds.feed_server import RSS_TYPE
from tests.apps.feeds.web_kit import OPERATOR, VIEWER, FeedSite, site_in
from tidemill_apps.feeds import service
from tidemill_apps.feeds.due_times import DelayReason

pytestmark = pytest.mark.timeout(60)
FOLDER = Path(service.__file__).parent
HOSTILE = """<?xml version="1.0"?><rss version="2.0"><channel>
<title>&lt;script&gt;alert(1)&lt;/script&gt;</title>
<item><title>&lt;img src=x onerror=alert(2)&gt;</title><link>javascript:alert(3)</link><guid>1</guid>
<description>&lt;b&gt;bold&lt;/b&gt;&lt;script&gt;alert(4)&lt;/script&gt;</description></item></channel></rss>"""


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FeedSite]:
    async with site_in(tmp_path) as site:
        yield site


async def test_a_feed_is_added_changed_and_deleted_by_forms(site: FeedSite) -> None:
    assert "No feeds here" in (await site.page("/feeds")).text
    form = urlencode({"url": site.bench.server.url("/feed"), "title": "潮汐", "refreshInterval": "30"})
    added = await site.press("/feeds/add", form)
    assert added.status == 303
    path = added.headers["location"]
    shown = (await site.page(path)).text
    assert "潮汐" in shown
    assert "new feed" in shown
    assert "新订阅源" in (await site.page(path, "zh")).text
    changed = urlencode({"url": site.bench.server.url("/feed"), "title": "新", "refreshInterval": "90"})
    assert (await site.press(f"{path}/save", changed)).status == 303
    [feed] = await site.bench.feeds.store.find()
    assert (feed.title, feed.refresh_interval) == ("新", 90)
    for action in ("pause", "resume", "refresh"):
        assert (await site.press(f"{path}/{action}", who=OPERATOR)).status == 303
    assert (await site.press(f"{path}/delete")).status == 303
    assert await site.bench.feeds.store.find() == []


async def test_a_feed_cannot_inject_markup_or_links(site: FeedSite) -> None:
    site.bench.server.answers["/feed"] = lambda _: web.Response(text=HOSTILE, content_type=RSS_TYPE)
    feed = await site.bench.add("/feed")
    async with site.bench.run_worker():
        await site.bench.wait_for_status(feed, "success")
    for path in ("/feeds", f"/feeds/{feed.id}"):
        text = (await site.page(path, who=VIEWER)).text
        assert not re.search(r"<script>alert|<img src=x|href=\"javascript:|<b>bold", text)


async def test_the_page_shows_state_next_run_and_why(site: FeedSite) -> None:
    site.bench.server.answers["/gone"] = lambda _: web.Response(status=410)
    feed = await site.bench.add("/gone")
    async with site.bench.run_worker():
        await site.bench.wait_for_status(feed, "failed")
    text = (await site.page("/feeds", who=VIEWER)).text
    assert "gone (410)" in text
    assert "asked once a week" in text
    assert "410" in text
    assert "每周询问一次" in (await site.page(f"/feeds/{feed.id}", "zh", VIEWER)).text
    assert (await site.page(f"/feeds/{feed.id}", "zh", VIEWER)).text.count("最近 24 小时的刷新")


async def test_opml_has_a_progress_bar(site: FeedSite) -> None:
    outlines = f'<outline xmlUrl="{site.bench.server.url("/a")}"/>'
    form = urlencode({"opml": f"<opml><body>{outlines}</body></opml>"})
    done = await site.press("/feeds/import", form)
    assert done.status == 303
    assert "0 of 1 feeds fetched" in (await site.page(done.headers["location"])).text
    assert (await site.press("/feeds/import", urlencode({"opml": "nothing"}))).status in (303, 422)
    assert len(await site.bench.feeds.store.find()) == 1


def test_both_languages_have_the_same_messages() -> None:
    english, chinese = (
        tomllib.loads((FOLDER / "locales" / f"{language}.toml").read_text(encoding="utf-8"))
        for language in ("en", "zh")
    )
    assert english.keys() == chinese.keys()
    holes = re.compile(r"\{\w+\}")
    for key, text in english.items():
        assert sorted(holes.findall(text)) == sorted(holes.findall(chinese[key])), key
    assert {f"reason_{reason}" for reason in DelayReason} <= english.keys()
