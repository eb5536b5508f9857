"""Settings without effect are reported at startup and by the doctor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Cli

WORKER = ("worker", "shop:app", "--until-idle")


@pytest.fixture(autouse=True)
def store(cli: Cli) -> None:
    cli.make_store()


def ignored_settings(*words: str) -> list[tuple[str, str]]:
    """Returns the ignored settings that the log names at startup."""
    command = [sys.executable, "-m", "tidemill", *words, "--log-format", "json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines: list[dict[str, Any]] = []
        for line in process.stderr:
            if line.startswith("{"):
                lines.append(json.loads(line))
            if "sign in once" in line or "worker started" in line:
                break
        process.terminate()
        process.communicate(timeout=60)
    events = [line for line in lines if line["event"] == "setting ignored"]
    assert {line["level"] for line in events} <= {"warning"}
    return [(line["setting"], line["why"]) for line in events]


@pytest.mark.parametrize(
    "words",
    [
        WORKER,
        (*WORKER, "--processes", "2"),
        ("up", "shop:app", "--until-idle", "--no-web"),
        ("web", "shop:app", "--port", "0"),
    ],
    ids=["worker", "supervised", "up", "web"],
)
def test_a_misspelt_variable_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TIDEMILL_WORKER_CONCURENCY", "hunter2")
    monkeypatch.setenv("TIDEMILL_URI", "hunter2")
    assert ignored_settings(*words) == [
        ("TIDEMILL_URI", "has no effect; did you mean TIDEMILL_URL?"),
        ("TIDEMILL_WORKER_CONCURENCY", "has no effect; did you mean TIDEMILL_WORKER_CONCURRENCY?"),
    ]


REMEDY = (
    "the application was made with sqlite:///shop.db, which wins; "
    "leave that out in Tidemill(…) to use what is set"
)


def test_a_url_variable_overruled_by_code_is_reported(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_URL", "redis://ann:hunter2@cache:6379/3?password=hunter2")
    [(setting, why)] = ignored_settings(*WORKER)
    assert (setting, why) == ("TIDEMILL_URL", f"it says redis://cache:6379/3, but {REMEDY}")
    found = cli("doctor", "--app", "shop:app")
    assert f"note settings: TIDEMILL_URL is ignored: it says redis://cache:6379/3, but {REMEDY}" in found.out
    assert "hunter2" not in found.out


def test_a_url_in_the_file_overruled_by_code_is_reported(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text('url = "sqlite:///jobs.db"\n')
    [(setting, why)] = ignored_settings(*WORKER)
    assert (setting, why) == ("url in tidemill.toml", f"it says sqlite:///jobs.db, but {REMEDY}")
    assert f"note settings: {setting} is ignored: {why}" in cli("doctor", "--app", "shop:app").out


@pytest.mark.parametrize("variable", ["REDIS_URL", "DATABASE_URL"])
def test_a_shared_variable_is_reported_by_the_doctor_only(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "mysql://ann:hunter2@db/shop")
    assert ignored_settings(*WORKER) == []
    found = cli("doctor", "--app", "shop:app").out
    assert f"note settings: {variable} is ignored: it says mysql://***, but {REMEDY}" in found


@pytest.mark.parametrize("same", ["sqlite:///shop.db", "sqlite:///./shop.db", ""])
def test_a_url_of_the_same_store_is_not_reported(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, same: str
) -> None:
    monkeypatch.setenv("TIDEMILL_URL", same)
    assert ignored_settings(*WORKER) == []
    assert "is ignored" not in cli("doctor", "--app", "shop:app").out


def test_a_url_overruled_by_an_option_is_not_reported(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_URL", "redis://cache:6379/3")
    assert "is ignored" not in cli("doctor", "--url", "sqlite:///shop.db").out


def test_a_store_passed_by_code_overrules_the_url(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(
        "from tidemill import Tidemill\n"
        "from tidemill.clock import SystemClock, SystemEntropy\n"
        "from tidemill.stores.memory import MemoryStore\n"
        "app = Tidemill(store=MemoryStore(SystemClock(), SystemEntropy()))\n"
    )
    monkeypatch.setenv("TIDEMILL_URL", "sqlite:///jobs.db")
    [(_, why)] = ignored_settings("worker", "own:app", "--until-idle")
    assert "the application was made with a store of the program's own, which wins" in why
