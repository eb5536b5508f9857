"""The requirements page: every id once, and no test named that does not exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, page, rows

FAMILIES = {"N": 16, "Q": 16, "E": 13, "S": 19, "V": 10, "X": 8}

ROWS = rows(page("reference/requirements.md"))
SHOWN = [(row[0], test) for row in ROWS for test in row[3].split(", ") if test != "not yet"]


def test_every_requirement_is_listed_once() -> None:
    expected = [f"{letter}{number}" for letter, last in FAMILIES.items() for number in range(1, last + 1)]
    assert [row[0] for row in ROWS] == expected


@pytest.mark.parametrize(("requirement", "test"), SHOWN)
def test_what_is_listed_as_shown_has_a_test(requirement: str, test: str) -> None:
    """`tests/x/test_y.py::test_z`, or a whole file."""
    name, _, function = test.strip("`").partition("::")
    path = ROOT / name
    assert path.is_file(), f"{requirement} names {name}, which does not exist"
    if function:
        assert function in _functions(path), f"{requirement} names {function}, which is not in {name}"


def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
