"""Takes screenshots of every page of the dashboard and of the applications for docs/images: `make
screenshots`."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from playwright.async_api import Browser, Page, async_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.apps.feeds.feed_server import AnswerFunction, answer_rss, feed_server  # noqa: E402 - needs the path set above
from tests.browser.conftest import FLAGS  # noqa: E402 - as above

IMAGES = ROOT / "docs" / "images"
FOLDER = IMAGES / "dashboard"
PORT = 8751
HERE = f"http://127.0.0.1:{PORT}"
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}

PLAIN_TEXT = "--disable-lcd-text"
"""Disables coloured subpixels: the images are a third smaller."""

PLACES = {
    "overview": "/",
    "queues": "/queues",
    "queue": "/queues/mail",
    "jobs": "/jobs",
    "dead-letters": "/dead-letters",
    "flows": "/flows",
    "flow": "/flows/dub%2Fthe-tide",
    "schedules": "/schedules",
    "pools": "/pools",
    "pool": "/pools/gemini",
    "plan": "/plan",
    "workers": "/workers",
    "alerts": "/alerts",
    "settings": "/settings",
    "tokens": "/tokens",
    "audit": "/audit",
}


PODCASTS = (
    ("Tide mills", "# How they work\n\nThe rising tide fills a pond.\n\n# Today\n\nSome still grind flour."),
    ("Queues", "# Why\n\nA queue smooths a burst.\n\n# How\n\nA worker takes a job and reports its end."),
)

FEEDS: dict[str, AnswerFunction] = {
    "/tide-mills": lambda _: answer_rss("Tide mills", "The mill of Birlot", "Sluices", "Flour"),
    "/harbour-news": lambda _: answer_rss("Harbour news", "High water", cache_control="max-age=20000"),
    "/river-log": lambda _: answer_rss("River log", "Low water", extra="<ttl>600</ttl>"),
    "/busy": lambda _: web.Response(status=503, headers={"retry-after": "7200"}),
    "/closed": lambda _: web.Response(status=410),
}
FEED_SETTINGS = {"FEEDS_ALLOWED_ADDRESSES": "127.0.0.0/8"}


async def main() -> None:
    async with async_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = await playwright.chromium.launch(executable_path=chromium, args=[*FLAGS, PLAIN_TEXT])
        if "applications" not in sys.argv:
            FOLDER.mkdir(parents=True, exist_ok=True)
            await _dashboard(browser)
        (IMAGES / "applications").mkdir(parents=True, exist_ok=True)
        await _music(browser)
        await _articles(browser)
        await _podcasts(browser)
        await _feeds(browser)


async def _dashboard(browser: Browser) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/sample.db"
        served = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.web.sample_app_full", store, str(PORT)), cwd=ROOT, stderr=DEVNULL
        )
        try:
            await _take_all(browser)
        finally:
            served.kill()
            await served.wait()


async def _music(browser: Browser) -> None:
    """Takes the music page when half of the songs are described. Windows of two seconds shorten the wait."""
    quick = {"MUSIC_MINUTE_SECONDS": "2"}
    async with _up("music", quick) as link:
        page = await _signed_in(browser, link)
        await page.goto(f"{HERE}/music")
        await page.locator("form[action$='/music/start'] button.primary").click()
        await page.wait_for_timeout(12_000)
        await _take_of(page, "music")


async def _articles(browser: Browser) -> None:
    async with _up("articles", {}) as link:
        page = await _signed_in(browser, link)
        await page.goto(f"{HERE}/articles")
        await page.locator("form[action$='/articles/samples'] button").click()
        await page.wait_for_timeout(4000)
        await _take_of(page, "articles")


async def _podcasts(browser: Browser) -> None:
    """Takes the list of podcasts, and an episode on a phone."""
    async with _up("podcasts", {"TIDEMILL_WEB_PUBLIC_URL": HERE}) as link:
        page = await _signed_in(browser, link)
        for title, text in PODCASTS:
            await page.goto(f"{HERE}/podcasts/new")
            await page.fill("input[name=title]", title)
            await page.fill("textarea[name=text]", text)
            await page.click("form[action$='/podcasts/create'] button.primary")
            await page.locator("audio").wait_for()
        await _take_of(page, "podcasts")
        await page.set_viewport_size(PHONE)
        await page.goto(f"{HERE}/podcasts/2")
        await page.screenshot(path=IMAGES / "applications" / "podcasts-on-a-phone.png")


async def _feeds(browser: Browser) -> None:
    """Takes the list of feeds, and one feed on a phone."""
    async with feed_server() as server, _up("feeds", FEED_SETTINGS) as link:
        server.answers.update(FEEDS)
        page = await _signed_in(browser, link)
        places = []
        for number, path in enumerate(FEEDS, start=1):
            await page.goto(f"{HERE}/feeds")
            await page.click("[data-opens-dialog=add]")
            await page.fill("#add input[name=url]", server.url(path, f"127.0.0.{number}"))
            await page.click("#add button.primary")
            await page.locator("[sse-swap=runs] table").wait_for()
            places.append(page.url.partition("?")[0])
        await _take_of(page, "feeds")
        await page.set_viewport_size(PHONE)
        await page.goto(places[0])
        await page.screenshot(path=IMAGES / "applications" / "feeds-on-a-phone.png")


async def _take_of(page: Page, application: str) -> None:
    """Takes the application's page as it is now, with the user's name replaced."""
    await page.goto(f"{HERE}/{application}")
    await page.locator('.live-state[data-state="live"]').wait_for()
    await page.evaluate("document.querySelector('.sidebar-footer strong').textContent = 'ada'")
    await page.screenshot(path=IMAGES / "applications" / f"{application}.png")


@asynccontextmanager
async def _up(application: str, environment: dict[str, str]) -> AsyncIterator[str]:
    """Runs `tidemill up` in an empty folder; yields the sign-in link."""
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "tidemill", "up", application, "--port", str(PORT))
        served = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env={**os.environ, **environment}, stderr=PIPE
        )
        try:
            yield await _link(served)
        finally:
            served.terminate()
            await served.communicate()


async def _signed_in(browser: Browser, link: str) -> Page:
    page = await _window(browser, viewport=DESK)
    await page.goto(link)
    await page.locator("main button.primary").click()
    return page


async def _link(served: asyncio.subprocess.Process) -> str:
    assert served.stderr is not None  # noqa: S101 - the pipe was requested
    async for line in served.stderr:
        if found := re.search(r"http://\S+/sign-in/\S+", line.decode()):
            return found[0]
    raise RuntimeError("it ended before it said where it is")


async def _take_all(browser: Browser) -> None:
    page = await _window(browser, viewport=DESK)
    await _answers(page)
    await _steer(page)
    for name, path in PLACES.items():
        await _take(page, path, name)
    await page.goto(f"{HERE}/jobs?state=failed")
    failed = await page.locator("tbody th a").first.get_attribute("href") or ""
    await page.goto(f"{HERE}/jobs?state=ready&queue=metadata")
    waiting = await page.locator("tbody th a").first.get_attribute("href") or ""
    await _take(page, waiting, "job")
    await _take(await _window(browser, viewport=PHONE), failed, "job-on-a-phone")
    await _take(await _window(browser, viewport=DESK, color_scheme="dark"), "/", "overview-dark")
    await _take(await _window(browser, viewport=DESK, locale="zh-CN"), "/", "overview-chinese")


async def _window(browser: Browser, **options: Any) -> Page:
    return await (await browser.new_context(**{"locale": "en-GB", **options})).new_page()


async def _answers(page: Page) -> None:
    """Waits until the sample answers. It simulates a day first."""
    for _ in range(600):
        try:
            await page.goto(f"{HERE}/healthz")
        except Exception:  # noqa: BLE001 - not ready yet
            await asyncio.sleep(0.2)
        else:
            return
    raise TimeoutError("the sample does not answer")


async def _steer(page: Page) -> None:
    """Pauses and resumes a queue, so that the audit log has entries."""
    for button in ("Pause", "Resume"):
        await page.goto(f"{HERE}/queues/embed")
        await page.locator("main .page-head").get_by_role("button", name=button).click()
        if button == "Pause":
            await page.locator("#pause .primary").click()
        await page.locator("p.notice").first.wait_for()


async def _take(page: Page, path: str, name: str) -> None:
    await page.goto(f"{HERE}{path}")
    if await page.locator(".live-state").count():
        await page.locator('.live-state[data-state="live"]').wait_for()
    await page.wait_for_timeout(700)
    await page.screenshot(path=FOLDER / f"{name}.png")


if __name__ == "__main__":
    asyncio.run(main())
