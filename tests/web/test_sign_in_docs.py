"""docs/how-to/sign-in.md: its commands and programs run."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import APPLICATION
from tests.docs.page_runner import code_blocks
from tests.docs.pages import page, section
from tests.web.asgi_client import send_request
from tidemill.cli import main
from tidemill.core.redaction import HIDDEN_MARK
from tidemill.settings import Settings
from tidemill.web.redacted_inspector import RedactedInspector

PAGE = page("how-to/sign-in.md")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "shop.py").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    return importlib.import_module("shop")


def program(heading: str) -> dict[str, Any]:
    (code,) = [body for language, body in code_blocks(section(PAGE, heading)) if language == "python"]
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, heading, "exec", dont_inherit=True), names)  # noqa: S102 - the page's own program
    return names


def test_the_commands_run(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^tidemill (.+)$", PAGE, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(command))
        assert not ended.value.code, (command, capsys.readouterr())


def test_the_settings_exist(tmp_path: Path) -> None:
    texts = [body for language, body in code_blocks(PAGE) if language == "toml"]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.toml").write_text(text)
        Settings.load({}, config=tmp_path / f"{number}.toml")
    assert len(texts) == 2


async def test_a_token_from_a_program(shop: Any) -> None:
    async with shop.app:
        secret = await program("Make a token")["welcome"]()
        assert (await shop.app.auth.tokens.user(secret)).name == "ci"


async def test_annotated_secrets_are_hidden(shop: Any) -> None:
    made = program("Secrets in jobs")
    async with shop.app:
        job = await made["pay"].enqueue(made["Payment"](3.0, "4111-1111"), pin="0000-1")
        seen = (await RedactedInspector(shop.app).job(job.id)).payload
    assert seen == {"what": {"amount": 3.0, "card": HIDDEN_MARK}, "pin": HIDDEN_MARK}


async def test_inside_another_application(shop: Any) -> None:
    site = program("Inside your own application")["site"]
    async with shop.app:
        anonymous = await send_request(site, "GET", "/jobs/api/v1/queues")
        ann = await send_request(site, "GET", "/jobs/api/v1/queues", headers={"x-user": "ann"})
        too_much = await send_request(site, "GET", "/jobs/api/v1/tokens", headers={"x-user": "ann"})
    assert (anonymous.status, ann.status, too_much.status) == (401, 200, 403)
