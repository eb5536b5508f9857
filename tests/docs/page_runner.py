"""Runs a page like a reader: writes its files, runs its commands, and compares their output.

In order, in an empty folder:

- A `python`, `toml` or `ini` block whose first line is a comment with a file name (`# jobs.py`) is appended
  to that file; with `# jobs.py, from the start` it replaces it.
- A `console` block has commands after `$ ` and their output on a terminal, 110 columns wide. `…` stands for
  anything inside a line, and alone on a line for any lines.
- Other blocks are ignored.

The last line of a block with a failing command is `[exit code 1]`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs import terminal

FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
FILE_COMMENT = re.compile(r"# (?P<file>[\w./-]+\.\w+)(?P<again>, from the start)?\n")
EXIT_CODE = re.compile(r"\[exit code (\d+)\]\n?\Z")


def code_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yields the language and the text of every fenced block."""
    for indent, language, body in FENCE.findall(text):
        yield language, re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)


def run_page(text: str, folder: Path) -> int:
    """Runs a page; returns the number of commands."""
    ran = 0
    for language, body in code_blocks(text):
        named = FILE_COMMENT.match(body)
        if named and language in ("python", "toml", "ini"):
            _write(folder / named["file"], body, again=bool(named["again"]))
        elif language == "console":
            for command, expected in _commands(body):
                _run(command, expected, folder)
                ran += 1
    return ran


def write_files(text: str, folder: Path) -> None:
    """Writes the files only, for tests that use them otherwise."""
    for _, body in code_blocks(text):
        if named := FILE_COMMENT.match(body):
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
    promised = EXIT_CODE.search(expected)
    wanted = EXIT_CODE.sub("", expected)
    assert code == (int(promised[1]) if promised else 0), f"$ {command}\n{printed}"
    assert matches_output(wanted, printed), f"$ {command}\nthe page says\n{wanted}\nit printed\n{printed}"


def matches_output(wanted: str, printed: str) -> bool:
    """Compares the output, ignoring spaces at the ends of lines."""
    pattern = "".join(_line_pattern(line.rstrip()) for line in wanted.strip("\n").splitlines())
    given = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, given) is not None


def _line_pattern(line: str) -> str:
    if line == "…":
        return r"(?:[^\n]*\n)*"
    return r"[^\n]*".join(re.escape(part) for part in line.split("…")) + r"\n"
