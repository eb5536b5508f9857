"""What a page has room for on a desk."""

from __future__ import annotations

import pytest
from playwright.async_api import ViewportSize, expect

from tests.browser.conftest import Opens
from tests.browser.site import Site
from tests.browser.studio import Studio
from tests.browser.test_pages import DESK
from tests.browser.window import heard
from tidemill import JobFailed

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

LINES = """(cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell.firstChild);
    return new Set([...range.getClientRects()].map((each) => Math.round(each.top))).size;
}"""


async def test_a_task_is_named_on_one_line_beside_notes_or_none(
    studio: Studio, site: Site, opens: Opens
) -> None:
    window = await opens(site, viewport=DESK)
    await studio.caption.enqueue("a film")
    with pytest.raises(JobFailed):
        await (await studio.post.enqueue("nobody " * 60)).result()
    for path in ("/jobs?task=caption-films-in-two-languages", "/jobs"):
        page = await window.open(path)
        await heard(page)
        task = page.locator("td", has_text="caption-films-in-two-languages").first
        await expect(task).to_be_visible()
        assert await task.evaluate(LINES) == 1


async def test_the_foot_of_the_rail_is_seen_however_many_ways_there_are(site: Site, opens: Opens) -> None:
    window = await opens(site, viewport=DESK)
    page = await window.open("/")
    await heard(page)
    await page.evaluate(
        """() => {
            const all = [...document.querySelectorAll("#ways nav > div")];
            for (const each of all.slice(0, 2)) each.parentElement.append(each.cloneNode(true));
        }"""
    )
    keys = page.locator("[data-opens=keys]")
    await expect(keys).to_be_in_viewport(ratio=1)
    await page.locator("#ways nav a").last.focus()
    await expect(page.locator("#ways nav a").last).to_be_in_viewport(ratio=0.9)
    await expect(keys).to_be_in_viewport(ratio=1)


async def test_the_ways_of_an_application_are_seen_on_a_low_window(site: Site, opens: Opens) -> None:
    window = await opens(site, viewport=ViewportSize(width=1280, height=800))
    page = await window.open("/")
    await heard(page)
    await expect(page.locator("#ways nav a").last).to_be_in_viewport(ratio=1)
    await expect(page.locator("[data-language-choice]")).to_be_in_viewport(ratio=1)
