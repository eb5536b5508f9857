"""`--json` of worker, up and web: one line on stdout for each start and stop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Cli, application_at

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
    """Runs a command; returns the documents on stdout and those in the log."""
    command = [sys.executable, "-m", "tidemill", *words, "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == code, result.stderr
    return documents(result.stdout.splitlines()), documents(result.stderr.splitlines())


@pytest.mark.parametrize("processes", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_a_worker_prints_its_start_and_stop(cli: Cli, tmp_path: Path, processes: tuple[str, ...]) -> None:
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


def test_up_prints_the_sign_in_link(cli: Cli) -> None:
    cli.send("ann")
    (started, stopped), log = run("up", "shop:app", "--until-idle", "--port", "0")
    assert started["link"].startswith("http://127.0.0.1:")
    assert (stopped["event"], stopped["done"]) == ("stopped", 1)
    assert "worker started" in [line["event"] for line in log]


def test_json_status_and_a_console_log_go_together(cli: Cli) -> None:
    cli.make_store()
    command = [sys.executable, "-m", "tidemill", "up", "shop:app", "--until-idle", "--no-web", "--json"]
    result = subprocess.run(
        [*command, "--log-format", "console"], capture_output=True, text=True, timeout=60, check=True
    )
    assert [line["event"] for line in documents(result.stdout.splitlines())] == ["started", "stopped"]
    assert "[info     ] worker started" in result.stderr


def test_web_prints_its_start_and_stop(cli: Cli) -> None:
    cli.make_store()
    command = [sys.executable, "-m", "tidemill", "web", "shop:app", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as web:
        assert web.stdout is not None
        started = json.loads(web.stdout.readline())
        web.send_signal(signal.SIGTERM)
        rest, stderr = web.communicate(timeout=60)
    assert started == {
        "event": "started",
        "application": "shop:app",
        "link": started["link"],
        "store": "sqlite:///shop.db",
    }
    assert started["link"].startswith("http://127.0.0.1:")
    assert (web.returncode, json.loads(rest), stderr) == (0, {"event": "stopped"}, "")


def test_the_parent_prints_a_died_process(cli: Cli, tmp_path: Path) -> None:
    cli.send("ann")
    (tmp_path / "dying.py").write_text(DYING)
    output, _ = run("worker", "dying:app", "--until-idle", "--processes", "1")
    assert [line["event"] for line in output] == ["started", "died", "started", "stopped"]
    assert output[1] | {"exit_code": 7, "reclaimed": 1, "worker": output[0]["worker"]} == output[1]


def test_the_demo_reports_its_promises(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(report: Any) -> int:
        report({"kept": True})
        return 0

    monkeypatch.setattr("tidemill_apps.demo.__main__.main", kept)
    assert cli("demo", "--json").json == {"kept": True}


@pytest.mark.parametrize("module", ["aiosqlite", "httpx2", "markdown_it", "numpy", "sqlalchemy"])
def test_the_demo_names_what_to_install(module: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; from tidemill.cli import main; main(['demo'])"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert f"demo: needs the package of the module {module!r}, which is not installed" in result.stderr
    assert "pip install 'tidemill[articles,music]'" in result.stderr


def test_the_demo_without_the_applications_names_what_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())
    result = cli("demo")
    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert "pip install 'tidemill[articles,music]'" in result.err


def test_an_error_is_still_a_sentence(cli: Cli) -> None:
    result = cli("worker", "nothing:app", "--json")
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)


def run_up(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidemill", "up", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_up_greets_with_store_queues_tasks_and_commands(cli: Cli) -> None:
    job = cli.send("ann")
    result = run_up("shop:app", "--until-idle", "--concurrency", "4")
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    for line in (
        "shop:app is up, 4 jobs at once; nothing else is needed.",
        "store   sqlite:///shop.db",
        "queues  mail (weight 3)",
        "tasks   bounce, send",
        "tidemill top --app shop:app",
        "tidemill enqueue --app shop:app send to=…",
        "[info     ] worker started",
    ):
        assert line in result.stderr
    assert cli("jobs", "show", job, "--app", "shop:app", "--json").json["state"] == "done"


@pytest.mark.usefixtures("cli")
def test_up_logs_json_on_request() -> None:
    assert '"event": "worker started"' in run_up("shop:app", "--until-idle", "--log-format", "json").stderr


def test_up_warns_that_a_memory_store_ends_with_the_process(cli: Cli, tmp_path: object) -> None:
    from pathlib import Path

    application_at(Path(str(tmp_path)), "fleeting", "memory://")
    assert "memory://, which ends with this process" in run_up("fleeting:app", "--until-idle").stderr


def test_invalid_options_are_refused_before_anything_starts(cli: Cli) -> None:
    result = cli("up", "shop:app", "--grace", "soon")
    assert (result.code, len(result.err.splitlines())) == (2, 1)
