"""Rules of an existing table that a new row breaks, as a sentence for people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sqlalchemy import Connection, Table, inspect

from tidemill_apps.common.database import Database
from tidemill_apps.common.database_errors import RowRefused
from tidemill_apps.common.tables import must_be_given


@asynccontextmanager
async def explained(database: Database, table: Table, what: str) -> AsyncIterator[None]:
    """Around a transaction that writes rows: a refused row is explained by the table's own rules. The table
    is read again, because a person may have changed it."""
    try:
        yield
    except RowRefused as error:
        async with database.reading() as connection:
            missing = await connection.run_sync(unfilled, table)
        if any(name in error.said for name in missing):
            raise RowRefused(cannot_add(table, missing, what), error.said) from None
        problem = (
            f"the table {table.name} does not take this {what}: {error.said}; change what breaks that rule"
        )
        raise RowRefused(problem, error.said) from None


def unfilled(connection: Connection, table: Table) -> list[str]:
    """Columns of others without which no row can be added. A trigger may fill them all the same, so nothing
    is refused for them before the database does."""
    there = inspect(connection).get_columns(table.name, table.schema)
    return [column["name"] for column in there if column["name"] not in table.c and must_be_given(column)]


def cannot_add(table: Table, missing: Sequence[str], what: str) -> str:
    wanted = " and ".join(f"{name} must have a value and has no default" for name in missing)
    return (
        f"no {what} can be added to the table {table.name}: {wanted}; give such a column a default, or let "
        "it be empty (rows that another program writes are taken up all the same)"
    )
