"""The comparison of two checkouts measures both, and refuses a folder that is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_comparison(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.checkout_comparison", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


def test_a_checkout_is_compared_with_itself() -> None:
    ended = run_comparison(str(ROOT), "--store", "sqlite", "--jobs", "20", "--rounds", "1")
    assert ended.returncode == 0, ended.stderr
    assert [line.split()[:2] for line in ended.stdout.splitlines()] == [
        ["sqlite", "other"],
        ["sqlite", "this"],
        ["sqlite", "ratio"],
    ]


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    ended = run_comparison(str(tmp_path))
    assert ended.returncode == 2
    assert "other: must be the folder of a checkout that has src/tidemill" in ended.stderr
