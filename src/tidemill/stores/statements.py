"""Loads SQL statements from the `.sql` files of a store. In a file each statement follows a line `-- name:
<name>`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)[^\n]*\n", re.MULTILINE)


class SqlStatements:
    """The SQL statements of one file. Each statement is an attribute with its name, such as `SQL.insert`.
    Iterating yields (name, statement) pairs."""

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
def load_statements(package: str, verb: str) -> SqlStatements:
    """Returns the statements of the file `sql/<verb>.sql` in `package`."""
    return SqlStatements((files(package) / "sql" / f"{verb}.sql").read_text())


@cache
def load_migrations(package: str) -> list[tuple[int, str]]:
    """Returns (version, script) for every version of the schema, oldest first. A file name starts with its
    version: `sql/schema/0001-schema.sql`. The files of one version are joined in the order of their names."""
    folder = files(package) / "sql" / "schema"
    scripts: dict[int, str] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            version = int(re.split(r"\D", entry.name)[0])
            scripts[version] = f"{scripts.get(version, '')}{entry.read_text()}\n"
    return sorted(scripts.items())
