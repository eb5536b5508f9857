"""Everything in one process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.support import Cli, application_at


def up(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidemill", "up", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_it_says_what_it_runs_and_where_to_look(cli: Cli) -> None:
    job = cli.send("ann")
    ran = up("shop:app", "--until-idle", "--concurrency", "4")
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    for said in (
        "shop:app is up, 4 jobs at once; nothing else is needed.",
        "store   sqlite:///shop.db",
        "queues  mail (weight 3)",
        "tasks   bounce, send",
        "tidemill top --app shop:app",
        "tidemill enqueue --app shop:app send to=…",
        "[info     ] worker started",
    ):
        assert said in ran.stderr
    assert cli("jobs", "show", job, "--app", "shop:app", "--json").json["state"] == "done"


@pytest.mark.usefixtures("cli")
def test_logs_for_programs_when_asked() -> None:
    assert '"event": "worker started"' in up("shop:app", "--until-idle", "--log-format", "json").stderr


def test_memory_is_said_to_end_with_the_process(cli: Cli, tmp_path: object) -> None:
    from pathlib import Path

    application_at(Path(str(tmp_path)), "fleeting", "memory://")
    assert "memory://, which ends with this process" in up("fleeting:app", "--until-idle").stderr


def test_wrong_options_are_refused_before_anything_starts(cli: Cli) -> None:
    ran = cli("up", "shop:app", "--grace", "soon")
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
