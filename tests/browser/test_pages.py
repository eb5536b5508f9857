"""Every page there is, as people look at it: on a desk, on a phone, in the dark, by ear, and with names in it
that are scripts. The names are long and without blanks: a page that holds them holds anything."""

from __future__ import annotations

import pytest
from playwright.async_api import ViewportSize

from tests.browser.conftest import Opens
from tests.browser.site import Site
from tests.browser.window import heard, issues, too_wide
from tests.web.world import World
from tidemill.web.table import page_routes

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
async def test_a_page(path: str, opens: Opens, harmed: World, harmed_site: Site) -> None:
    window = await opens(harmed_site, viewport=DESK)
    for place in harmed.paths(path):
        if not await window.shows(place):
            continue
        page = await window.open(place)
        await heard(page)
        assert await issues(page) == []
        assert await too_wide(page) == []
        await page.emulate_media(color_scheme="dark")
        await page.set_viewport_size(PHONE)
        assert await issues(page) == []
        assert await too_wide(page) == []
        assert await page.evaluate(HARM) == []
