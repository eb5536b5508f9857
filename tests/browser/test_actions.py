"""Actions on pages have their effect."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import OpenWindow
from tests.browser.dubbing_app import DubbingApp
from tests.browser.site import Site
from tidemill import Filter, State

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

NOW = ".timeline [aria-current=step]"


async def confirm(page: Page) -> None:
    """Confirms the dialog and waits for the next page, by which time the action is done."""
    async with page.expect_navigation():
        await page.locator("#confirm [data-confirm-label]").click()


async def test_a_failed_job_is_retried(opens: OpenWindow, site: Site, studio: DubbingApp) -> None:
    job = await studio.post.enqueue("ann")
    page = await (await opens(site)).open(f"/jobs/{job.id}")
    await expect(page.locator(f"{NOW} .state-failed")).to_be_visible()
    await expect(page.get_by_text("nobody home at ann").first).to_be_visible()
    studio.let_go("ann")
    await page.get_by_role("button", name="Retry").click()
    await confirm(page)
    await expect(page.locator(f"{NOW} .state-done")).to_be_visible()
    assert await job.result(timeout=30) == "sent to ann"


async def test_a_running_job_is_cancelled(opens: OpenWindow, site: Site, studio: DubbingApp) -> None:
    job = await studio.record.enqueue("endless")
    page = await (await opens(site)).open(f"/jobs/{job.id}")
    await expect(page.locator(f"{NOW} .state-running")).to_be_visible()
    await page.get_by_role("button", name="Cancel").click()
    await confirm(page)
    await expect(page.locator(f"{NOW} .state-cancelled")).to_be_visible()
    assert (await job.status()).state is State.CANCELLED


async def test_all_dead_letters_of_a_queue_are_retried(
    opens: OpenWindow, site: Site, studio: DubbingApp
) -> None:
    jobs = [await studio.post.using(queue="letters").enqueue(f"house {number}") for number in range(3)]
    page = await (await opens(site)).open("/dead-letters?queue=letters")
    button = page.get_by_role("button", name="3")
    await expect(button.first).to_be_visible()
    for number in range(3):
        studio.let_go(f"house {number}")
    await button.first.click()
    await confirm(page)
    for job in jobs:
        assert await job.result(timeout=30)
    await page.goto(f"{site.address}/dead-letters?queue=letters")
    await expect(page.locator(".failure-group")).to_have_count(0)


async def test_selected_jobs_are_cancelled_together(
    opens: OpenWindow, site: Site, studio: DubbingApp
) -> None:
    for number in range(3):
        await studio.record.using(delay=3600, tags=["choir"]).enqueue(f"voice {number}")
    page = await (await opens(site)).open("/jobs?tag=choir")
    await page.locator("[data-all=bulk]").check()
    await page.locator("#bulk").get_by_role("button", name="Cancel").click()
    await confirm(page)
    await expect(page.locator("tbody .state-cancelled")).to_have_count(3)
    assert (await studio.app.inspect.count(Filter(tag="choir", states=(State.CANCELLED,)))).jobs == 3


async def test_claims_follow_an_overridden_limit(opens: OpenWindow, site: Site, studio: DubbingApp) -> None:
    jobs = [await studio.ask.enqueue(f"question {number}") for number in range(5)]
    window = await opens(site)
    queue = await window.open("/queues/calls")
    done, ready = (queue.locator(f"a[href*='state={state}'] .value") for state in ("done", "ready"))
    await expect(done).to_have_text("2")
    await expect(ready).to_have_text("3")
    page = await window.open("/pools/model")
    await page.locator("[data-opens-dialog=override]").click()
    await page.locator("#override").get_by_label("requests per hour").fill("4")
    await page.locator("#override").get_by_role("button").last.click()
    await expect(page.locator(".limit-card.overridden")).to_contain_text("of 4")
    await expect(done).to_have_text("4")
    await expect(ready).to_have_text("1")
    assert sorted([(await job.status()).state.value for job in jobs]) == ["done"] * 4 + ["ready"]


async def test_a_queue_is_paused_and_resumed(opens: OpenWindow, site: Site, studio: DubbingApp) -> None:
    page = await (await opens(site)).open("/queues/letters")
    await page.locator("[data-opens-dialog=pause]").click()
    await page.locator("#pause").get_by_label("Reason").fill("the post is on strike")
    await page.locator("#pause").get_by_role("button").last.click()
    await expect(page.get_by_text("the post is on strike")).to_be_visible()
    assert (await studio.app.inspect.queue("letters")).pause is not None
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_text("the post is on strike")).to_have_count(0)
    assert (await studio.app.inspect.queue("letters")).pause is None


async def test_a_schedule_is_run_paused_and_resumed(
    opens: OpenWindow, site: Site, studio: DubbingApp
) -> None:
    page = await (await opens(site)).open("/schedules")
    await page.get_by_role("link", name="nightly").click()
    await page.get_by_role("button", name="Run").click()
    await expect(page.locator(".page-head .mono")).to_contain_text("nightly@")
    await page.goto(f"{site.address}/schedules/nightly")
    await expect(page.locator("td a.mono").first).to_contain_text("nightly@")
    await page.locator("[data-opens-dialog=pause]").click()
    await page.locator("#pause").get_by_role("button").last.click()
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert (await studio.app.schedules.get("nightly")).state == "paused"
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("[data-opens-dialog=pause]")).to_be_visible()
    assert (await studio.app.schedules.get("nightly")).state == "active"
    studio.let_go("night")
