"""A witness must not share the arithmetic of what it watches."""

from __future__ import annotations

import ast
from pathlib import Path

import tidemill.testing.providers

FOLDER = Path(tidemill.testing.providers.__file__).parent


def test_nothing_is_borrowed_from_the_core() -> None:
    files = list(FOLDER.rglob("*.py"))
    assert len(files) > 15
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            ours = [name for name in names if name.startswith("tidemill")]
            allowed = ("tidemill.testing.providers", "tidemill.clock", "tidemill.testing.virtual")
            assert all(name.startswith(allowed) for name in ours), (file.name, ours)
