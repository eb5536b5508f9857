"""Settings that operators change at run time. They are rows of a table in the application's database and are
applied to queues and pools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import structlog
from msgspec import Struct
from sqlalchemy import Column, MetaData, String, Table, Text, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from tidemill import ConfigurationError, Tidemill
from tidemill_apps.common.database import Database
from tidemill_apps.common.settings import describe_type

log = structlog.get_logger("tidemill_apps")

LiveT = TypeVar("LiveT", bound=Struct)
_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def create_settings_table(name: str, metadata: MetaData) -> Table:
    return Table(
        name,
        metadata,
        Column("key", String, primary_key=True),
        Column("value", Text, info={"always_set": True}),
    )


class KeyValueTable:
    """A table with the columns `key` and `value` that stores one text per key."""

    def __init__(self, database: Database, table: Table) -> None:
        self._database, self._table = database, table

    @property
    def name(self) -> str:
        return self._table.name

    async def get(self, key: str) -> str | None:
        query = select(self._table.c.value).where(self._table.c.key == key)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).scalars().first()

    async def load(self, keys: Collection[str]) -> dict[str, object]:
        """Returns a mapping from key to stored value. Keys without a row are left out. A value is a text, or
        a number if another program has written it."""
        columns = self._table.c
        async with self._database.reading() as connection:
            rows = await connection.execute(select(columns.key, columns.value).where(columns.key.in_(keys)))
            return {row.key: row.value for row in rows}

    async def put(self, key: str, value: str) -> None:
        """Stores `value` under `key` and replaces an existing value. If two processes insert the same new key
        at once, the first value stays."""
        row = update(self._table).where(self._table.c.key == key)
        async with self._database.transaction() as connection:
            if not (await connection.execute(row.values(value=value))).rowcount:
                await self._insert(connection, key, value)

    async def insert_missing(self, values: Mapping[str, str]) -> None:
        async with self._database.transaction() as connection:
            there = set((await connection.execute(select(self._table.c.key))).scalars())
            for key in values.keys() - there:
                await self._insert(connection, key, values[key])

    async def delete(self, key: str) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(delete(self._table).where(self._table.c.key == key))

    async def _insert(self, connection: AsyncConnection, key: str, value: str) -> None:
        """Inserts a row unless another process has inserted it at the same time."""
        insert = _INSERTS[connection.dialect.name]
        await connection.execute(insert(self._table).values(key=key, value=value).on_conflict_do_nothing())


class LiveSettingsSnapshot(Struct, Generic[LiveT], frozen=True):
    """The settings that apply now, in `live`. `valid_keys` are the keys whose rows are valid. `problems` has
    one sentence for each invalid row."""

    live: LiveT
    valid_keys: frozenset[str]
    problems: tuple[str, ...] = ()


class LiveSettingsTable(Generic[LiveT]):
    """Stores the fields of a struct as table rows, one row per field. If a row is invalid, the field keeps
    its last valid value, or its default. A field's `Meta(description=…)` is part of its error message."""

    def __init__(self, rows: KeyValueTable, defaults: LiveT) -> None:
        self._rows, self._defaults, self._last = rows, defaults, defaults
        self.types: dict[str, Any] = {
            field.name: field.type for field in msgspec.structs.fields(type(defaults))
        }

    async def prepare(self) -> None:
        """Inserts a row with the default value for each field that has no row."""
        await self._rows.insert_missing({key: str(getattr(self._defaults, key)) for key in self.types})

    async def read(self) -> LiveSettingsSnapshot[LiveT]:
        found = self.parse(await self._rows.load(self.types))
        self._last = found.live
        return found

    async def write(self, key: str, value: Any) -> None:
        try:
            checked = msgspec.convert(value, self.types[key])
        except msgspec.ValidationError:
            must = describe_type(self.types[key])
            raise ConfigurationError(f"{key}: must be {must}, is {value!r}") from None
        await self._rows.put(key, str(checked))

    def parse(self, rows: Mapping[str, object]) -> LiveSettingsSnapshot[LiveT]:
        values: dict[str, Any] = {}
        problems = []
        for key, value in rows.items():
            text = "" if value is None else str(value).strip()
            try:
                values[key] = msgspec.convert(text, self.types[key], strict=False)
            except msgspec.ValidationError:
                problems.append(
                    f"{self._rows.name}: {key} is {text[:40]!r}, must be {describe_type(self.types[key])}; "
                    f"{getattr(self._last, key)} holds until it is corrected"
                )
        live = msgspec.structs.replace(self._last, **values)
        return LiveSettingsSnapshot(live, frozenset(values), tuple(sorted(problems)))


def declare_live_settings(
    app: Tidemill, settings: LiveSettingsTable[Any], prepare: Callable[[], Awaitable[None]]
) -> None:
    """Adds the settings to the dashboard's settings page. `prepare` is called before each read and write, and
    creates the table if it is missing."""
    for key, annotation in settings.types.items():
        app.web.setting(
            key,
            annotation,
            summary=describe_type(annotation),
            read=_create_reader(settings, prepare, key),
            write=_create_writer(settings, prepare, key),
        )


def _create_reader(
    settings: LiveSettingsTable[Any], prepare: Callable[[], Awaitable[None]], key: str
) -> Callable[[], Awaitable[Any]]:
    async def read() -> Any:
        await prepare()
        return getattr((await settings.read()).live, key)

    return read


def _create_writer(
    settings: LiveSettingsTable[Any], prepare: Callable[[], Awaitable[None]], key: str
) -> Callable[[Any], Awaitable[None]]:
    async def write(value: Any) -> None:
        await prepare()
        await settings.write(key, value)

    return write


class SettingOverrides:
    """Applies settings to queues and pools as overrides. A setting that equals the declared value removes the
    override. `by` (the author) and `reason` are stored with the override."""

    def __init__(self, app: Tidemill, *, by: str, reason: str) -> None:
        self._inspect, self._by, self._reason = app.inspect, by, reason
        self._logged_problems: Sequence[str] = ()

    async def set_concurrency(self, queue: str, wanted: int) -> None:
        view = await self._inspect.queue(queue, cached=True)
        if view.settings.concurrency == wanted:
            return
        if view.declared.concurrency == wanted:
            await self._inspect.clear_override(queue, "concurrency")
        else:
            await self._inspect.override(queue, by=self._by, reason=self._reason, concurrency=wanted)
        log.info("settings_applied", queue=queue, concurrency=wanted)

    async def set_limit(self, pool: str, wanted: float) -> None:
        """Sets the amount of the pool's only limit to `wanted`. The pool must have exactly one limit."""
        (limit,) = (await self._inspect.pool(pool, cached=True)).limits
        if limit.amount == wanted:
            return
        if limit.declared == wanted:
            await self._inspect.clear_pool_override(pool, limit.name)
        else:
            await self._inspect.override_pool(pool, {limit.name: wanted}, by=self._by, reason=self._reason)
        log.info("settings_applied", pool=pool, limit=limit.name, amount=wanted)

    def log_problems(self, problems: Sequence[str]) -> None:
        """Logs each problem, except problems that were also passed to the previous call of this method."""
        for problem in problems:
            if problem not in self._logged_problems:
                log.warning("setting_invalid", problem=problem)
        self._logged_problems = problems
