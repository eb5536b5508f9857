"""The benchmark of pages asks everything, of a small store too."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.empty_stores import EmptyStore

from benchmarks import large_store, page_speed

JOBS = 1000


async def test_every_question_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page_speed, "REPETITIONS", 1)
    monkeypatch.setattr(page_speed, "FLOWS", 2)
    monkeypatch.setattr(large_store, "RECORDS", 100)
    assert await page_speed.measure_all(EmptyStore("sqlite", str(tmp_path)), JOBS, over=-1.0) > 100
    printed = {line[:44].strip(): line[44:].split() for line in capsys.readouterr().out.splitlines()}
    assert printed["count all"][3:] == [str(JOBS + 2), "!"], "the first steps of two flows are jobs, too"
    assert printed["find failed"][3:] == ["12", "jobs", "!"]
