"""The benchmark of pages asks everything, of a small store too."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.places import Place

from benchmarks import million, pages

JOBS = 1000


async def test_every_question_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pages, "TIMES", 1)
    monkeypatch.setattr(pages, "FLOWS", 2)
    monkeypatch.setattr(million, "RECORDS", 100)
    assert await pages.ask_all(Place("sqlite", str(tmp_path)), JOBS, over=-1.0) > 100
    said = {line[:44].strip(): line[44:].split() for line in capsys.readouterr().out.splitlines()}
    assert said["count all"][3:] == [str(JOBS + 2), "!"], "the first steps of two flows are jobs, too"
    assert said["find failed"][3:] == ["12", "jobs", "!"]
