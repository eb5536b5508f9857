"""The statements of this store. They are written for the schema `tidemill`, so that they can be run by
hand; a store in another schema has them read `moved`."""

from __future__ import annotations

import re

from tidemill.stores import statements

DEFAULT_SCHEMA = "tidemill"

_PACKAGE = "tidemill.stores.postgres"
_QUALIFIER = re.compile(rf"\b{DEFAULT_SCHEMA}\.(?=[a-z_])")


def load(verb: str) -> statements.Statements:
    return statements.load(_PACKAGE, verb)


def migrations() -> list[tuple[int, str]]:
    return statements.migrations(_PACKAGE)


def moved(sql: str, schema: str) -> str:
    """The same for another schema. A `search_path` would not do: it belongs to a session, and behind
    a pooler the next statement may be another session's."""
    if schema == DEFAULT_SCHEMA:
        return sql
    return _QUALIFIER.sub(f"{quoted(schema)}.".replace("\\", r"\\"), sql)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
