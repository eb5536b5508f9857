"""The README beyond what is played (test_pages.py): its script can be changed, its commands exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.docs import terminal
from tests.docs.pages import ROOT
from tests.docs.session import write_files

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_script_may_isolate_its_jobs(tmp_path: Path) -> None:
    """The child imports the script again, and must not run it again."""
    write_files(README, tmp_path)
    script = tmp_path / "hello.py"
    text = script.read_text(encoding="utf-8")
    assert text.count('(name="greet")') == 1
    script.write_text(text.replace('(name="greet")', '(name="greet", isolate=True)'), encoding="utf-8")
    assert terminal.run("python hello.py 2>/dev/null", tmp_path) == (0, "Hello, tide!\n")


def test_it_says_how_the_log_looks_where_nobody_looks_on(tmp_path: Path) -> None:
    write_files(README, tmp_path)
    command = [sys.executable, "hello.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "Hello, tide!\n"
    assert [json.loads(line)["event"] for line in ran.stderr.splitlines()] == [
        "worker started",
        "worker stopped",
    ]
    assert "The first two lines are the worker's log; where stderr is no terminal they are JSON." in README


def test_every_make_target_it_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:`|^ +)make ([a-z]+)\b", README, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_the_ten_lines_are_about_ten() -> None:
    [block] = re.findall(r"```python\n# hello.py\n(.*?)```", README, re.DOTALL)
    assert len([line for line in block.splitlines() if line]) <= 10
