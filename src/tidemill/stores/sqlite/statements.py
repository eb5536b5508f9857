"""The statements of this store."""

from __future__ import annotations

from tidemill.stores import statements

_PACKAGE = "tidemill.stores.sqlite"


def load(verb: str) -> statements.Statements:
    return statements.load(_PACKAGE, verb)


def migrations() -> list[tuple[int, str]]:
    return statements.migrations(_PACKAGE)
