"""Commands print no secrets by default, and never terminal control characters."""

from __future__ import annotations

import ast
import json
import logging
import re
from pathlib import Path

import pytest
import structlog

import tidemill.cli
from tests.cli.support import Cli
from tidemill import logs
from tidemill.cli.schedules import schedules

CANARY = "canary-7f3a91"
EVIL = "\x1b]0;owned\x07 \x9b2J \u202egnp.exe \u2028ok\nstate: done \x7f"
TASKS = """
from typing import Annotated, Any
from tidemill import Retry, Secret, Tidemill

app = Tidemill("sqlite:///bank.db")

@app.task(name="pay", queue="bank", retry=Retry(attempts=1))
async def pay(api_key: str, pin: Annotated[str, Secret], fails: bool = True) -> dict[str, str]:
    if fails:
        raise ValueError(f"refused {api_key} and {pin}; password=other-canary")
    return {"token": api_key, "said": f"paid with {pin}"}

@app.task(name="show", queue="ban\\nk", retry=Retry(attempts=1))
async def show(what: Any) -> None:
    raise ValueError(what)

app.schedule("nightly", pay.job("canary-7f3a91", "canary-7f3a91"), cron="0 3 * * *")
"""


@pytest.fixture
def bank(cli: Cli, tmp_path: Path) -> Cli:
    (tmp_path / "bank.py").write_text(TASKS)
    return cli


def _pay(bank: Cli, *options: str) -> str:
    bank("enqueue", "pay", f"api_key={CANARY}", f"pin={CANARY}-pin", "--app", "bank:app", *options)
    bank("worker", "bank:app", "--until-idle")
    [job] = bank("jobs", "--app", "bank:app", "--json").json["jobs"]
    return str(job["id"])


def test_commands_print_no_secret_without_show_secrets(bank: Cli) -> None:
    job = _pay(bank)
    for command in (
        ("jobs",),
        ("jobs", "--json"),
        ("jobs", "show", job),
        ("jobs", "show", job, "--json"),
        ("explain", job),
        ("explain", job, "--json"),
        ("schedules", "--json"),
        ("schedules", "info", "nightly"),
        ("schedules", "info", "nightly", "--json"),
        ("schedules", "pause", "nightly", "--json"),
        ("schedules", "resume", "nightly", "--json"),
    ):
        result = bank(*command, "--app", "bank:app")
        assert result.code == 0, result
        assert CANARY not in result.out, command
        assert "other-canary" not in result.out, command
    assert CANARY in bank("jobs", "show", job, "--app", "bank:app", "--show-secrets").out
    assert CANARY in bank("jobs", "--show-secrets", "show", job, "--app", "bank:app").out
    assert CANARY in bank("jobs", "--app", "bank:app", "--json", "--show-secrets").out
    assert CANARY in bank("explain", job, "--app", "bank:app", "--show-secrets").out
    assert CANARY in bank("schedules", "info", "nightly", "--app", "bank:app", "--show-secrets").out


def test_no_command_about_a_schedule_prints_a_secret_as_json(bank: Cli) -> None:
    """Every command of the group is listed; add a new one here."""
    _pay(bank)
    more = {"set": ("jitter=5m",), "unset": ("jitter",)}
    order = ("info", "set", "unset", "pause", "resume", "run", "remove")
    assert set(order) == set(schedules.commands)
    assert CANARY not in bank("schedules", "--json", "--app", "bank:app").out
    for name in order:
        result = bank("schedules", name, "nightly", *more.get(name, ()), "--json", "--app", "bank:app")
        assert result.code == 0, result
        assert CANARY not in result.out, name


def test_the_log_of_a_worker_has_no_secret(bank: Cli) -> None:
    for form in ("json", "console"):
        bank("enqueue", "pay", f"api_key={CANARY}", f"pin={CANARY}-pin", "--app", "bank:app")
        result = bank("worker", "bank:app", "--until-idle", "--log-format", form)
        assert "refused [hidden]" in result.err
        assert "Traceback" in result.err
        assert CANARY not in result.err
        assert "other-canary" not in result.err


def _show_evil(bank: Cli) -> tuple[str, str]:
    sent = json.dumps({"what": EVIL})
    job = bank("enqueue", "show", "--payload", sent, "--app", "bank:app", "--key", "\x1b[31m").out.strip()
    return job, bank("worker", "bank:app", "--until-idle", "--log-format", "console").err


CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def test_foreign_text_cannot_control_the_terminal(bank: Cli) -> None:
    job, log = _show_evil(bank)
    assert not CONTROLS.search(log), "the log of the worker"
    assert not re.search("^state: done", log, re.MULTILINE)
    for command in (("jobs",), ("jobs", "show", job), ("explain", job), ("doctor",), ("queues",)):
        out = bank(*command, "--app", "bank:app").out
        assert not CONTROLS.search(out), command
        assert not re.search("^state: done", out, re.MULTILINE), command


def test_json_escapes_control_characters(bank: Cli) -> None:
    job, _ = _show_evil(bank)
    result = bank("jobs", "show", job, "--app", "bank:app", "--json")
    assert not CONTROLS.search(result.out)
    assert result.json["payload"] == {"what": EVIL}
    assert "\\u202e" in result.out


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_line_of_any_logger_is_one_line_without_controls(
    form: logs.LogFormat, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logs.configure(format=form)
    try:
        structlog.get_logger().info(EVIL, of=EVIL)
        logging.getLogger("theirs").warning("they said %s, password=%s", EVIL, CANARY)
        logging.getLogger("theirs").error("it failed", exc_info=ValueError(EVIL))
        output = capsys.readouterr().err
    finally:
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        structlog.reset_defaults()
    assert not CONTROLS.search(output)
    assert CANARY not in output
    assert not re.search("^state: done", output, re.MULTILINE)


def test_every_command_prints_through_the_escaping_function() -> None:
    folder = Path(tidemill.cli.__file__).parent
    found = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "click.secho", "print")
    }
    assert found == {"__init__.py", "output.py"}
