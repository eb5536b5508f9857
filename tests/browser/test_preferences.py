"""Keyboard, language, theme and role of a user."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.conftest import OpenWindow
from tests.browser.dubbing_app import DubbingApp
from tests.browser.site import Site
from tidemill.http_routes.routes import Role

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

BACKGROUND = "getComputedStyle(document.body).backgroundColor"


async def test_a_link_signs_in_once(browser: Browser, tmp_path: Path) -> None:
    with Site(tmp_path, "web", "tests.browser.dubbing_app_entry:app") as site:
        window = await site.strange_window(browser)
        page = await window.open("/queues")
        assert page.url == f"{site.address}/sign-in?next=/queues"
        await page.goto(site.link)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator("h1")).to_have_text("Overview")
        await page.goto(f"{site.address}/queues")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        assert window.troubles == []
        window.foreseen |= {410, 401}
        await page.goto(site.link)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_be_visible()
        await page.get_by_label("Token").fill("a guess")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_be_visible()
        assert window.troubles == []
        await window.close()


async def test_a_viewer_sees_no_button_that_changes_anything(
    browser: Browser, site: Site, studio: DubbingApp
) -> None:
    token = await studio.app.auth.tokens.create("vera", Role.VIEWER)
    window = await site.strange_window(browser)
    page = await window.open("/sign-in?next=/queues/mail")
    await page.get_by_label("Token").fill(token.secret)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("h1")).to_have_text("mail")
    await expect(page.locator("main form[method=post], main [data-opens-dialog]")).to_have_count(0)
    window.foreseen.add(403)
    answer = await page.goto(f"{site.address}/audit")
    assert answer is not None
    assert answer.status == 403
    assert window.troubles == []
    await window.close()


async def test_keyboard_shortcuts(opens: OpenWindow, site: Site) -> None:
    page = await (await opens(site)).open("/")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.getAttribute('href')") == "#main"
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "main"
    await page.keyboard.press("?")
    await expect(page.locator("dialog#keys")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog#keys")).to_be_hidden()
    await page.keyboard.press("g")
    await page.keyboard.press("j")
    await page.wait_for_url(f"{site.address}/jobs")
    await page.keyboard.press("/")
    assert await page.evaluate("document.activeElement.name") == "text"


async def test_chinese_by_the_browsers_language(opens: OpenWindow, site: Site) -> None:
    page = await (await opens(site, locale="zh-CN")).open("/")
    await expect(page.locator("html")).to_have_attribute("lang", "zh")
    await expect(page.locator("h1")).to_have_text("总览")
    await page.locator("[data-language-choice]").select_option("en")
    await expect(page.locator("h1")).to_have_text("Overview")
    await page.goto(f"{site.address}/queues")
    await expect(page.locator("html")).to_have_attribute("lang", "en")


async def test_dark_theme(opens: OpenWindow, site: Site) -> None:
    light = await (await opens(site)).open("/")
    dark = await (await opens(site, color_scheme="dark")).open("/")
    bright, dim = await light.evaluate(BACKGROUND), await dark.evaluate(BACKGROUND)
    assert bright != dim
    await light.locator("[data-theme-choice]").select_option("dark")
    assert await light.evaluate(BACKGROUND) == dim
    await light.reload()
    assert await light.evaluate(BACKGROUND) == dim
