"""A page is played as a reader would: its files are written, its commands run, their output compared.

In order, in an empty folder:

- a `python`, `toml` or `ini` block whose first line is a comment naming a file (`# jobs.py`) goes to the
  end of that file; with `# jobs.py, from the start` it replaces it
- a `console` block holds commands after `$ ` and what they print on a terminal, 110 columns wide;
  `…` stands for anything inside a line, and alone on a line for any lines
- other blocks are left alone

A command that is to end badly says so in the block's last line: `[exit code 1]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs import terminal

FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# (?P<file>[\w./-]+\.\w+)(?P<again>, from the start)?\n")
CODE = re.compile(r"\[exit code (\d+)\]\n?\Z")


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
    code, printed = terminal.run(command, folder)
    promised = CODE.search(expected)
    wanted = CODE.sub("", expected)
    assert code == (int(promised[1]) if promised else 0), f"$ {command}\n{printed}"
    assert same(wanted, printed), f"$ {command}\nthe page says\n{wanted}\nit printed\n{printed}"


def same(wanted: str, printed: str) -> bool:
    """Spaces at the ends of lines are nobody's business."""
    pattern = "".join(_line_pattern(line.rstrip()) for line in wanted.strip("\n").splitlines())
    given = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, given) is not None


def _line_pattern(line: str) -> str:
    if line == "…":
        return r"(?:[^\n]*\n)*"
    return r"[^\n]*".join(re.escape(part) for part in line.split("…")) + r"\n"
