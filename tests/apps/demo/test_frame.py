"""What the demo stands in: its folder, its clock, its screen."""

from __future__ import annotations

import asyncio
from datetime import datetime
from io import StringIO
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from rich.console import Console

from tidemill_apps.demo.midnight import ZONE, BeforeMidnight
from tidemill_apps.demo.place import FOLDER, MARK, enter
from tidemill_apps.demo.screen import Bar, Screen


def test_its_clock_is_just_before_a_midnight_that_has_been() -> None:
    clock = BeforeMidnight(20)
    local = datetime.fromtimestamp(clock.wall(), ZoneInfo(ZONE))
    assert (local.hour, local.minute) == (23, 59)
    assert 39 < local.second + local.microsecond / 1e6 < 45
    assert clock.wall() < clock.midnight < clock.wall() + 20
    assert clock.midnight < BeforeMidnight(0)._real.wall()


def test_it_goes_on_where_it_was_set_to() -> None:
    clock = BeforeMidnight(20)
    before = clock.wall(), clock.boot()
    passed = clock.boot() - before[1]
    assert clock.wall() - before[0] == pytest.approx(passed, abs=0.05)


def test_what_an_earlier_demo_left_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"MUSIC_API_KEY": "not for a demo", "TIDEMILL_URL": "redis://somebody", "TERM": "xterm"}
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / MARK).touch()
    (tmp_path / FOLDER / "music.db").write_text("old", encoding="utf-8")
    enter(environ)
    assert Path.cwd() == tmp_path / FOLDER
    assert [path.name for path in Path().iterdir()] == [MARK]
    assert environ == {"TERM": "xterm"}


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / FOLDER / "diary.txt"
    mine.parent.mkdir()
    mine.write_text("dear diary", encoding="utf-8")
    with pytest.raises(FileExistsError, match="move it away"):
        enter({})
    assert mine.read_text(encoding="utf-8") == "dear diary"


async def test_elsewhere_than_on_a_terminal_it_prints_lines() -> None:
    printed = StringIO()
    screen = Screen(Console(file=printed, width=20))
    bars = [Bar("songs", 3, 40, "half of them Chinese"), Bar("requests a minute", 5, 5)]

    async def look() -> list[Bar]:
        return bars

    async with screen.following(look):
        screen.say("a line that is longer than the paper is wide")
    assert printed.getvalue().splitlines() == [
        "  0.0 s  a line that is longer than the paper is wide",
        "  0.0 s  songs: 3 of 40, half of them Chinese; requests a minute: 5 of 5",
    ]


async def test_on_a_terminal_it_draws_bars() -> None:
    printed = StringIO()
    screen = Screen(Console(file=printed, width=80, force_terminal=True, no_color=True))
    drawn = asyncio.Event()

    async def look() -> list[Bar]:
        drawn.set()
        return [Bar("songs", 20, 40, "RUNNING")]

    async with screen.following(look):
        await drawn.wait()
        screen.say("said meanwhile")
    screen.plain("said afterwards")
    assert "said meanwhile" in printed.getvalue()
    assert "━" in printed.getvalue()
    assert "20 of 40" in printed.getvalue()
    assert printed.getvalue().endswith("said afterwards\n")
