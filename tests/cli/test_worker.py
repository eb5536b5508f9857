"""Running a worker from the command line."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import Cli


@pytest.fixture(autouse=True)
def store(cli: Cli) -> None:
    cli.make_store()


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["alone", "supervised"])
def test_a_worker_runs_until_idle(cli: Cli, processes: tuple[str, ...]) -> None:
    jobs = [cli.send(f"{n}@example.org") for n in range(3)]
    options = ("--until-idle", "--queues", "mail=2,other", "--lease", "10", *processes)
    command = [sys.executable, "-m", "tidemill", "worker", "shop:app", *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert not result.stdout
    for job in jobs:
        found = cli("jobs", "show", job, "--app", "shop:app", "--json").json
        assert found["state"] == "done"
        assert found["result"].startswith("sent to ")


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["alone", "supervised"])
@pytest.mark.parametrize(("queues", "warnings"), [("mail,nosuch", 1), ("mail", 0)])
@pytest.mark.usefixtures("cli")
def test_an_unknown_queue_is_logged_once(queues: str, warnings: int, processes: tuple[str, ...]) -> None:
    options = ("--until-idle", "--log-format", "json", "--queues", queues, *processes)
    command = [sys.executable, "-m", "tidemill", "worker", "shop:app", *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    output = [json.loads(line) for line in result.stderr.splitlines() if "unknown queues" in line]
    assert [(line["level"], line["unknown"], line["known"]) for line in output] == [
        ("warning", ["nosuch"], ["mail"])
    ] * warnings


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("cli")
def test_a_drained_worker_exits_with_0(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "tidemill", "worker", "shop:app", "--log-format", "json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        assert any("worker started" in line for line in worker.stderr)
        worker.send_signal(number)
        _, output = worker.communicate(timeout=60)
    assert worker.returncode == 0, output


@pytest.mark.parametrize("processes", [(), ("--processes", "1")], ids=["alone", "supervised"])
@pytest.mark.usefixtures("cli")
def test_missing_options_come_from_the_settings(tmp_path: Path, processes: tuple[str, ...]) -> None:
    """X5: arguments win over the file, in a supervised process too."""
    (tmp_path / "tidemill.toml").write_text(
        '[worker]\nconcurrency = 3\nqueues = ["mail"]\n[log]\nformat = "json"\n'
    )
    for options, slots in ((), 3), (("--concurrency", "4"), 4):
        command = [
            sys.executable,
            "-m",
            "tidemill",
            "worker",
            "shop:app",
            "--until-idle",
            *options,
            *processes,
        ]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        (started,) = (json.loads(line) for line in result.stderr.splitlines() if "worker started" in line)
        assert (started["concurrency"], started["queues"]) == (slots, {"mail": 3})


@pytest.mark.parametrize("processes", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_the_log_level_and_format_are_options(cli: Cli, processes: tuple[str, ...]) -> None:
    for options, lines in (("--log-level", "error"), 0), (("--log-format", "console"), 2):
        cli.send("a")
        command = [
            sys.executable,
            "-m",
            "tidemill",
            "worker",
            "shop:app",
            "--until-idle",
            *options,
            *processes,
        ]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert len(result.stderr.splitlines()) == lines, result.stderr
        assert "{" not in result.stderr.replace("{'mail': 3}", "")


@pytest.mark.parametrize(
    "command", [("worker",), ("worker", "--processes", "1"), ("up",), ("up", "--no-web")]
)
def test_a_mistyped_queue_is_refused_until_idle(cli: Cli, command: tuple[str, ...]) -> None:
    word, *options = command
    result = cli(word, "shop:app", "--until-idle", "--queues", "mial", "--log-level", "error", *options)
    assert result.code == 2
    assert "queues: 'mial' is neither declared nor in the store" in result.err
    assert "did you mean mail?" in result.err


@pytest.mark.parametrize(
    "queues",
    ["mial", "other", "mail-2", "mail,mial"],
    ids=["of the store", "like none", "one of several", "beside one that is known"],
)
def test_a_queue_that_is_not_mistyped_is_served(cli: Cli, queues: str) -> None:
    if queues == "mial":
        importlib.import_module("shop").send.using(queue="mial").enqueue_sync("a")
        cli.app().close_sync()
    command = [sys.executable, "-m", "tidemill", "worker", "shop:app", "--until-idle", "--queues", queues]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
