"""Every page on a desktop, on a phone, in the dark theme, and for screen readers, with scripts as names.

The names are long and have no spaces, so a page that fits them fits any name."""

from __future__ import annotations

import pytest
from playwright.async_api import ViewportSize, expect

from tests.browser.conftest import OpenWindow
from tests.browser.dubbing_app import DubbingApp
from tests.browser.site import Site
from tests.browser.window import accessibility_issues, overflowing_elements, wait_for_live
from tests.web.populated_store import PopulatedStore
from tidemill import JobFailed
from tidemill.web.asgi import page_routes

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

PHONE, DESK = ViewportSize(width=390, height=844), ViewportSize(width=1280, height=900)
HARM = """() => {
    const foreign = "img, iframe, object, embed, base, script:not([src])";
    const scripted = "[href^='javascript:' i], [src^='javascript:' i], [action^='javascript:' i]";
    const acts = (element) => [...element.attributes].some((each) => each.name.startsWith("on"));
    const found = [...document.querySelectorAll(`${foreign}, ${scripted}`)];
    found.push(...[...document.querySelectorAll("*")].filter(acts));
    return [...(window.harmed ? [`${window.harmed} ran`] : []), ...found.map((each) => each.outerHTML)];
}"""
PAGES = [route.path for route in page_routes() if not route.writes]


@pytest.mark.parametrize("path", PAGES)
async def test_a_page(path: str, opens: OpenWindow, harmed: PopulatedStore, harmed_site: Site) -> None:
    window = await opens(harmed_site, viewport=DESK)
    for place in harmed.paths(path):
        if not await window.shows(place):
            continue
        page = await window.open(place)
        await wait_for_live(page)
        assert await accessibility_issues(page) == []
        assert await overflowing_elements(page) == []
        await page.emulate_media(color_scheme="dark")
        await page.set_viewport_size(PHONE)
        assert await accessibility_issues(page) == []
        assert await overflowing_elements(page) == []
        assert await page.evaluate(HARM) == []


pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

LINES = """(cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell.firstChild);
    return new Set([...range.getClientRects()].map((each) => Math.round(each.top))).size;
}"""


async def test_a_task_name_stays_on_one_line(studio: DubbingApp, site: Site, opens: OpenWindow) -> None:
    window = await opens(site, viewport=DESK)
    await studio.caption.enqueue("a film")
    with pytest.raises(JobFailed):
        await (await studio.post.enqueue("nobody " * 60)).result()
    for path in ("/jobs?task=caption-films-in-two-languages", "/jobs"):
        page = await window.open(path)
        await wait_for_live(page)
        task = page.locator("td", has_text="caption-films-in-two-languages").first
        await expect(task).to_be_visible()
        assert await task.evaluate(LINES) == 1


async def test_the_sidebar_footer_stays_visible(site: Site, opens: OpenWindow) -> None:
    window = await opens(site, viewport=DESK)
    page = await window.open("/")
    await wait_for_live(page)
    await page.evaluate(
        """() => {
            const all = [...document.querySelectorAll("#navigation nav > div")];
            for (const each of all.slice(0, 2)) each.parentElement.append(each.cloneNode(true));
        }"""
    )
    keys = page.locator("[data-opens-dialog=keys]")
    await expect(keys).to_be_in_viewport(ratio=1)
    await page.locator("#navigation nav a").last.focus()
    await expect(page.locator("#navigation nav a").last).to_be_in_viewport(ratio=0.9)
    await expect(keys).to_be_in_viewport(ratio=1)


async def test_application_links_are_visible_in_a_low_window(site: Site, opens: OpenWindow) -> None:
    window = await opens(site, viewport=ViewportSize(width=1280, height=800))
    page = await window.open("/")
    await wait_for_live(page)
    await expect(page.locator("#navigation nav a").last).to_be_in_viewport(ratio=1)
    await expect(page.locator("[data-language-choice]")).to_be_in_viewport(ratio=1)
