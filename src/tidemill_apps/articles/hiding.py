"""How a row says that its article is hidden: '0' or '1' as the source has it, or as a number or a truth value
in a table that was there before. Nothing at all is not hidden."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Cast, Column, ColumnElement, Connection, String, Table, cast, func, inspect, literal
from sqlalchemy.types import TypeEngine

SHOWN = "0"


def type_there(connection: Connection, table: Table) -> TypeEngine[Any]:
    """What the column is in the database, whoever made it."""
    columns = inspect(connection).get_columns(table.name, table.schema)
    return next(column["type"] for column in columns if column["name"] == "hide")


def as_there(hide: str, kind: TypeEngine[Any]) -> Cast[Any]:
    """To be written."""
    return cast(literal(hide, String), kind)


def as_read(value: object) -> str:
    return str(int(value)) if isinstance(value, int) else str(value or SHOWN)


def is_shown(column: Column[Any]) -> ColumnElement[bool]:
    return func.coalesce(func.nullif(cast(column, String), ""), SHOWN).in_((SHOWN, "false"))
