"""The README: its commands exist, and the Chinese README matches it (X8)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.docs import terminal
from tests.docs.page_runner import code_blocks, write_files
from tests.docs.pages import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_script_may_isolate_its_jobs(tmp_path: Path) -> None:
    """The child imports the script again, and must not run it again."""
    write_files(README, tmp_path)
    script = tmp_path / "hello.py"
    text = script.read_text(encoding="utf-8")
    assert text.count('(name="greet")') == 1
    script.write_text(text.replace('(name="greet")', '(name="greet", isolate=True)'), encoding="utf-8")
    assert terminal.run("python hello.py 2>/dev/null", tmp_path) == (0, "Hello, tide!\n")


def test_the_log_is_json_when_stderr_is_no_terminal(tmp_path: Path) -> None:
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


ENGLISH, CHINESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md"))


def commands(text: str) -> list[str]:
    """Returns the commands: indented lines, without their comments."""
    return [line.partition("#")[0].strip() for line in text.splitlines() if re.match(r" {4}\S", line)]


def links(text: str) -> list[str]:
    """Returns the link targets, without the links between the two READMEs and without images, which differ
    by language."""
    found = re.findall(r"(?<!!)\[[^\]]*\]\(([^)]+)\)", text)
    return [link for link in found if not link.startswith("README")]


def named(text: str) -> list[str]:
    """Returns the text in backticks outside of blocks: commands, names and options."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def test_the_programs_and_what_they_print_are_the_same_x8() -> None:
    assert list(code_blocks(CHINESE)) == list(code_blocks(ENGLISH))


def test_the_commands_are_the_same_x8() -> None:
    assert commands(CHINESE) == commands(ENGLISH)
    assert "make demo" in commands(CHINESE)


def test_it_names_the_same_commands_in_its_sentences_x8() -> None:
    english = {name for name in named(ENGLISH) if " " in name}
    assert english <= set(named(CHINESE))


def test_it_has_the_same_sections_and_leads_to_the_same_pages_x8() -> None:
    assert CHINESE.count("\n## ") == ENGLISH.count("\n## ")
    assert links(CHINESE) == links(ENGLISH)


def test_each_leads_to_the_other() -> None:
    assert "](README.zh-CN.md)" in ENGLISH
    assert "](README.md)" in CHINESE
