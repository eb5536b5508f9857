"""One browser, and the dashboards it looks at, for all tests of a process."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from tests.browser.site import Site
from tests.browser.window import PATIENCE, Window

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

Open = Callable[..., Awaitable[Window]]


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
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """`tidemill up`: a worker and its dashboard."""
    site = Site(tmp_path_factory.mktemp("site"), "up")
    async with site.studio.app:
        yield site
    site.end()
