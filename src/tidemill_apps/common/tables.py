"""Tables as an application needs them, beside what is there already.

An existing system keeps its tables, its columns and their types: what is missing is added, nothing is
dropped, renamed or changed.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Connection, MetaData, Table, func, inspect, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement

PREPARING = 0x7469_6465_6D69_6C6C
"""The name of the lock that processes which start together take in turn; a number is all it may be."""


FILLED_BY = ("default", "computed", "identity")


class AddColumn(ExecutableDDLElement):
    inherit_cache = False

    def __init__(self, table: Table, column: Column[Any]) -> None:
        self.table, self.column = table, column


@compiles(AddColumn)
def _add_column(element: AddColumn, compiler: Any, **_: Any) -> str:
    table = compiler.preparer.format_table(element.table)
    return f"ALTER TABLE {table} ADD COLUMN {compiler.get_column_specification(element.column)}"


def create_missing(connection: Connection, metadata: MetaData) -> None:
    """In a transaction of the caller's. On SQLite that has the file for itself from its beginning."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(PREPARING)))
    metadata.create_all(connection)
    for table in metadata.sorted_tables:
        there = {column["name"] for column in inspect(connection).get_columns(table.name, table.schema)}
        for column in table.columns:
            if column.name not in there:
                connection.execute(AddColumn(table, _addable(column)))
        for index in table.indexes:
            if not index.unique:  # what is there may break a rule that it never knew
                index.create(connection, checkfirst=True)


def _addable(column: Column[Any]) -> Column[Any]:
    """Rows that are there have no value for it: without a default of the database it may be empty."""
    nullable = column.nullable or column.server_default is None
    made: Column[Any] = Column(
        column.name, column.type, nullable=nullable, server_default=column.server_default
    )
    Table(column.table.name, MetaData(), made)
    return made


def must_be_given(column: Any) -> bool:
    """Whether a new row needs a value for the column; `column` is as the inspector describes it."""
    return not column["nullable"] and all(column.get(name) is None for name in FILLED_BY)
