"""`--json` of what runs until it is told to stop: a line on stdout when something started or stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Cli

DYING = """
import os
from tidemill import Tidemill

app = Tidemill("sqlite:///shop.db")
app.queue("mail", crash_limit=1)

@app.task(queue="mail", name="send")
def send(to: str) -> None:
    os._exit(7)
"""


def documents(lines: Iterable[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def run(*words: str, code: int = 0) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What stdout has, and the log: each line is a document."""
    command = [sys.executable, "-m", "tidemill", *words, "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == code, ran.stderr
    return documents(ran.stdout.splitlines()), documents(ran.stderr.splitlines())


@pytest.mark.parametrize("processes", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_a_worker_tells_when_it_started_and_what_it_did(
    cli: Cli, tmp_path: Path, processes: tuple[str, ...]
) -> None:
    cli.send("王小明")
    (started, stopped), log = run("worker", "shop:app", "--until-idle", *processes)
    assert started == {
        "event": "started",
        "application": "shop:app",
        "link": None,
        "worker": started["worker"],
        "queues": {"mail": 3},
        "concurrency": 10,
        "store": f"sqlite:///{tmp_path / 'shop.db'}",
    }
    assert (stopped["event"], stopped["worker"], stopped["done"]) == ("stopped", started["worker"], 1)
    assert [line["event"] for line in log] == ["worker started", "worker stopped"]


def test_everything_in_one_process_tells_where_to_sign_in(cli: Cli) -> None:
    cli.send("ann")
    (started, stopped), log = run("up", "shop:app", "--until-idle", "--port", "0")
    assert started["link"].startswith("http://127.0.0.1:")
    assert (stopped["event"], stopped["done"]) == ("stopped", 1)
    assert "worker started" in [line["event"] for line in log]


def test_a_log_for_people_may_go_with_it(cli: Cli) -> None:
    cli.make_store()
    command = [sys.executable, "-m", "tidemill", "up", "shop:app", "--until-idle", "--no-web", "--json"]
    ran = subprocess.run(
        [*command, "--log-format", "console"], capture_output=True, text=True, timeout=60, check=True
    )
    assert [line["event"] for line in documents(ran.stdout.splitlines())] == ["started", "stopped"]
    assert "[info     ] worker started" in ran.stderr


def test_the_dashboard_by_itself(cli: Cli) -> None:
    cli.make_store()
    command = [sys.executable, "-m", "tidemill", "web", "shop:app", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as web:
        assert web.stdout is not None
        started = json.loads(web.stdout.readline())
        web.send_signal(signal.SIGTERM)
        rest, said = web.communicate(timeout=60)
    assert started == {
        "event": "started",
        "application": "shop:app",
        "link": started["link"],
        "store": "sqlite:///shop.db",
    }
    assert started["link"].startswith("http://127.0.0.1:")
    assert (web.returncode, json.loads(rest), said) == (0, {"event": "stopped"}, "")


def test_a_process_that_died_is_told_by_its_parent(cli: Cli, tmp_path: Path) -> None:
    cli.send("ann")
    (tmp_path / "dying.py").write_text(DYING)
    told, _ = run("worker", "dying:app", "--until-idle", "--processes", "1")
    assert [line["event"] for line in told] == ["started", "died", "started", "stopped"]
    assert told[1] | {"exit_code": 7, "reclaimed": 1, "worker": told[0]["worker"]} == told[1]


def test_a_demonstration_reports_what_it_promised(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(report: Any) -> int:
        report({"kept": True})
        return 0

    monkeypatch.setattr("tidemill.demo.__main__.main", kept)
    assert cli("demo", "--json").json == {"kept": True}


def test_a_mistake_is_still_a_sentence(cli: Cli) -> None:
    ran = cli("worker", "nothing:app", "--json")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
