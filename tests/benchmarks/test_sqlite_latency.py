"""The measurement of start latency runs, and judges what it measured."""

import sys
from pathlib import Path

import pytest

from benchmarks import sqlite_latency


@pytest.mark.parametrize(("slowest", "code"), [(0.1, 0), (0.101, 1)])
def test_the_exit_code_depends_on_p99(
    slowest: float,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(sqlite_latency, "measure", lambda *_: [0.01] * 98 + [slowest] * 2)
    monkeypatch.setattr(sys, "argv", ["sqlite_latency", "--folder", str(tmp_path)])
    assert sqlite_latency.main() == code
    assert f"p50 10.0 ms, p99 {slowest * 1e3:.1f} ms" in capsys.readouterr().out


def test_latencies_are_measured_across_processes(tmp_path: Path) -> None:
    latencies = sqlite_latency.measure(tmp_path, jobs=5, neighbours=1)
    assert len(latencies) == 5
    assert latencies == sorted(latencies)
    assert latencies[0] > 0
