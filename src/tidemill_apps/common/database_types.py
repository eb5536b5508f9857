"""Column types for tables of other programs, and an insert that updates the row if it exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, String, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeDecorator, TypeEngine


class UuidText(TypeDecorator[str]):
    """A UUID as text. The column is UUID on PostgreSQL, unless an existing table has text there
    (`text=True`), and text on SQLite."""

    impl = String
    cache_ok = True

    def __init__(self, *, text: bool = False) -> None:
        super().__init__()
        self.text = text

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        native = dialect.name == "postgresql" and not self.text
        return dialect.type_descriptor(postgresql.UUID(as_uuid=False) if native else String())

    def process_result_value(self, value: Any, _: Dialect) -> str | None:
        return None if value is None else str(value)


class UnixTime(TypeDecorator[float]):
    """A wall time in seconds. The column is TIMESTAMPTZ on PostgreSQL, and ISO 8601 text on SQLite. An
    existing PostgreSQL column may be a timestamp without zone (`naive=True`); its values are UTC."""

    impl = String
    cache_ok = True

    def __init__(self, *, naive: bool = False) -> None:
        super().__init__()
        self.naive = naive

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        native = dialect.name == "postgresql"
        return dialect.type_descriptor(DateTime(timezone=not self.naive) if native else String())

    def process_bind_param(self, value: float | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        moment = datetime.fromtimestamp(value, UTC)
        if dialect.name != "postgresql":
            return moment.isoformat()
        return moment.replace(tzinfo=None) if self.naive else moment

    def process_result_value(self, value: Any, _: Dialect) -> float | None:
        if value is None or value == "":
            return None
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


async def upsert_row(
    connection: AsyncConnection,
    table: Table,
    row: Mapping[str, Any],
    keys: Sequence[str],
    changes: Mapping[str, Any],
) -> None:
    """Inserts `row`, or applies `changes` to the row that has the same values in the columns `keys`."""
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = make(table).values(**row)
    await connection.execute(statement.on_conflict_do_update(index_elements=list(keys), set_=dict(changes)))
