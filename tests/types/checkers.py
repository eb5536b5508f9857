"""Runs mypy and pyright over the programs and returns their findings by line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

PROGRAMS = Path(__file__).parent / "programs"


class Finding(NamedTuple):
    """`says` is the code of an error, or a revealed type."""

    program: str
    line: int
    says: str


class CheckerOutput(NamedTuple):
    errors: list[Finding]
    revealed: list[Finding]


@cache
def mypy() -> CheckerOutput:
    options = ["--strict", "--no-incremental", "--no-error-summary", "--no-pretty", "--show-error-codes"]
    output = _run([sys.executable, "-m", "mypy", *options, *_programs()])
    errors = re.findall(r"^\S*?(\w+)\.py:(\d+): error: .*\[([\w-]+)\]$", output, re.MULTILINE)
    revealed = re.findall(r'^\S*?(\w+)\.py:(\d+): note: Revealed type is "(.*)"$', output, re.MULTILINE)
    assert len(errors) == len(re.findall(": error:", output)), output
    return CheckerOutput(
        [Finding(program, int(line), code) for program, line, code in errors],
        [Finding(program, int(line), normalise_type(shown)) for program, line, shown in revealed],
    )


@cache
def pyright() -> CheckerOutput:
    output = _run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *_programs()]
    )
    found = CheckerOutput([], [])
    for entry in json.loads(output)["generalDiagnostics"]:
        program, line = Path(entry["file"]).stem, entry["range"]["start"]["line"] + 1
        if entry["severity"] == "error":
            found.errors.append(Finding(program, line, entry["rule"]))
        elif shown := re.fullmatch(r'Type of ".*?" is "(.*)"', entry["message"], re.DOTALL):
            found.revealed.append(Finding(program, line, normalise_type(shown[1])))
    return found


def normalise_type(shown: str) -> str:
    """Returns a type in the notation of both checkers."""
    shown = re.sub(r"\b(?:\w+\.)+(?=\w)", "", shown)  # modules
    shown = re.sub(r"\[\[(.*)\], ", r"[(\1), ", shown)  # mypy's way to write a ParamSpec
    shown = re.sub(r"= ?(?:\"\"|\.\.\.)?(?=[,)])", "= ...", shown)  # mypy shows no defaults
    return shown.removeprefix("def ").replace("CoroutineType[", "Coroutine[")


def _programs() -> list[str]:
    return sorted(str(path) for path in PROGRAMS.glob("*.py"))


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROGRAMS)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout
