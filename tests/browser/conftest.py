"""One browser and its dashboards, shared by all tests of a process."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from tests.browser.dubbing_app import DubbingApp
from tests.browser.script_injection import script_value
from tests.browser.site import Site
from tests.browser.window import TIMEOUT_MILLISECONDS, Window
from tests.web.populated_store import PopulatedStore

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class OpenWindow(Protocol):
    def __call__(self, site: Site, **options: Any) -> Awaitable[Window]: ...


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Starts the system's Chromium; nothing is downloaded."""
    chromium = shutil.which("chromium")
    assert chromium, "chromium is missing: scripts/test installs it, or sudo apt-get install chromium"
    expect.set_options(timeout=TIMEOUT_MILLISECONDS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=[*FLAGS])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def studio(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DubbingApp]:
    folder = tmp_path_factory.mktemp("studio")
    studio = DubbingApp(f"sqlite:///{folder / 'studio.db'}", folder)
    async with studio.app:
        yield studio


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(studio: DubbingApp, browser: Browser) -> AsyncIterator[Site]:
    """`tidemill up`: a worker and its dashboard."""
    with Site(studio.folder, "up", "tests.browser.dubbing_app_entry:app") as site:
        await site.sign_in(browser)
        yield site


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def harmed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PopulatedStore]:
    """A populated store in which every field is a script."""
    folder = tmp_path_factory.mktemp("harm")
    harmed = PopulatedStore(f"sqlite:///{folder / 'harm.db'}", script_value)
    async with harmed.app:
        await harmed.populate()
        harmed.path_values = {**harmed.path_values, "job": (*harmed.path_values["job"], await harmed.run())}
        yield harmed


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def harmed_site(harmed: PopulatedStore, browser: Browser) -> AsyncIterator[Site]:
    """`tidemill web`: a dashboard without a worker, so nothing changes."""
    with Site(Path(harmed.app.url.path).parent, "web", "tests.browser.script_injection:app") as site:
        await site.sign_in(browser)
        yield site


@pytest_asyncio.fixture(loop_scope="session")
async def opens(browser: Browser) -> AsyncIterator[OpenWindow]:
    """Opens signed-in windows. At the end of the test no window may have an error."""
    windows: list[Window] = []

    async def opens(site: Site, **options: Any) -> Window:
        windows.append(await site.window(browser, **options))
        return windows[-1]

    yield opens
    for window in windows:
        await window.close()
    assert [trouble for window in windows for trouble in window.troubles] == []
