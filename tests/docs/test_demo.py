"""`make demo` judges itself; here somebody looks at its judgement, and at what it leaves behind."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tidemill.demo import __main__ as demo
from tidemill.demo.screen import Screen
from tidemill.demo.story import Told
from tidemill.demo.summary import dashboard_step, promises
from tidemill.demo.witness import Witness

PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=PLAIN, capture_output=True, text=True, check=False, timeout=60
    )


def commands_of(shown: str) -> list[list[str]]:
    return [shlex.split(line) for line in shown.splitlines() if line.startswith("  ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def shown(folder: Path) -> str:
    """What it prints. The file an earlier demo left is in its way, and overwritten."""
    (folder / "tidemill-demo.db").write_text("what an earlier demo left", encoding="utf-8")
    done = run(folder, sys.executable, "-m", "tidemill.demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_promise_was_kept(shown: str) -> None:
    verdicts = [line for line in shown.splitlines() if line.startswith(("ok ", "NOT"))]
    assert len(verdicts) == 8
    assert all(line.startswith("ok ") for line in verdicts)


def test_the_numbers_of_the_summary_add_up(shown: str) -> None:
    found = re.search(r"(\d+) jobs enqueued, (\d+) ended: (\d+) done, (\d+) failed, (\d+) cancelled", shown)
    assert found
    enqueued, ended, *parts = map(int, found.groups())
    assert enqueued == ended == sum(parts)
    assert f"{ended} of {enqueued} jobs ended" in shown


def test_the_commands_it_ends_with_work_on_its_file(shown: str, folder: Path) -> None:
    *commands, _ = commands_of(shown)
    done = [run(folder, sys.executable, "-m", "tidemill", *command[1:]) for command in commands]
    assert [command.returncode for command in done] == [0, 0, 0], [command.stderr for command in done]
    jobs, explain, top = (command.stdout for command in done)
    assert jobs.count("failed") == 2
    assert "crashed 3 times" in explain
    assert all(queue in top for queue in ("hosts", "mail", "risky", "songs"))


def test_the_dashboard_it_ends_with_serves_its_file(shown: str, folder: Path) -> None:
    *_, command = commands_of(shown)
    with subprocess.Popen(
        [sys.executable, "-m", "tidemill", *command[1:], "--port", "0"],
        cwd=folder,
        env=PLAIN,
        stderr=subprocess.PIPE,
        text=True,
    ) as serving:
        try:
            assert serving.stderr is not None
            assert "/sign-in/" in serving.stderr.readline()
        finally:
            serving.terminate()


def test_what_is_set_for_another_application_is_not_meant_for_it(tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text("[queues.songs]\nmax_length = 5\n", encoding="utf-8")
    asked = "print(app.queues['songs'].max_length, *app.worker_options().queues)"
    variables = {"TIDEMILL_WORKER_QUEUES": "mail", "TIDEMILL_QUEUES_SONGS_MAX_LENGTH": "5"}
    done = subprocess.run(
        [sys.executable, "-c", f"from tidemill.demo.tasks import app; {asked}"],
        cwd=tmp_path,
        env=PLAIN | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["None", "songs", "hosts", "mail", "risky"]


def test_a_folder_that_cannot_be_written_to_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "tidemill-demo.db").mkdir()
    done = run(tmp_path, sys.executable, "-m", "tidemill.demo")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "the demo could not run" in done.stderr


def test_a_promise_that_was_not_kept_is_noticed() -> None:
    """Of a demo in which nothing ran, no promise is called kept but the ones about nobody."""
    kept = [sentence for held, sentence in promises(Told(), Witness(), deaths=0) if held]
    assert kept == ["0 of its 0 neighbours ran exactly as often as they should"]


def test_a_report_has_every_promise_and_what_to_do_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `tidemill demo --json` prints it, here of a demo in which nothing ran."""
    monkeypatch.setattr(demo, "next_steps", lambda _: ["tidemill jobs"])
    reports: list[dict[str, Any]] = []
    assert demo.close(Screen(Console(file=io.StringIO())), Told(), 0, reports.append) == 1
    (report,) = reports
    assert report["kept"] is False
    assert [each["kept"] for each in report["promises"]].count(True) == 1
    assert report["next"] == ["tidemill jobs", dashboard_step()]


def test_two_of_one_host_at_once_would_be_noticed() -> None:
    witness = Witness()
    with witness.at_work("blue.example"), witness.at_work("blue.example"):
        pass
    assert (False, "hosts never ran more than 2 job per host at once") in promises(Told(), witness, deaths=0)
