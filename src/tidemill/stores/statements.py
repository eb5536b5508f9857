"""SQL lives in files: one per verb, each statement under a `-- name:` line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)[^\n]*\n", re.MULTILINE)


class Statements:
    """The statements of one file as attributes."""

    def __init__(self, text: str) -> None:
        parts = _NAME.split(text)
        self._statements = dict(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True))

    def __getattr__(self, name: str) -> str:
        try:
            return self._statements[name]
        except KeyError:
            raise AttributeError(name) from None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._statements.items())


@cache
def load(package: str, verb: str) -> Statements:
    """Of the package's folder `sql`."""
    return Statements((files(package) / "sql" / f"{verb}.sql").read_text())


@cache
def migrations(package: str) -> list[tuple[int, str]]:
    """(version, script) of every step of the schema, oldest first: `sql/schema/0001.sql`, or with a
    word for what it is about, `sql/schema/0002-jobs.sql`."""
    folder = files(package) / "sql" / "schema"
    scripts = (entry for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return sorted((int(re.split(r"\D", entry.name)[0]), entry.read_text()) for entry in scripts)
