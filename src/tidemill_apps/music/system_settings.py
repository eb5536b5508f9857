"""Settings that people change while it runs. The table is the truth: who changes a row there, with whatever
program, changes what the workers do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from sqlalchemy import select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from tidemill import ConfigurationError
from tidemill_apps.common.database import Database
from tidemill_apps.music.tables import system_settings as table


class Live(Struct, frozen=True):
    """By the keys of the table."""

    queue_concurrency: Annotated[int, Meta(ge=1, le=100)] = 1
    queue_rate_limit_max: Annotated[int, Meta(ge=1, le=10_000)] = 2
    queue_batch_size: Annotated[int, Meta(ge=1, le=100)] = 10


SAYS = {
    "queue_concurrency": "jobs of one queue at once, from 1 to 100",
    "queue_rate_limit_max": "metadata jobs started per minute, from 1 to 10000",
    "queue_batch_size": "songs in one job, from 1 to 100",
}
TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Live)}


class Found(Struct, frozen=True):
    """`good` are the keys whose rows hold; `problems` has a sentence for every other."""

    live: Live
    good: frozenset[str] = frozenset(TYPES)
    problems: tuple[str, ...] = ()


class SystemSettings:
    """Of a row that cannot hold, the last good value this process read stays in force, or the default."""

    def __init__(self, database: Database, defaults: Live) -> None:
        self._database, self._defaults, self._last = database, defaults, defaults

    async def prepare(self) -> None:
        """Rows that are missing are written with what holds without them."""
        async with self._database.transaction() as connection:
            there = set((await connection.execute(select(table.c.key))).scalars())
            for key in TYPES.keys() - there:
                await _insert(connection, key, str(getattr(self._defaults, key)))

    async def read(self) -> Found:
        async with self._database.reading() as connection:
            rows = await connection.execute(select(table.c.key, table.c.value).where(table.c.key.in_(TYPES)))
            found = understood({row.key: row.value for row in rows}, self._last)
        self._last = found.live
        return found

    async def write(self, key: str, value: int) -> None:
        text = str(checked(key, value))
        async with self._database.transaction() as connection:
            done = await connection.execute(update(table).where(table.c.key == key).values(value=text))
            if not done.rowcount:
                await _insert(connection, key, text)


async def _insert(connection: AsyncConnection, key: str, value: str) -> None:
    """Unless somebody else was quicker: processes that start together find the same row missing."""
    insert = _INSERTS[connection.dialect.name]
    await connection.execute(insert(table).values(key=key, value=value).on_conflict_do_nothing())


_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def understood(rows: Mapping[str, object], last: Live) -> Found:
    """A table that another program made may hold numbers in place of texts."""
    values: dict[str, int] = {}
    problems = []
    for key, value in rows.items():
        text = "" if value is None else str(value).strip()
        try:
            values[key] = msgspec.convert(text, TYPES[key], strict=False)
        except msgspec.ValidationError:
            problems.append(
                f"system_settings: {key} is {text[:40]!r}, must be {SAYS[key]}; "
                f"{getattr(last, key)} holds until it is corrected"
            )
    return Found(msgspec.structs.replace(last, **values), frozenset(values), tuple(sorted(problems)))


def checked(key: str, value: Any) -> int:
    try:
        return int(msgspec.convert(value, TYPES[key]))
    except msgspec.ValidationError:
        raise ConfigurationError(f"{key}: must be {SAYS[key]}, is {value!r}") from None
