"""The environment of the demo: its folder, its clock, its screen."""

from __future__ import annotations

import asyncio
from datetime import datetime
from io import StringIO
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from rich.console import Console

from tidemill_apps.demo.environment import DEMO_FOLDER, FOLDER_MARKER, ZONE, MidnightClock, enter_demo_folder
from tidemill_apps.demo.screen import DemoProgressBar, DemoScreen


def test_its_clock_is_just_before_a_midnight_that_has_been() -> None:
    clock = MidnightClock(20)
    local = datetime.fromtimestamp(clock.wall(), ZoneInfo(ZONE))
    assert (local.hour, local.minute) == (23, 59)
    assert 39 < local.second + local.microsecond / 1e6 < 45
    assert clock.wall() < clock.midnight < clock.wall() + 20
    assert clock.midnight < MidnightClock(0)._real.wall()


def test_it_goes_on_where_it_was_set_to() -> None:
    clock = MidnightClock(20)
    before = clock.wall(), clock.boot()
    passed = clock.boot() - before[1]
    assert clock.wall() - before[0] == pytest.approx(passed, abs=0.05)


def test_files_of_an_earlier_demo_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"MUSIC_API_KEY": "not for a demo", "TIDEMILL_URL": "redis://somebody", "TERM": "xterm"}
    (tmp_path / DEMO_FOLDER).mkdir()
    (tmp_path / DEMO_FOLDER / FOLDER_MARKER).touch()
    (tmp_path / DEMO_FOLDER / "music.db").write_text("old", encoding="utf-8")
    enter_demo_folder(environ)
    assert Path.cwd() == tmp_path / DEMO_FOLDER
    assert [path.name for path in Path().iterdir()] == [FOLDER_MARKER]
    assert environ == {"TERM": "xterm"}


def test_an_existing_foreign_folder_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / DEMO_FOLDER / "diary.txt"
    mine.parent.mkdir()
    mine.write_text("dear diary", encoding="utf-8")
    with pytest.raises(FileExistsError, match="move it away"):
        enter_demo_folder({})
    assert mine.read_text(encoding="utf-8") == "dear diary"


async def test_elsewhere_than_on_a_terminal_it_prints_lines() -> None:
    printed = StringIO()
    screen = DemoScreen(Console(file=printed, width=20))
    bars = [
        DemoProgressBar("songs", 3, 40, "half of them Chinese"),
        DemoProgressBar("requests a minute", 5, 5),
    ]

    async def look() -> list[DemoProgressBar]:
        return bars

    async with screen.show_progress(look):
        screen.log("a line that is longer than the paper is wide")
    assert printed.getvalue().splitlines() == [
        "  0.0 s  a line that is longer than the paper is wide",
        "  0.0 s  songs: 3 of 40, half of them Chinese; requests a minute: 5 of 5",
    ]


async def test_on_a_terminal_it_draws_bars() -> None:
    printed = StringIO()
    screen = DemoScreen(Console(file=printed, width=80, force_terminal=True, no_color=True))
    drawn = asyncio.Event()

    async def look() -> list[DemoProgressBar]:
        drawn.set()
        return [DemoProgressBar("songs", 20, 40, "RUNNING")]

    async with screen.show_progress(look):
        await drawn.wait()
        screen.log("said meanwhile")
    screen.print("said afterwards")
    assert "said meanwhile" in printed.getvalue()
    assert "━" in printed.getvalue()
    assert "20 of 40" in printed.getvalue()
    assert printed.getvalue().endswith("said afterwards\n")
