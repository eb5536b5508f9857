"""Applications import only public names of Tidemill, and never each other."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemill_apps

PUBLIC = frozenset(
    {
        "tidemill",
        "tidemill.telemetry.events",
        "tidemill.testing",
        "tidemill.testing.simulator",
        "tidemill.web",
    }
)
APART = ("music", "articles", "feeds", "podcasts")
ROOT = Path(tidemill_apps.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def imported(source: str) -> Iterator[tuple[str, str | None]]:
    """Yields the imported modules, and the names imported from them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports say the whole name"
            yield from ((node.module or "", alias.name) for alias in node.names)


def wrong(source: str, part: str) -> list[str]:
    """Returns the forbidden imports of a file in that part of `tidemill_apps`."""
    return [
        f"{module} {name or ''}".strip()
        for module, name in imported(source)
        if not (_is_public(module, name) and _is_own(f"{module}.{name}", part))
    ]


def _is_public(module: str, name: str | None) -> bool:
    if module.partition(".")[0] != "tidemill":
        return True
    if module not in PUBLIC:
        return False
    return name is None or name in importlib.import_module(module).__all__


def _is_own(full: str, part: str) -> bool:
    others = [f"tidemill_apps.{other}" for other in APART if other != part]
    return part not in APART or not any(f"{full}.".startswith(f"{other}.") for other in others)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_only_public_names_are_imported(file: Path) -> None:
    assert wrong(file.read_text(encoding="utf-8"), file.relative_to(ROOT).parts[0]) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from tidemill.client import Client", ["tidemill.client Client"]),
        ("from tidemill import clock", ["tidemill clock"]),
        ("from tidemill.web import serving", ["tidemill.web serving"]),
        ("import tidemill.app", ["tidemill.app"]),
        ("def f():\n    from tidemill.http_routes.routes import Role", ["tidemill.http_routes.routes Role"]),
        ("from tidemill_apps.articles.posts import Posts", ["tidemill_apps.articles.posts Posts"]),
        ("from tidemill_apps import articles", ["tidemill_apps articles"]),
        ("import tidemill_apps.articles", ["tidemill_apps.articles"]),
        ("from tidemill import Tidemill\nfrom tidemill.web import Role\nimport tidemill_apps.common", []),
    ],
)
def test_this_can_fail(source: str, found: list[str]) -> None:
    assert wrong(source, "music") == found
