"""A page is played as a reader would: its files are written, its commands run, their output compared.

In order, in an empty folder:

- a `python`, `toml` or `ini` block whose first line is a comment naming a file (`# jobs.py`) goes to the
  end of that file; with `# jobs.py, from the start` it replaces it
- a `console` block holds commands after `$ ` and what they print, stdout and stderr together;
  `…` stands for anything inside a line, and alone on a line for any lines
- other blocks are left alone

A command that is to end badly says so in the block's last line: `[exit code 1]`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# (?P<file>[\w./-]+\.\w+)(?P<again>, from the start)?\n")
CODE = re.compile(r"\[exit code (\d+)\]\n?\Z")
PATIENCE = 60.0


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The language and the text of every fenced block."""
    for indent, language, body in FENCE.findall(text):
        yield language, re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)


def play(text: str, folder: Path) -> int:
    """How many commands were run."""
    ran = 0
    for language, body in blocks(text):
        named = NAMED.match(body)
        if named and language in ("python", "toml", "ini"):
            _write(folder / named["file"], body, again=bool(named["again"]))
        elif language == "console":
            for command, expected in _commands(body):
                _run(command, expected, folder)
                ran += 1
    return ran


def write_files(text: str, folder: Path) -> None:
    """Only the files, for tests that do something else with them."""
    for _, body in blocks(text):
        if named := NAMED.match(body):
            _write(folder / named["file"], body, again=bool(named["again"]))


def _write(path: Path, body: str, *, again: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w" if again else "a", encoding="utf-8") as file:
        file.write(body + "\n")


def _commands(body: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def _run(command: str, expected: str, folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    code = CODE.search(expected)
    wanted = CODE.sub("", expected)
    assert done.returncode == (int(code[1]) if code else 0), f"$ {command}\n{done.stdout}"
    assert same(wanted, done.stdout), f"$ {command}\nthe page says\n{wanted}\nit printed\n{done.stdout}"


def environment() -> dict[str, str]:
    """A terminal without settings of ours, where `python` and `tidemill` are this installation's."""
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "PYTEST_"))
    }
    found_first = f"{Path(sys.executable).parent}{os.pathsep}{plain.get('PATH', '')}"
    return plain | {"PATH": found_first, "COLUMNS": "110", "PYTHONDONTWRITEBYTECODE": "1"}


def same(wanted: str, printed: str) -> bool:
    """Spaces at the ends of lines are nobody's business."""
    lines = [line.rstrip() for line in wanted.strip("\n").splitlines()]
    pattern = "\n".join(".*" if line == "…" else _line_pattern(line) for line in lines)
    given = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, given, re.DOTALL) is not None


def _line_pattern(line: str) -> str:
    return r"[^\n]*".join(re.escape(part) for part in line.split("…"))
