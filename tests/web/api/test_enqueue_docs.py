"""docs/how-to/enqueue-over-http.md: each program enqueues one job, however often it runs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.docs.page_runner import code_blocks, write_files
from tests.docs.pages import page
from tidemill import Filter, Tidemill
from tidemill.http_routes.routes import Role
from tidemill.web.server import browser_url, listen, serve_dashboard

PAGE = page("how-to/enqueue-over-http.md")
TYPES = re.compile(r": (string|object|Promise<string>)(?=[,) ])")


def programs() -> dict[str, str]:
    """Returns the programs by language. The first two shell scripts are about tokens and one job, the last
    about many."""
    found = {language: body for language, body in code_blocks(PAGE) if "/api/v1/jobs" in body}
    many = next(body for _, body in code_blocks(PAGE) if "/api/v1/bulk/enqueue" in body)
    return found | {"many": many}


def command(language: str, program: str, folder: Path) -> list[str]:
    if language == "python":
        return [sys.executable, "-c", program]
    if language == "typescript":
        return ["node", "--input-type=module", "--eval", TYPES.sub("", program)]
    if language == "go":
        (folder / "main.go").write_text(program)
        return ["go", "run", str(folder / "main.go")]
    return ["sh", "-c", program]


NEEDS = {"python": sys.executable, "typescript": "node", "go": "go", "sh": "curl", "many": "curl"}
RUNNABLE = [language for language, program in NEEDS.items() if shutil.which(program)]
ORDERS = {"sh": [17], "python": [18], "typescript": [19], "go": [20], "many": [21]}


class Shop:
    def __init__(self, app: Tidemill, environment: dict[str, str], folder: Path) -> None:
        self.app, self._environment, self._folder = app, environment, folder

    async def run(self, language: str) -> str:
        words = command(language, programs()[language], self._folder)
        running = await asyncio.create_subprocess_exec(
            *words, env=os.environ | self._environment, stdout=-1, stderr=-1
        )
        out, err = await running.communicate()
        assert running.returncode == 0, (out, err)
        return out.decode()

    async def orders(self) -> list[int]:
        return [json.loads(job.payload)["order"] async for job in self.app.inspect.each(Filter())]


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    write_files(PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)  # where its store is made
    app: Tidemill = runpy.run_path(str(tmp_path / "shop.py"))["app"]
    with listen("127.0.0.1", 0, port_is_fixed=True) as found:
        async with app, serve_dashboard(app, found):
            token = await app.auth.tokens.create("shop", Role.OPERATOR)
            where = {"JOBS_URL": browser_url(found, "127.0.0.1"), "JOBS_TOKEN": token.secret}
            yield Shop(app, where, tmp_path)


@pytest.mark.parametrize("language", RUNNABLE)
async def test_i3_a_program_that_runs_twice_enqueues_one_job(language: str, running: Shop) -> None:
    first, again = await running.run(language), await running.run(language)
    assert first == again
    assert await running.orders() == ORDERS[language]


def test_the_page_has_a_program_in_every_language() -> None:
    assert programs().keys() == NEEDS.keys()
