"""The layout of the pages in a browser: nothing is cut off, broken in two or wider than the window."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.browser.conftest import browser  # noqa: F401 - a fixture
from tests.browser.site import Site
from tests.browser.window import accessibility_issues, overflowing_elements

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

DESK, PHONE = (1280, 800), (390, 844)
PAGES = ("/music", "/music/plan?sync=True", "/music/search", "/music/songs")
CUT_OFF = """() => [...document.querySelectorAll("main select")].flatMap((select) => {
    const style = getComputedStyle(select), pen = document.createElement("canvas").getContext("2d");
    pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const room = select.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 20;
    const texts = [...select.options].map((option) => option.text);
    return texts.filter((text) => pen.measureText(text).width > room);
})"""
BROKEN = """() => [...document.querySelectorAll("main .figures dd")]
    .filter((figure) => figure.clientHeight > 1.7 * parseFloat(getComputedStyle(figure).lineHeight))
    .map((figure) => figure.textContent.trim())"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:  # noqa: F811 - it is that one
    folder: Path = tmp_path_factory.mktemp("music")
    with Site(folder, "up", "music") as site:
        await site.sign_in(browser)
        yield site


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
async def test_nothing_is_cut_off_broken_or_too_wide(
    site: Site,
    browser: Browser,  # noqa: F811 - as above
    size: tuple[int, int],
    language: str,
) -> None:
    width, height = size
    window = await site.window(browser, viewport={"width": width, "height": height}, locale=language)
    for path in PAGES:
        page: Page = await window.open(path)
        assert await page.evaluate(CUT_OFF) == []
        assert await page.evaluate(BROKEN) == []
        assert await overflowing_elements(page) == []
        assert await accessibility_issues(page) == []
        await page.close()
    await window.close()
    assert window.troubles == []
