"""Whatever stands in a field is shown as it stands there, wherever it is shown."""

from __future__ import annotations

import json

import pytest

from tests.browser.conftest import Opens
from tests.browser.harm import harmful
from tests.browser.site import Site
from tests.browser.window import heard
from tests.web.world import FIELDS, World
from tidemill.web.table import page_routes

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

HARM = """() => {
    const foreign = "img, iframe, object, embed, base, script:not([src])";
    const scripted = "[href^='javascript:' i], [src^='javascript:' i], [action^='javascript:' i]";
    const acts = (element) => [...element.attributes].some((each) => each.name.startsWith("on"));
    const found = [...document.querySelectorAll(`${foreign}, ${scripted}`)];
    found.push(...[...document.querySelectorAll("*")].filter(acts));
    return [...(window.harmed ? [`${window.harmed} ran`] : []), ...found.map((each) => each.outerHTML)];
}"""
SHOWN = """() => {
    const told = [...document.querySelectorAll("[title], [aria-label], input")];
    const besides = told.flatMap((each) => [each.title, each.ariaLabel, each.value]);
    return [document.body.textContent, ...besides].join("\\n");
}"""
"""All text of a page, also what only appears under the pointer, to the ear, or in a field."""


async def test_no_page_does_what_a_name_says(opens: Opens, harmed: World, harmed_site: Site) -> None:
    running = await harmed.run()
    paths = [path for route in page_routes() if not route.writes for path in harmed.paths(route.path)]
    window, shown = await opens(harmed_site), ""
    for path in (*paths, f"/jobs/{running}"):
        if not await window.shows(path):
            continue
        page = await window.open(path)
        await heard(page)
        assert await page.evaluate(HARM) == [], path
        shown += await page.evaluate(SHOWN)
        await page.close()
    assert [field for field in FIELDS if not is_in(shown, harmful(field))] == []


def is_in(shown: str, text: str) -> bool:
    """As it is, or as JSON writes it."""
    return text in shown or json.dumps(text)[1:-1] in shown
