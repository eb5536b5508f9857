"""Loads the SQL statements of the PostgreSQL store, and adapts them to the schema in use.

The files name the schema `tidemill`, so that you can run the statements by hand."""

from __future__ import annotations

import re

from tidemill.stores import statements

DEFAULT_SCHEMA = "tidemill"

_PACKAGE = "tidemill.stores.postgres"
_QUALIFIER = re.compile(rf"\b{DEFAULT_SCHEMA}\.(?=[a-z_])")


def load_statements(verb: str) -> statements.SqlStatements:
    return statements.load_statements(_PACKAGE, verb)


def load_migrations() -> list[tuple[int, str]]:
    return statements.load_migrations(_PACKAGE)


def qualify(sql: str, schema: str) -> str:
    """Returns the statement with the schema name `tidemill` replaced by `schema`. A `search_path` would not
    work behind a pooler, where the next statement may run in another session."""
    if schema == DEFAULT_SCHEMA:
        return sql
    return _QUALIFIER.sub(f"{quote_name(schema)}.".replace("\\", r"\\"), sql)


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
