"""A dashboard in its own process on a SQLite file, and a browser signed in to it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from playwright.async_api import Browser, StorageState

from tests.browser.window import Window
from tests.servers.program import Program

ROOT = Path(__file__).parents[2]
PATH = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
LINK = re.compile(r"(http://127\.0\.0\.1:\d+)/\S*")


class Site:
    """`how` is `up`, with a worker, or `web`, without."""

    def __init__(self, folder: Path, command: str, app: str, *, port: int = 0) -> None:
        self._log = folder / "site.log"
        self._signed_in: StorageState | None = None
        self._program = Program(
            [sys.executable, "-m", "tidemill", command, app, "--port", str(port)],
            log=self._log,
            environment={"PYTHONPATH": os.pathsep.join([str(ROOT), *PATH])},
        )

    def __enter__(self) -> Self:
        try:
            self._program.answers(lambda: LINK.search(self.written) is not None)
        except BaseException:
            self._program.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program.end()

    @property
    def link(self) -> str:
        """Returns the printed link, which works for one sign-in."""
        return self._found()[0]

    @property
    def address(self) -> str:
        return self._found()[1]

    @property
    def written(self) -> str:
        return self._log.read_text(encoding="utf-8")

    async def sign_in(self, browser: Browser) -> None:
        """Signs in by the printed link, also for windows that are opened later."""
        window = await self.strange_window(browser)
        page = await window.context.new_page()
        await page.goto(self.link)
        await page.locator("main button, form button").first.click()
        await page.wait_for_url(f"{self.address}/")
        self._signed_in = await window.context.storage_state()
        await window.close()

    async def window(self, browser: Browser, **options: Any) -> Window:
        return Window(await browser.new_context(storage_state=self._signed_in, **options), self.address)

    async def strange_window(self, browser: Browser, **options: Any) -> Window:
        """Opens a window without a sign-in."""
        return Window(await browser.new_context(**options), self.address)

    def _found(self) -> re.Match[str]:
        found = LINK.search(self.written)
        assert found is not None
        return found
