"""`make demo` judges itself; here somebody looks at its judgement, and at what it leaves behind."""

from __future__ import annotations

import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT
from tests.docs.terminal import environment

from tidemill_apps.articles.samples import samples
from tidemill_apps.demo.articles import ASKED
from tidemill_apps.music.sample import tracks

pytestmark = pytest.mark.alone

CHINESE = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def shown(folder: Path) -> str:
    """What it prints where there is no terminal. What is set for other programs is not meant for it."""
    foreign = {
        "TIDEMILL_URL": "redis://127.0.0.1:1",
        "MUSIC_CALLS_PER_MINUTE": "none",
        "DATABASE_URL": "x://",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tidemill_apps.demo"],
        cwd=folder,
        env=environment() | foreign,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_promise_was_kept(shown: str) -> None:
    verdicts = [line for line in shown.splitlines() if line.startswith(("ok ", "NOT"))]
    assert len(verdicts) == 13
    assert all(line.startswith("ok ") for line in verdicts)


def test_the_provider_is_called_a_simulator(shown: str) -> None:
    assert "SIMULATOR" in shown.partition("Music:")[0]
    assert "a minute of its takes 2 seconds here" in shown


def test_the_day_ends_and_the_next_one_begins(shown: str) -> None:
    told = [line for line in shown.splitlines() if "BREAKER" in line or "midnight" in line]
    assert told
    assert re.search(r"BREAKER: the day's quota is gone. All wait [\d.]+ s", shown)
    assert shown.index("BREAKER: ") < shown.index("midnight: one job tries")


def test_it_shows_progress_and_counts(shown: str) -> None:
    assert re.search(r"songs: \d+ of 60, RUNNING", shown)
    assert "songs: 60 of 60, IDLE" in shown
    assert "articles: 40 of 40, 0 in a call" in shown


def test_what_it_says_is_in_its_tables(shown: str, folder: Path) -> None:
    query = "SELECT status, count(*), count(vector) FROM songs GROUP BY status"
    assert _asked_of(folder / "tidemill-demo" / "music.db", query) == "COMPLETED|60|60"
    query = "SELECT rag_status, hide, count(*) FROM tb_post GROUP BY 1, 2 ORDER BY 2"
    assert _asked_of(folder / "tidemill-demo" / "articles.db", query) == "completed|0|39\ncompleted|1|1"


@pytest.mark.parametrize("application", ["music", "articles"])
def test_the_dashboard_it_ends_with_serves_what_it_left(shown: str, folder: Path, application: str) -> None:
    [command] = [line.strip() for line in shown.splitlines() if line.endswith(f" up {application}")]
    enter, _, up = command.partition(" && ")
    assert enter == "cd tidemill-demo"
    with subprocess.Popen(
        [*shlex.split(up), "--port", "0"],
        cwd=folder / "tidemill-demo",
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as serving:
        try:
            assert serving.stderr is not None
            assert any("/sign-in/" in line for line in serving.stderr)
        finally:
            serving.terminate()


def test_half_of_what_it_works_on_is_chinese() -> None:
    titles = [track.title for track in tracks()]
    assert len([title for title in titles if CHINESE.search(title)]) * 2 == len(titles)
    titles = [sample.title for sample in samples()]
    assert len([title for title in titles if CHINESE.search(title)]) * 2 == len(titles)
    assert len([number for number in ASKED if CHINESE.search(samples()[number].question)]) * 2 == len(ASKED)


def test_make_demo_is_this_demo() -> None:
    done = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "-m tidemill_apps.demo" in done.stdout


def test_a_folder_of_somebody_else_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "tidemill-demo").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tidemill_apps.demo"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "move it away" in done.stderr
    assert not list((tmp_path / "tidemill-demo").iterdir())


def _asked_of(file: Path, query: str) -> str:
    with sqlite3.connect(file) as connection:
        return "\n".join("|".join(map(str, row)) for row in connection.execute(query))
