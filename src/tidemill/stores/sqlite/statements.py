"""Loads the SQL of this store."""

from __future__ import annotations

from tidemill.stores import statements

_PACKAGE = "tidemill.stores.sqlite"


def load_statements(verb: str) -> statements.SqlStatements:
    return statements.load_statements(_PACKAGE, verb)


def load_migrations() -> list[tuple[int, str]]:
    return statements.load_migrations(_PACKAGE)
