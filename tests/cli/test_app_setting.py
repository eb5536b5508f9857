"""The application is configured once, in the environment or a file; commands need not repeat it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import Cli, application_at


@pytest.fixture(params=["environment", "file"], autouse=True)
def configured_app(
    request: pytest.FixtureRequest, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.make_store()
    if request.param == "environment":
        monkeypatch.setenv("TIDEMILL_APP", "shop:app")
    else:
        (tmp_path / "tidemill.toml").write_text('app = "shop:app"\n')


def tidemill(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidemill", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_commands_use_the_configured_application(cli: Cli) -> None:
    job = cli("enqueue", "send", "to=ann").out.strip()
    result = tidemill("worker", "--until-idle", "--log-level", "error")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert cli("jobs", "show", job, "--json").json["state"] == "done"
    up = tidemill("up", "--until-idle")
    assert "shop:app is up" in up.stderr
    assert "send    tidemill enqueue send to=…" in up.stderr
    assert "watch   tidemill top    (" in up.stderr


def test_remedies_leave_out_the_configured_application(cli: Cli) -> None:
    cli.send("a")
    assert "start one: tidemill worker\n" in cli("doctor").out


def test_the_option_wins_over_the_setting(cli: Cli, tmp_path: Path) -> None:
    application_at(tmp_path, "other", "sqlite:///other.db")
    assert cli("enqueue", "send", "to=b", "--app", "other:app").code == 0
    assert cli("jobs", "--json").json["jobs"] == []
    assert len(cli("jobs", "--json", "--url", "sqlite:///other.db").json["jobs"]) == 1
    assert len(cli("jobs", "--json", "--app", "other:app").json["jobs"]) == 1


def test_child_processes_ignore_the_processes_setting(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes inherit the variable. If they obeyed it, each would start more children."""
    monkeypatch.setenv("TIDEMILL_WORKER_PROCESSES", "2")
    cli.send("a")
    result = tidemill("worker", "--until-idle", "--log-format", "json")
    assert result.returncode == 0, result.stderr
    started = [
        line for line in map(json.loads, result.stderr.splitlines()) if line["event"] == "worker started"
    ]
    assert len(started) == 2


def test_an_invalid_app_setting_names_its_origin(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_APP", "shop.py")
    result = cli("jobs")
    assert result.code == 2
    assert "environment TIDEMILL_APP: must be module:app, such as myproject.jobs:app" in result.err
