"""What outlives every process and is no setting: a row each beside the settings."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from tidemill_apps.common.database import Database
from tidemill_apps.music.tables import system_settings as table

_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


async def mark(database: Database, key: str, value: str) -> None:
    """Of those who mark at the same instant, one."""
    async with database.transaction() as connection:
        done = await connection.execute(update(table).where(table.c.key == key).values(value=value))
        if not done.rowcount:
            row = _INSERTS[connection.dialect.name](table).values(key=key, value=value)
            await connection.execute(row.on_conflict_do_nothing())


async def unmark(database: Database, key: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(delete(table).where(table.c.key == key))


async def marked(database: Database, key: str) -> str | None:
    async with database.reading() as connection:
        return (await connection.execute(select(table.c.value).where(table.c.key == key))).scalars().first()
