"""The application is named once, in the environment or a file, and no command has to repeat it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import Cli, application_at


@pytest.fixture(params=["environment", "file"], autouse=True)
def named(request: pytest.FixtureRequest, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.make_store()
    if request.param == "environment":
        monkeypatch.setenv("TIDEMILL_APP", "shop:app")
    else:
        (tmp_path / "tidemill.toml").write_text('app = "shop:app"\n')


def tidemill(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidemill", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_no_command_has_to_name_the_application(cli: Cli) -> None:
    job = cli("enqueue", "send", "to=ann").out.strip()
    ran = tidemill("worker", "--until-idle", "--log-level", "error")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert cli("jobs", "show", job, "--json").json["state"] == "done"
    up = tidemill("up", "--until-idle")
    assert "shop:app is up" in up.stderr
    assert "send    tidemill enqueue send to=…" in up.stderr
    assert "look    tidemill top    (" in up.stderr


def test_remedies_do_not_name_it_either(cli: Cli) -> None:
    cli.send("a")
    assert "start one: tidemill worker\n" in cli("doctor").out


def test_what_is_typed_wins(cli: Cli, tmp_path: Path) -> None:
    application_at(tmp_path, "other", "sqlite:///other.db")
    assert cli("enqueue", "send", "to=b", "--app", "other:app").code == 0
    assert cli("jobs", "--json").json["jobs"] == []
    assert len(cli("jobs", "--json", "--url", "sqlite:///other.db").json["jobs"]) == 1
    assert len(cli("jobs", "--json", "--app", "other:app").json["jobs"]) == 1


def test_processes_may_be_set_and_are_not_started_by_the_started(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Children inherit the variable: one that obeyed it would start its own, and so on."""
    monkeypatch.setenv("TIDEMILL_WORKER_PROCESSES", "2")
    cli.send("a")
    ran = tidemill("worker", "--until-idle", "--log-format", "json")
    assert ran.returncode == 0, ran.stderr
    started = [line for line in map(json.loads, ran.stderr.splitlines()) if line["event"] == "worker started"]
    assert len(started) == 2


def test_a_mistake_in_it_names_the_place(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_APP", "shop.py")
    ran = cli("jobs")
    assert ran.code == 2
    assert "environment TIDEMILL_APP: must be module:app, such as myproject.jobs:app" in ran.err
