"""The pages in a browser, with hostile feeds: desk and phone, English and Chinese, light and dark."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from html import escape
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, Page, expect

from tests.apps.feeds.feed_server import RSS_TYPE, FeedServer, feed_server
from tests.browser.conftest import browser  # noqa: F401 - a fixture
from tests.browser.script_injection import script_value
from tests.browser.site import Site
from tests.browser.test_layout import HARM
from tests.browser.window import accessibility_issues, overflowing_elements, wait_for_live

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

DESK, PHONE = (1280, 800), (390, 844)
SETTINGS = """[applications.feeds]
allowed_addresses = ["127.0.0.0/8"]
site_seconds = 0.01
jitter = 0.4
"""
SCHEMES = """() => [...document.querySelectorAll("[href], [src], [action]")].map((each) => {
    const given = each.getAttribute("href") ?? each.getAttribute("src") ?? each.getAttribute("action");
    return new URL(given, location.href).protocol;
})"""
REFUSED_URL = f"javascript:harmed=1//{script_value('outline')}"
"""No URL of a feed, but another program may write it into the table."""


class FeedBrowserSite(NamedTuple):
    """The running application. `paths` are its pages; `server` answers for the sites."""

    site: Site
    server: FeedServer
    folder: Path
    paths: tuple[str, ...]


def hostile_rss(_: object = None) -> web.Response:
    """Returns a feed in which title, link and content are scripts."""
    items = "".join(
        f"<item><title>{escape(script_value('title'))}</title><guid>{number}</guid><link>{escape(link)}</link>"
        f"<description>{escape('<b>bold</b>' + script_value('content'))}</description></item>"
        for number, link in enumerate(
            ("javascript:harmed=2", "data:text/html,<script>harmed=3</script>", "http://a.example/?q=\"'><b>")
        )
    )
    channel = f"<channel><title>{escape(script_value('feed'))}</title>{items}</channel>"
    return web.Response(text=f'<rss version="2.0">{channel}</rss>', content_type=RSS_TYPE)


async def add_feed(page: Page, site: Site, url: str) -> str:
    """Adds a feed by the dialog, waits for its first refresh, and returns the path of its page."""
    await page.goto(f"{site.address}/feeds")
    await page.click("[data-opens-dialog=add]")
    await page.fill("#add input[name=url]", url)
    await page.click("#add button.primary")
    await page.wait_for_url("**/feeds/*-*")
    return page.url.removeprefix(site.address).partition("?")[0]


def write_rows(folder: Path, feed_id: str) -> None:
    """Writes an error, a link and a URL as another program could."""
    with closing(sqlite3.connect(folder / "feeds.db")) as database, database:
        database.execute("UPDATE articles SET url = 'javascript:harmed=4' WHERE url LIKE 'http://a.example%'")
        values = (script_value("error"), REFUSED_URL, feed_id)
        changed = database.execute("UPDATE feeds SET last_fetch_error = ?, url = ? WHERE id = ?", values)
        assert changed.rowcount == 1


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pages(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FeedBrowserSite]:  # noqa: F811 - it is that one
    folder: Path = tmp_path_factory.mktemp("feeds")
    (folder / "tidemill.toml").write_text(SETTINGS)
    async with feed_server() as server:
        server.answers["/hostile"] = server.answers["/changed"] = hostile_rss
        server.answers["/wait"] = lambda _: web.Response(status=429, headers={"retry-after": "3600"})
        with Site(folder, "up", "tidemill_apps.feeds.app:app") as site:
            await site.sign_in(browser)
            window = await site.window(browser)
            page = await window.open("/feeds")
            hostile = await add_feed(page, site, server.url(f"/hostile?{'long-query' * 20}=1"))
            changed = await add_feed(page, site, server.url("/changed", "127.0.0.2"))
            for path in (hostile, changed):
                await page.goto(f"{site.address}{path}")
                await page.wait_for_selector("article")
            write_rows(folder, changed.rpartition("/")[2])
            waiting = await add_feed(page, site, server.url("/wait", "127.0.0.3"))
            await window.close()
            assert window.troubles == []
            yield FeedBrowserSite(site, server, folder, ("/feeds", hostile, changed, waiting, "/feeds/opml"))


@pytest.mark.parametrize(
    ("size", "theme"), [(DESK, "light"), (PHONE, "dark")], ids=["desk-light", "phone-dark"]
)
@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
async def test_nothing_is_cut_off_unreadable_or_executed(
    pages: FeedBrowserSite,
    browser: Browser,  # noqa: F811 - as above
    size: tuple[int, int],
    theme: str,
    language: str,
) -> None:
    width, height = size
    options = {"viewport": {"width": width, "height": height}, "locale": language, "color_scheme": theme}
    window = await pages.site.window(browser, **options)
    for path in pages.paths:
        page = await window.open(path)
        await wait_for_live(page)
        assert await overflowing_elements(page) == []
        assert await accessibility_issues(page) == []
        assert await page.evaluate(HARM) == []
        assert set(await page.evaluate(SCHEMES)) <= {"http:", "https:"}
        await page.close()
    await window.close()
    assert window.troubles == []


async def test_the_dialog_is_readable_on_a_phone(pages: FeedBrowserSite, browser: Browser) -> None:  # noqa: F811 - as above
    viewport = {"width": PHONE[0], "height": PHONE[1]}
    window = await pages.site.window(browser, viewport=viewport, locale="zh-CN")
    page = await window.open("/feeds")
    await page.click("[data-opens-dialog=add]")
    await expect(page.locator("#add")).to_be_in_viewport(ratio=1)
    assert await accessibility_issues(page) == []
    await window.close()
    assert window.troubles == []


async def test_a_feed_is_added_refreshed_and_paused(pages: FeedBrowserSite, browser: Browser) -> None:  # noqa: F811 - as above
    window = await pages.site.window(browser, locale="en-GB")
    page = await window.open("/feeds")
    await add_feed(page, pages.site, pages.server.url("/tides", "127.0.0.4"))
    await expect(page.get_by_role("heading", name="item-tides")).to_be_visible()
    await expect(page.get_by_text("interval of 60 min")).to_be_visible()
    await page.get_by_role("button", name="Refresh now").click()
    await expect(page.get_by_text("Refreshes: 2")).to_be_visible()
    assert len(pages.server.requests("/tides")) == 2
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_text("Next refresh: paused")).to_be_visible()
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    await window.close()
    assert window.troubles == []


async def test_an_import_names_the_first_refused_outline(pages: FeedBrowserSite, browser: Browser) -> None:  # noqa: F811 - as above
    imported = pages.server.url("/imported", "127.0.0.5")
    urls = (imported, REFUSED_URL, *(f"file:///{number}" for number in range(30)))
    outlines = "".join(f'<outline text="潮汐" xmlUrl="{escape(url)}"/>' for url in urls)
    window = await pages.site.window(browser, locale="en-GB")
    page = await window.open("/feeds/opml")
    await page.fill("textarea[name=opml]", f"<opml><body>{outlines}</body></opml>")
    await page.get_by_role("button", name="Import").click()
    await expect(
        page.get_by_text("added: 1, known already: 0, refused: 31; the first refused:")
    ).to_be_visible()
    await expect(page.get_by_text("1 of 1 feeds fetched, 0 failed")).to_be_visible()
    assert await overflowing_elements(page) == []
    assert await page.evaluate(HARM) == []
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Export all feeds").click()
    exported = Path(await (await download.value).path()).read_text(encoding="utf-8")
    assert imported in exported
    await window.close()
    assert window.troubles == []
