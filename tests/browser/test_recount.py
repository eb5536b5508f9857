"""I28: when nothing runs, every number on every page equals the number of jobs."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from httpx2 import AsyncClient
from playwright.async_api import Page, expect

from tests.browser.conftest import OpenWindow
from tests.browser.dubbing_app import DubbingApp
from tests.browser.site import Site
from tests.browser.window import wait_for_live
from tidemill import State
from tidemill.http_routes.routes import Role

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

SCHEDULED, DEAD = 1234, 7
GLANCE = ("running", "ready", "scheduled", "waiting", "done")

Counted = Counter[tuple[str, str]]


def recounted(studio: DubbingApp) -> Counted:
    """Counts row by row, without any stored counter."""
    with closing(sqlite3.connect(studio.folder / "studio.db")) as store:
        return Counter(store.execute("SELECT queue, state FROM jobs").fetchall())


def of_all(counted: Counted, state: str) -> int:
    return sum(many for (_, each), many in counted.items() if each == state)


async def number(page: Page, which: str) -> int:
    return int((await page.locator(which).first.inner_text()).replace(",", ""))


async def test_numbers_equal_a_recount(opens: OpenWindow, site: Site, studio: DubbingApp) -> None:
    later = studio.record.using(delay=3600)
    await studio.app.enqueue_many(later.job(f"later {each}") for each in range(SCHEDULED))
    await studio.app.enqueue_many(
        studio.post.using(queue="attic").job(f"empty house {each}") for each in range(DEAD)
    )
    window = await opens(site)
    letters = await window.open("/dead-letters?queue=attic")
    await expect(letters.locator(".tabs [aria-current=page] .soft")).to_have_text(str(DEAD))
    overview = await window.open("/")
    await expect(overview.locator(".figures a[href$='state=running'] .value")).to_have_text("0")
    counted = recounted(studio)
    await overview_shows(overview, counted)
    for queue in {name for name, _ in counted}:
        page = await window.open(f"/queues/{queue}")
        await wait_for_live(page)
        for state in (*GLANCE, "cancelled"):
            assert await number(page, f"a[href$='state={state}'] .value") == counted[queue, state], state
        assert await number(page, "a[href*='dead-letters'] .value") == counted[queue, "failed"]
        await page.close()  # its event stream holds one of the six connections of the browser
    jobs = await window.open("/jobs")
    for state in State:
        assert await number(jobs, f".tabs a[href$='state={state}'] .soft") == of_all(counted, state), state
    await programs_are_told(site, studio, counted)
    assert recounted(studio) == counted


async def overview_shows(page: Page, counted: Counted) -> None:
    await wait_for_live(page)
    for state in GLANCE:
        assert await number(page, f".figures a[href$='state={state}'] .value") == of_all(counted, state), (
            state
        )
    assert await number(page, ".figures a[href$='dead-letters'] .value") == of_all(counted, "failed")
    for (queue, state), many in counted.items():
        if state in ("ready", "running", "scheduled", "waiting", "failed"):
            assert await number(page, f"td a[href$='queue={queue}&state={state}']") == many, queue


async def programs_are_told(site: Site, studio: DubbingApp, counted: Counted) -> None:
    token = await studio.app.auth.tokens.create("prometheus", Role.VIEWER)
    async with AsyncClient(headers={"authorization": f"Bearer {token.secret}"}) as client:
        stats = (await client.get(f"{site.address}/api/v1/stats")).json()
        metrics = (await client.get(f"{site.address}/metrics")).text
    assert {
        (queue["name"], state): many
        for queue in stats["queues"]
        for state, many in queue["counts"].items()
        if many
    } == counted
    lines = re.findall(r'^tidemill_queue_jobs\{queue="(.*)",state="(.*)"\} (\d+)$', metrics, re.MULTILINE)
    assert {(queue, state): int(many) for queue, state, many in lines if many != "0"} == counted
