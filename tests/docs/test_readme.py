"""What the pages show is what happens: their Python runs, and prints what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGES = ("README.md", "docs/tutorial/first-job.md")


def blocks(text: str, language: str) -> str:
    return "".join(re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("page", PAGES)
def test_the_code_prints_what_the_page_says(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    script = tmp_path / "first.py"
    script.write_text(blocks(text, "python"), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == blocks(text, "text")


def test_every_make_target_the_readme_names_exists() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"(?:`|^ +)make ([a-z]+)\b", readme, re.MULTILINE)) <= targets
