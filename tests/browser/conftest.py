"""One browser, and the dashboards it looks at, for all tests of a process."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from tests.browser.harm import harmful
from tests.browser.site import Site
from tests.browser.studio import Studio
from tests.browser.window import PATIENCE, Window
from tests.web.world import World

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Opens(Protocol):
    def __call__(self, site: Site, **options: Any) -> Awaitable[Window]: ...


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The system's own: nothing is downloaded."""
    chromium = shutil.which("chromium")
    assert chromium, "chromium is missing: scripts/test installs it, or sudo apt-get install chromium"
    expect.set_options(timeout=PATIENCE)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=[*FLAGS])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def studio(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Studio]:
    folder = tmp_path_factory.mktemp("studio")
    studio = Studio(f"sqlite:///{folder / 'studio.db'}", folder)
    async with studio.app:
        yield studio


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(studio: Studio, browser: Browser) -> AsyncIterator[Site]:
    """`tidemill up`: a worker and its dashboard."""
    with Site(studio.folder, "up", "tests.browser.running:app") as site:
        await site.sign_in(browser)
        yield site


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def harmed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A world of somebody who means harm."""
    folder = tmp_path_factory.mktemp("harm")
    harmed = World(f"sqlite:///{folder / 'harm.db'}", harmful)
    async with harmed.app:
        await harmed.begin()
        harmed.places = {**harmed.places, "job": (*harmed.places["job"], await harmed.run())}
        yield harmed


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def harmed_site(harmed: World, browser: Browser) -> AsyncIterator[Site]:
    """`tidemill web`: a dashboard by itself, and nothing moves."""
    with Site(Path(harmed.app.url.path).parent, "web", "tests.browser.harm:app") as site:
        await site.sign_in(browser)
        yield site


@pytest_asyncio.fixture(loop_scope="session")
async def opens(browser: Browser) -> AsyncIterator[Opens]:
    """Windows of somebody who is signed in. When the test is over nothing may have gone wrong in any."""
    windows: list[Window] = []

    async def opens(site: Site, **options: Any) -> Window:
        windows.append(await site.window(browser, **options))
        return windows[-1]

    yield opens
    for window in windows:
        await window.close()
    assert [trouble for window in windows for trouble in window.troubles] == []
