"""Open pages show changes without a reload."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.conftest import OpenWindow
from tests.browser.dubbing_app import DubbingApp
from tests.browser.site import Site
from tests.servers.program import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

NOW = ".timeline [aria-current=step]"


async def mark(page: Page) -> None:
    """Marks the page; a reload removes the mark."""
    await page.evaluate("window.marked = true")


async def is_marked(page: Page) -> bool:
    return bool(await page.evaluate("window.marked === true"))


async def test_a_job_from_ready_to_done(opens: OpenWindow, site: Site, studio: DubbingApp) -> None:
    await studio.app.inspect.pause("songs")
    job = await studio.record.enqueue("aria")
    page = await (await opens(site)).open(f"/jobs/{job.id}")
    await mark(page)
    await expect(page.locator(f"{NOW} .state-ready")).to_be_visible()
    await studio.app.inspect.resume("songs")
    await expect(page.locator(f"{NOW} .state-running")).to_be_visible()
    await expect(page.get_by_text("half of it", exact=True)).to_be_visible()
    await expect(page.locator(".log")).to_contain_text("recording aria")
    studio.let_go("aria")
    await expect(page.locator(f"{NOW} .state-done")).to_be_visible()
    await expect(page.get_by_text("aria.wav").first).to_be_visible()
    assert await is_marked(page)


async def test_numbers_of_the_overview_update(opens: OpenWindow, site: Site, studio: DubbingApp) -> None:
    page = await (await opens(site)).open("/")
    await mark(page)
    running = page.locator("a[href*='state=running'] .value")
    before = int(await running.inner_text())
    jobs = [await studio.record.enqueue("duet") for _ in range(3)]
    await expect(running).to_have_text(str(before + 3))
    studio.let_go("duet")
    await expect(running).to_have_text(str(before))
    assert await is_marked(page)
    assert [(await job.status()).state.value for job in jobs] == ["done"] * 3


async def test_the_diagram_of_a_flow_updates(opens: OpenWindow, site: Site, studio: DubbingApp) -> None:
    flow = await studio.begin_film("film")
    page = await (await opens(site)).open(f"/flows/{quote(flow, safe='')}")
    await mark(page)
    steps = page.locator("svg a.step")
    await expect(steps).to_have_count(3)
    await expect(page.locator("svg a.step.state-running")).to_contain_text("extract")
    await expect(page.locator("svg path.edge")).to_have_count(2)
    studio.let_go("film")
    await expect(page.locator("svg a.step.state-done")).to_have_count(3)
    await expect(page.locator("svg a.step").nth(1)).to_contain_text("3 / 3")
    assert await is_marked(page)


async def test_a_lost_server_is_shown_and_the_page_reconnects(browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    with Site(tmp_path, "web", "tests.browser.dubbing_app_entry:app", port=port) as site:
        await site.sign_in(browser)
        window = await site.window(browser)
        page = await window.open("/queues")
        state = page.locator(".live-state")
        await expect(state).to_have_attribute("data-state", "live")
        assert window.troubles == []
    await expect(state).to_have_attribute("data-state", "reconnecting")
    with Site(tmp_path, "web", "tests.browser.dubbing_app_entry:app", port=port):
        await expect(state).to_have_attribute("data-state", "live")
        await window.close()
