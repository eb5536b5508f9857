"""Column types of existing tables: which can hold what the application writes, and which cannot.

Checked at start, before anything is paid. `Column.info` says what is special about a column of ours:
`json`: its text is a JSON document; `any_type`: the application fits itself to what is there; `given`: every
new row has a value; `emptied`: the application writes NULL to it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Enum,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    String,
    Table,
    Text,
    cast,
    inspect,
    literal,
)
from sqlalchemy.types import JSON, NullType, TypeEngine

from tidemill_apps.common.tables import must_be_given

Types = dict[str, TypeEngine[Any]]
KINDS: tuple[type[TypeEngine[Any]], ...] = (
    *(Enum, JSON, String, Boolean),
    *(Integer, Numeric, Float, LargeBinary),
)
"""In this order: an Enum is a String too."""
FITTING: dict[type[TypeEngine[Any]], tuple[type[TypeEngine[Any]], ...]] = {
    String: (String,),
    Integer: (Integer, Numeric, Float),
    Boolean: (Boolean, Integer),
    Float: (Numeric, Float),
    LargeBinary: (LargeBinary,),
}


def problems_with(connection: Connection, metadata: MetaData) -> list[str]:
    """Each names the table, the column, what is there, what is needed and what to do."""
    found = []
    for table in metadata.sorted_tables:
        there = {
            column["name"]: column for column in inspect(connection).get_columns(table.name, table.schema)
        }
        for column in table.columns:
            found += _problems(connection, column, there[column.name])
    return found


def types_there(connection: Connection, table: Table) -> Types:
    return {
        column["name"]: column["type"] for column in inspect(connection).get_columns(table.name, table.schema)
    }


def as_stored(values: dict[str, Any], types: Types) -> dict[str, Any]:
    """Values of columns, as the types that are there take them."""
    return {name: _stored(value, types.get(name)) for name, value in values.items()}


def _stored(value: Any, there: TypeEngine[Any] | None) -> Any:
    if there is None:
        return value
    kind = _kind(there)
    if kind is JSON and isinstance(value, str):
        return cast(literal(value, Text), there)
    if kind is Integer and isinstance(value, bool):
        return literal(int(value), Integer)
    return value


def _problems(connection: Connection, column: Column[Any], there: Any) -> list[str]:
    name, table = column.name, column.table.name
    problem, change = "", ""
    if connection.dialect.name == "postgresql" and not _fits(column, there["type"]):
        needed = column.type.compile(dialect=connection.dialect)
        problem, change = f"as {_told(there['type'])}, and {needed} is needed", f"TYPE {needed}"
    elif _must_be_nullable(column, there):
        problem, change = "as NOT NULL, and it has to be empty in some rows", "DROP NOT NULL"
    if not problem:
        return []
    remedy = f"change it with ALTER TABLE {table} ALTER COLUMN {name} {change}, or name another database"
    return [f"the table {table} has the column {name} {problem}; {remedy}"]


def _must_be_nullable(column: Column[Any], there: Any) -> bool:
    if there["nullable"] or not column.nullable or column.info.get("given"):
        return False
    return bool(column.info.get("emptied")) or must_be_given(there)


def _fits(column: Column[Any], there: TypeEngine[Any]) -> bool:
    """Asked on PostgreSQL only: SQLite takes any value in any column."""
    if column.info.get("any_type"):
        return True
    kind, needed = _kind(there), _kind(column.type)
    if kind is JSON:
        return bool(column.info.get("json"))
    if needed is None or kind not in FITTING[needed]:
        return False
    if isinstance(column.type, Text):
        return getattr(there, "length", None) is None
    if isinstance(column.type, BigInteger) and kind is Integer and not column.primary_key:
        return isinstance(there, BigInteger)
    return True


def _kind(of: TypeEngine[Any]) -> type[TypeEngine[Any]] | None:
    return next((kind for kind in KINDS if isinstance(of, kind)), None)


def _told(there: TypeEngine[Any]) -> str:
    return "a type that is not known here" if isinstance(there, NullType) else str(there).lower()
