"""The requirements page: every id is there once, every named test exists, and no requirement with code
lacks a test."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, page, rows

FAMILIES = {"N": 16, "Q": 16, "E": 13, "S": 19, "V": 10, "X": 8}
APPLICATIONS = {"N": "music", "Q": "feeds", "E": "articles", "S": "feeds", "V": "dubbing"}
"""The subject of each family of ids."""
PARTS = {
    *("engine", "pools", "flows", "schedules", "web", "deployment", "redis", "rabbitmq", "applications"),
    *("feeds", "podcasts", *APPLICATIONS.values()),
}

ROWS = rows(page("reference/requirements.md"))
SHOWN = [(row[0], test) for row in ROWS for test in row[3].split(", ") if test != "not yet"]


def is_there(application: str) -> bool:
    return (ROOT / "src" / "tidemill_apps" / application / "app.py").is_file()


def test_every_requirement_is_listed_once() -> None:
    expected = [f"{letter}{number}" for letter, last in FAMILIES.items() for number in range(1, last + 1)]
    assert [row[0] for row in ROWS] == expected


@pytest.mark.parametrize(("requirement", "test"), SHOWN)
def test_every_cited_test_exists(requirement: str, test: str) -> None:
    """`tests/x/test_y.py::test_z`, or a whole file."""
    name, _, function = test.strip("`").partition("::")
    path = ROOT / name
    assert path.is_file(), f"{requirement} names {name}, which does not exist"
    if function:
        assert function in _functions(path), f"{requirement} names {function}, which is not in {name}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_requirements_of_an_application_cite_its_tests(row: list[str]) -> None:
    requirement, _, where, shown = row
    application = APPLICATIONS.get(requirement[0])
    if application is not None and is_there(application):
        assert "not yet" not in shown, f"{application} is there, and nothing shows {requirement}"
    for part in where.split(", "):
        assert part in PARTS, f"{requirement} belongs to {part}, which is no part of this"
        if is_there(part):
            assert f"`tests/apps/{part}/" in shown, f"{part} is there, and no test of it shows {requirement}"


@cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
