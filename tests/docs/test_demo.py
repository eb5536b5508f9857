"""`make demo` judges itself; here somebody looks at its judgement."""

from __future__ import annotations

import subprocess
import sys


def test_the_demo_ends_well() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidemill.demo"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    verdicts = [line for line in done.stdout.splitlines() if line.startswith(("ok ", "NOT"))]
    assert len(verdicts) == 6
    assert all(line.startswith("ok ") for line in verdicts)
