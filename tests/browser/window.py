"""A browser window that records errors: console errors, exceptions, failed requests, and requests to other
hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, ConsoleMessage, Page, Request, Response, WebError, expect

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
SERIOUS = {"serious", "critical"}
HEARS = "addEventListener('htmx:sseMessage', () => { document.documentElement.dataset.heard = 'yes'; });"
TIMEOUT_MILLISECONDS = 30_000
"""Milliseconds; generous, because a busy machine is slow."""


@dataclass
class Window:
    """`troubles` are the errors of all its pages. `foreseen` are statuses that a test expects."""

    context: BrowserContext
    site: str
    troubles: list[str] = field(default_factory=list)
    foreseen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.context.set_default_timeout(TIMEOUT_MILLISECONDS)
        self.context.on("console", self._written)
        self.context.on("weberror", self._thrown)
        self.context.on("request", self._asked)
        self.context.on("response", self._answered)

    async def open(self, path: str) -> Page:
        page = await self.context.new_page()
        await page.add_init_script(HEARS)
        await page.goto(f"{self.site}{path}")
        return page

    async def shows(self, path: str) -> bool:
        """True if the path is a page and not data for one."""
        answer = await self.context.request.get(f"{self.site}{path}", headers={"accept": "text/html"})
        return answer.headers["content-type"].startswith("text/html")

    async def close(self) -> None:
        await self.context.close()

    def _written(self, message: ConsoleMessage) -> None:
        about_a_status = any(f"status of {status}" in message.text for status in self.foreseen)
        if message.type in ("error", "warning") and not about_a_status:
            self.troubles.append(f"console of {message.location.get('url')}: {message.text}")

    def _thrown(self, error: WebError) -> None:
        self.troubles.append(f"thrown: {error.error}")

    def _asked(self, request: Request) -> None:
        if urlsplit(request.url).scheme in ("http", "https") and not request.url.startswith(f"{self.site}/"):
            self.troubles.append(f"asked another host: {request.url}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.foreseen:
            self.troubles.append(f"{response.status} {response.request.method} {response.url}")


async def wait_for_live(page: Page) -> None:
    """Waits until the first live update is on the page; returns at once for a page without a stream."""
    if await page.locator("[sse-connect]").count():
        await expect(page.locator("html[data-heard]")).to_have_count(1)


async def accessibility_issues(page: Page) -> list[str]:
    """Returns the serious issues that axe-core finds, each with its first elements."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE)
    found: Mapping[str, Any] = await page.evaluate("axe.run({resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']} in {node['html'][:200]} ({node['failureSummary']})"
        for each in found["violations"]
        for node in each["nodes"][:3]
        if each["impact"] in SERIOUS
    ]


async def overflowing_elements(page: Page) -> list[str]:
    """Returns elements that stick out of the window and would need horizontal scrolling. A chart follows a
    new window size a little later, so it gets up to 5 seconds."""
    for _ in range(50):
        if not (found := await _overflowing_now(page)):
            break
        await page.wait_for_timeout(100)
    return found


async def _overflowing_now(page: Page) -> list[str]:
    return list(
        await page.evaluate(
            """() => {
                const width = document.documentElement.clientWidth;
                if (document.documentElement.scrollWidth <= width) return [];
                const out = (element) => element.getBoundingClientRect().right > width + 1;
                return [...document.body.querySelectorAll("*")]
                    .filter((element) => out(element) && ![...element.children].some(out))
                    .map((element) => element.outerHTML.slice(0, 150));
            }"""
        )
    )
