"""Adds missing tables and columns to an existing database, and checks the types of existing columns."""

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
    func,
    inspect,
    literal,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.types import JSON, NullType, TypeEngine

SCHEMA_LOCK_ID = 0x7469_6465_6D69_6C6C
"""Id of the advisory lock that serialises processes starting together."""


VALUE_SOURCES = ("default", "computed", "identity")


class AddColumn(ExecutableDDLElement):
    inherit_cache = False

    def __init__(self, table: Table, column: Column[Any]) -> None:
        self.table, self.column = table, column


@compiles(AddColumn)
def _add_column(element: AddColumn, compiler: Any, **_: Any) -> str:
    table = compiler.preparer.format_table(element.table)
    return f"ALTER TABLE {table} ADD COLUMN {compiler.get_column_specification(element.column)}"


def create_missing_tables(connection: Connection, metadata: MetaData) -> None:
    """Creates the tables, columns and indexes of `metadata` that are missing, in the caller's transaction.
    Missing unique indexes of existing tables are not created, because existing rows may violate them."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(SCHEMA_LOCK_ID)))
    metadata.create_all(connection)
    for table in metadata.sorted_tables:
        there = {column["name"] for column in inspect(connection).get_columns(table.name, table.schema)}
        for column in table.columns:
            if column.name not in there:
                connection.execute(AddColumn(table, _nullable_copy(column)))
        for index in table.indexes:
            if not index.unique:  # existing rows may violate a unique index
                index.create(connection, checkfirst=True)


def _nullable_copy(column: Column[Any]) -> Column[Any]:
    """Returns a copy of the column, to be added to an existing table. The copy allows NULL if the column has
    no database default, because existing rows have no value for it."""
    nullable = column.nullable or column.server_default is None
    made: Column[Any] = Column(
        column.name, column.type, nullable=nullable, server_default=column.server_default
    )
    Table(column.table.name, MetaData(), made)
    return made


def requires_value(column: Any) -> bool:
    """True if a new row needs a value for this column: it is NOT NULL and has no default. `column` is a
    column description from SQLAlchemy's inspector."""
    return not column["nullable"] and all(column.get(name) is None for name in VALUE_SOURCES)


ColumnTypes = dict[str, TypeEngine[Any]]
TYPE_KINDS: tuple[type[TypeEngine[Any]], ...] = (
    *(Enum, JSON, String, Boolean),
    *(Integer, Numeric, Float, LargeBinary),
)
"""The order matters: an Enum is also a String."""
COMPATIBLE_TYPES: dict[type[TypeEngine[Any]], tuple[type[TypeEngine[Any]], ...]] = {
    String: (String,),
    Integer: (Integer, Numeric, Float),
    Boolean: (Boolean, Integer),
    Float: (Numeric, Float),
    LargeBinary: (LargeBinary,),
}


def find_column_problems(connection: Connection, metadata: MetaData) -> list[str]:
    """Returns one sentence for each existing column that the application cannot use. The sentence names
    table, column, problem and remedy."""
    found = []
    for table in metadata.sorted_tables:
        there = {
            column["name"]: column for column in inspect(connection).get_columns(table.name, table.schema)
        }
        for column in table.columns:
            found += _find_problems(connection, column, there[column.name])
    return found


def load_column_types(connection: Connection, table: Table) -> ColumnTypes:
    return {
        column["name"]: column["type"] for column in inspect(connection).get_columns(table.name, table.schema)
    }


def cast_values(values: dict[str, Any], types: ColumnTypes) -> dict[str, Any]:
    """Returns the values, converted to the types that the columns have in the database. `values` maps column
    names to values. `types` maps column names to types."""
    return {name: _cast_value(value, types.get(name)) for name, value in values.items()}


def _cast_value(value: Any, there: TypeEngine[Any] | None) -> Any:
    if there is None:
        return value
    kind = _type_kind(there)
    if kind is JSON and isinstance(value, str):
        return cast(literal(value, Text), there)
    if kind is Integer and isinstance(value, bool):
        return literal(int(value), Integer)
    return value


def _find_problems(connection: Connection, column: Column[Any], there: Any) -> list[str]:
    name, table = column.name, column.table.name
    problem, change = "", ""
    if connection.dialect.name == "postgresql" and not _is_compatible(column, there["type"]):
        needed = column.type.compile(dialect=connection.dialect)
        problem, change = f"as {_format_type(there['type'])}, and {needed} is needed", f"TYPE {needed}"
    elif _must_be_nullable(column, there):
        problem, change = "as NOT NULL, and it has to be empty in some rows", "DROP NOT NULL"
    if not problem:
        return []
    remedy = f"change it with ALTER TABLE {table} ALTER COLUMN {name} {change}, or name another database"
    return [f"the table {table} has the column {name} {problem}; {remedy}"]


def _must_be_nullable(column: Column[Any], there: Any) -> bool:
    if there["nullable"] or not column.nullable or column.info.get("always_set"):
        return False
    return bool(column.info.get("writes_null")) or requires_value(there)


def _is_compatible(column: Column[Any], there: TypeEngine[Any]) -> bool:
    """True if the existing type `there` can hold the values of `column`. Used on PostgreSQL only, because
    SQLite stores any value in any column."""
    if column.info.get("any_type"):
        return True
    kind, needed = _type_kind(there), _type_kind(column.type)
    if kind is JSON:
        return bool(column.info.get("json"))
    if needed is None or kind not in COMPATIBLE_TYPES[needed]:
        return False
    if isinstance(column.type, Text):
        return getattr(there, "length", None) is None
    if isinstance(column.type, BigInteger) and kind is Integer and not column.primary_key:
        return isinstance(there, BigInteger)
    return True


def _type_kind(of: TypeEngine[Any]) -> type[TypeEngine[Any]] | None:
    return next((kind for kind in TYPE_KINDS if isinstance(of, kind)), None)


def _format_type(there: TypeEngine[Any]) -> str:
    return "a type that is not known here" if isinstance(there, NullType) else str(there).lower()
