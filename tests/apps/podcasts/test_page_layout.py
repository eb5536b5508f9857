"""The pages in a browser: on a desk and on a phone, in English and Chinese, nothing is cut off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.browser.conftest import browser  # noqa: F401 - a fixture
from tests.browser.site import Site
from tests.browser.window import accessibility_issues, overflowing_elements

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

DESK, PHONE = (1280, 800), (390, 844)
TEXT = "# 涨潮\n\n涨潮时水灌满水池。\n\n# Ebb\n\nThe pond turns the wheel when the tide is low."


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:  # noqa: F811 - it is that one
    folder: Path = tmp_path_factory.mktemp("podcasts")
    with Site(folder, "up", "tidemill_apps.podcasts.app:app") as site:
        await site.sign_in(browser)
        window = await site.window(browser)
        page = await window.open("/podcasts/new")
        await page.fill(
            "input[name=title]", "A very long title about tides and mills, 关于潮汐与磨坊的很长的标题"
        )
        await page.fill("textarea[name=text]", TEXT)
        await page.click("button:has-text('Cost and length')")
        await page.wait_for_selector("dl.figures")
        await page.click("button.primary")
        await page.wait_for_selector("audio", timeout=60_000)
        await window.close()
        yield site


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
async def test_nothing_is_cut_off_or_too_wide(
    site: Site,
    browser: Browser,  # noqa: F811 - as above
    size: tuple[int, int],
    language: str,
) -> None:
    width, height = size
    window = await site.window(browser, viewport={"width": width, "height": height}, locale=language)
    for path in ("/podcasts", "/podcasts/new", "/podcasts/1"):
        page = await window.open(path)
        assert await overflowing_elements(page) == []
        assert await accessibility_issues(page) == []
        await page.close()
    await window.close()
    assert window.troubles == []


async def test_the_player_loads_the_audio(site: Site, browser: Browser) -> None:  # noqa: F811 - as above
    window = await site.window(browser)
    page = await window.open("/podcasts/1")
    seconds = await page.evaluate("""() => new Promise((resolve, reject) => {
        const player = document.querySelector("audio");
        player.addEventListener("loadedmetadata", () => resolve(player.duration));
        player.addEventListener("error", () => reject(player.error.message));
        player.preload = "metadata"; player.load();
    })""")
    assert seconds > 3
    await window.close()
    assert window.troubles == []
