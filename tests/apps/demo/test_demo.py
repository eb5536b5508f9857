"""`tidemill demo` checks its own promises; this test checks its report and the files that it leaves."""

from __future__ import annotations

import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.docs.pages import ROOT
from tests.docs.terminal import environment
from tidemill_apps.articles.samples import load_samples
from tidemill_apps.demo.articles import QUESTION_NUMBERS
from tidemill_apps.music.connections import load_sample_tracks

CHINESE = re.compile(r"[\u4e00-\u9fff]")
FOREIGN = {"TIDEMILL_URL": "redis://127.0.0.1:1", "MUSIC_CALLS_PER_MINUTE": "none", "DATABASE_URL": "x://"}
"""Settings of other programs are removed."""
PATIENCE = 240
"""Timeout in seconds. The demo takes half a minute, and twice that on a busy machine."""


@pytest.mark.alone
@pytest.mark.timeout(PATIENCE + 60)
def test_it_keeps_its_promises_and_leaves_behind_what_it_says(tmp_path: Path) -> None:
    """A single test, because the demo runs once and takes half a minute, mostly waiting."""
    (tmp_path / "tidemill.toml").write_text('url = "redis://127.0.0.1:1"\n', encoding="utf-8")
    done = demo(tmp_path, **FOREIGN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    _judges(done.stdout)
    _notifies(done.stdout)
    _left_behind(tmp_path / "tidemill-demo")
    _is_served(done.stdout, tmp_path / "tidemill-demo")
    _can_be_tried(done.stdout, tmp_path)


def demo(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidemill", "demo"],
        cwd=folder,
        env=environment() | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def _judges(shown: str) -> None:
    verdicts = [line for line in shown.splitlines() if line.startswith(("ok ", "NOT"))]
    assert len(verdicts) == 14
    assert all(line.startswith("ok ") for line in verdicts)


def _notifies(shown: str) -> None:
    """Without a terminal it prints lines."""
    assert "SIMULATOR" in shown.partition("Music:")[0]
    assert "its minute takes 2 seconds here" in shown
    assert re.search(r"songs: \d+ of 60, RUNNING", shown)
    assert re.search(r"BREAKER: the day's quota is gone. All wait [\d.]+ s", shown)
    assert (
        shown.index("BREAKER: ")
        < shown.index("midnight: one job tries")
        < shown.index("songs: 60 of 60, IDLE")
    )
    assert "articles: 40 of 40, 0 in a call" in shown


def _left_behind(folder: Path) -> None:
    query = "SELECT status, count(*), count(vector) FROM songs GROUP BY status"
    assert _asked_of(folder / "music.db", query) == "COMPLETED|60|60"
    query = "SELECT rag_status, hide, count(*) FROM tb_post GROUP BY 1, 2 ORDER BY 2"
    assert _asked_of(folder / "articles.db", query) == "completed|0|39\ncompleted|1|1"


def _is_served(shown: str, folder: Path) -> None:
    """Runs the commands that it prints at the end."""
    commands = [line.strip().partition(" && ") for line in shown.splitlines() if " up " in line]
    served = [up for enter, _, up in commands if enter == "cd tidemill-demo"]
    assert len(served) == 2
    for up in served:
        tidemill, _, application = shlex.split(up)
        with _serving(up, folder) as address:
            token = _token(tidemill, application, folder)
            assert _found(application, address, token)
            if application == "music":
                assert _listed(address, token) == 50


def _can_be_tried(shown: str, folder: Path) -> None:
    """Tries its suggestions: an application is started, paused and stopped beside the demo's files."""
    assert "All songs" in shown
    [line] = [line.strip() for line in shown.splitlines() if "mkdir" in line]
    make, enter, up = line.split(" && ")
    subprocess.run(shlex.split(make), cwd=folder, check=True)
    there = folder / enter.removeprefix("cd ")
    with _serving(up, there) as address:
        asks = {"authorization": f"Bearer {_token(shlex.split(up)[0], 'music', there, 'operator')}"}
        with httpx2.Client(base_url=f"{address}/api/queue", headers=asks, timeout=30) as music:
            assert music.post("/start", json={}).status_code == 200
            while (status := music.get("/status").json())["state"] in ("syncing", "enqueuing"):
                pass
            assert (status["state"], status["totalSongs"], status["simulator"]) == ("running", 60, True)
            assert music.post("/pause").json()["state"] == "paused"
            assert music.post("/stop").json()["cancelled"] > 0


@contextmanager
def _serving(up: str, folder: Path) -> Iterator[str]:
    command = [*shlex.split(up), "--port", "0"]
    # By default music makes no calls for ten minutes around the provider's midnight.
    # This test may run at that time.
    variables = environment() | {"MUSIC_CALLS_MIDNIGHT_SECONDS": "0"}
    with subprocess.Popen(command, cwd=folder, env=variables, stderr=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stderr is not None
            [address] = re.findall(r"(http\S+)/sign-in/", "".join(_until_served(serving.stderr)))
            yield address
        finally:
            serving.terminate()


def _listed(address: str, token: str) -> int:
    """Returns the number of songs on the first page."""
    asks = {"authorization": f"Bearer {token}", "accept": "text/html"}
    page = httpx2.get(f"{address}/music/songs", headers=asks, timeout=30)
    return len(re.findall('href="/music/songs/', page.text))


def _until_served(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if "worker started" in line:
            return


def _token(tidemill: str, application: str, folder: Path, role: str = "viewer") -> str:
    create = [tidemill, "token", "create", "--app", application, "--role", role, "ann"]
    done = subprocess.run(create, cwd=folder, env=environment(), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _found(application: str, address: str, token: str) -> list[Any]:
    """Searches at once, like a user who has just seen the demo."""
    path = {"music": "/api/songs/search", "articles": "/api/post/search"}[application]
    answer = httpx2.get(
        f"{address}{path}",
        params={"text": "月光 moonlight"},
        headers={"authorization": f"Bearer {token}"},
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return list(found["songs"] if application == "music" else found["data"])


def test_half_of_what_it_works_on_is_chinese() -> None:
    titles = [track.title for track in load_sample_tracks()]
    assert len([title for title in titles if CHINESE.search(title)]) * 2 == len(titles)
    titles = [sample.title for sample in load_samples()]
    assert len([title for title in titles if CHINESE.search(title)]) * 2 == len(titles)
    assert len(
        [number for number in QUESTION_NUMBERS if CHINESE.search(load_samples()[number].question)]
    ) * 2 == len(QUESTION_NUMBERS)


def test_make_demo_is_this_demo() -> None:
    done = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "bin/tidemill demo" in done.stdout


def test_an_existing_foreign_folder_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "tidemill-demo").mkdir()
    done = demo(tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "the demo could not run" in done.stderr
    assert "move it away" in done.stderr
    assert not list((tmp_path / "tidemill-demo").iterdir())


def _asked_of(file: Path, query: str) -> str:
    with closing(sqlite3.connect(file)) as connection:
        return "\n".join("|".join(map(str, row)) for row in connection.execute(query))
