"""What a table that was there before wants of a row, and articles know nothing of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Connection, Table, inspect
from sqlalchemy.exc import IntegrityError

from tidemill import TidemillError
from tidemill_apps.common.database import Database

FILLED_BY = ("default", "computed", "identity")


class RowRefused(TidemillError):
    """The table does not take the article, and nothing is changed; a route answers 409 with the sentence."""


@asynccontextmanager
async def minded(database: Database, table: Table) -> AsyncIterator[None]:
    """Around a transaction that writes what a person wrote. The table is looked at anew: whoever has read
    the sentence may have mended it since."""
    try:
        yield
    except IntegrityError as error:
        said = str(error.orig).rpartition("'>: ")[2].partition("\n")[0]
        async with database.reading() as connection:
            missing = await connection.run_sync(unfilled, table)
        if any(name in said for name in missing):
            raise RowRefused(told(table, missing)) from None
        raise RowRefused(
            f"the table {table.name} does not take this article: {said}; change what breaks that rule"
        ) from None


def unfilled(connection: Connection, table: Table) -> list[str]:
    """Columns of others without which no row can be added. A trigger may fill them all the same, so nothing
    is refused for them before the database does."""
    there = inspect(connection).get_columns(table.name, table.schema)
    return [column["name"] for column in there if column["name"] not in table.c and _must_be_given(column)]


def told(table: Table, missing: Sequence[str]) -> str:
    wanted = " and ".join(f"{name} must have a value and has no default" for name in missing)
    return (
        f"no article can be added to the table {table.name}: {wanted}; give such a column a default, or let "
        "it be empty (rows that another program writes are embedded all the same)"
    )


def _must_be_given(column: Any) -> bool:
    return not column["nullable"] and all(column.get(name) is None for name in FILLED_BY)
