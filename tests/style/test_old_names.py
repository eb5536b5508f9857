"""No name from before the renaming comes back: modules, identifiers, stored and printed words."""

from __future__ import annotations

import io
import re
import tokenize
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.style.figures import ROOT, tracked

HERE = Path(__file__).parent
OLD = tomllib.loads((HERE / "old_names.toml").read_text(encoding="utf-8"))
MODULES: list[str] = OLD["modules"]
IDENTIFIERS = frozenset(OLD["identifiers"])
WORDS: list[str] = OLD["words"]

# The changelog tells history; the list itself has to name what it forbids.
EXEMPT = {"CHANGELOG.md", str((HERE / "old_names.toml").relative_to(ROOT))}
BINARY = {".png", ".jpg", ".ico", ".woff2", ".mp3", ".wav", ".gz", ".db", ".pem"}


@cache
def texts() -> dict[str, str]:
    """The text of every tracked file."""
    paths = [path for path in tracked() if path not in EXEMPT and Path(path).suffix not in BINARY]
    return {path: (ROOT / path).read_text(encoding="utf-8", errors="replace") for path in paths}


def places(pattern: str, names: frozenset[str]) -> list[str]:
    """Every `path:line: name` where a match of the pattern, or a dotted prefix of it, is one of the names."""
    found = []
    for path, text in texts().items():
        for hit in re.finditer(pattern, text):
            parts = hit[0].split(".")
            if any(".".join(parts[:end]) in names for end in range(1, len(parts) + 1)):
                found.append(f"{path}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]}")
    return found


def test_no_old_module_is_named() -> None:
    assert places(r"(?<![\w./])[a-z_]+(?:\.\w+)+", frozenset(MODULES)) == []


def test_no_old_file_is_named() -> None:
    files = frozenset(module.replace(".", "/") for module in MODULES)
    assert places(r"(?<![\w./])(?:tidemill\w*|tests|benchmarks)(?:/\w+)+(?=\.py\b)", files) == []


def test_no_old_word_is_left() -> None:
    assert places(r"(?<![\w.])\w+", frozenset(WORDS)) == []


def identifiers(text: str) -> set[str]:
    """The identifiers of a Python file, also those inside f-strings."""
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            found.add(token.string)
        elif token.type == tokenize.STRING and token.string[:2].lower() in ('f"', "f'", "rf", "fr"):
            found.update(re.findall(r"\b[A-Za-z_]\w*\b", " ".join(re.findall(r"\{([^{}]*)\}", token.string))))
    return found


def test_no_old_identifier_is_left() -> None:
    found = {path: identifiers(text) & IDENTIFIERS for path, text in texts().items() if path.endswith(".py")}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("text", ["x = Old(1)", "def f(a: Old) -> None: ...", 'print(f"{Old} here")'])
def test_an_identifier_is_seen_wherever_it_stands(text: str) -> None:
    assert "Old" in identifiers(text)
