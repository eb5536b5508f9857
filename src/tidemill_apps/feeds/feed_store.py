"""Reads and writes feeds: the rows of the table `feeds`, and what the application knows about each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec
from sqlalchemy import ColumnElement, Select, Table, delete, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from tidemill_apps.common.database import Database, explain_refused_rows, slice_items
from tidemill_apps.feeds.due_times import MINUTE_SECONDS, DelayReason, NextRun, RedirectRecord, first_run
from tidemill_apps.feeds.tables import FeedTables, create_tables, describe_tables

FEED_COLUMNS = (
    *("id", "user_id", "title", "url", "refresh_interval"),
    *("last_fetched", "last_fetch_status", "last_fetch_error"),
)


class FeedState(msgspec.Struct, frozen=True, kw_only=True):
    """What the application knows about a feed; the columns of `feed_state`.

    - `url`: the URL that the validators, the digest and the failures belong to.
    - `closed_until`: the wall time before which nothing fetches the feed, also not by hand.
    - `interval`: the minutes with which the feed was last scheduled.
    - `failures`: final failures in a row; `succeeded` and `failed` count all runs."""

    url: str = ""
    etag: str | None = None
    last_modified: str | None = None
    digest: str | None = None
    next_at: float | None = None
    next_reason: str | None = None
    closed_until: float | None = None
    interval: int | None = None
    failures: int = 0
    failing_since: float | None = None
    succeeded: int = 0
    failed: int = 0
    timed_out: bool = False
    gone: bool = False
    paused: bool = False
    redirect_url: str | None = None
    redirect_count: int = 0
    redirect_since: float | None = None
    import_id: str | None = None

    @property
    def redirect(self) -> RedirectRecord | None:
        if self.redirect_url is None or self.redirect_since is None:
            return None
        return RedirectRecord(self.redirect_url, self.redirect_count, self.redirect_since)


FRESH_STATE: Mapping[str, Any] = {
    "etag": None,
    "last_modified": None,
    "digest": None,
    "failures": 0,
    "failing_since": None,
    "gone": False,
    "timed_out": False,
    "closed_until": None,
    "redirect_url": None,
    "redirect_count": 0,
    "redirect_since": None,
}
"""The values of a state that belong to a URL, for a new URL."""


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """A feed: its row, and its state. `last_fetched` is a wall time; `refresh_interval` is in minutes."""

    id: str
    user_id: str | None
    title: str | None
    url: str
    refresh_interval: int
    last_fetched: float | None
    last_fetch_status: str | None
    last_fetch_error: str | None
    state: FeedState

    @property
    def interval_seconds(self) -> float:
        return self.refresh_interval * MINUTE_SECONDS

    @property
    def is_scheduled_as_stored(self) -> bool:
        """True if URL and interval are those that the feed was last scheduled with. Another program may have
        changed the row."""
        return (self.state.url, self.state.interval) == (self.url, self.refresh_interval)

    def next_run(self, now: float) -> NextRun:
        """Returns when the feed is due. The stored time holds unless URL or interval have changed."""
        if self.state.next_at is None or self.state.next_reason is None or not self.is_scheduled_as_stored:
            due = first_run(self.last_fetched, self.interval_seconds, now)
            closed = self.state.closed_until
            if closed is not None and closed > due.at and self.state.url == self.url:
                return NextRun(closed, DelayReason.RETRY_AFTER)
            return due if self.state.url in ("", self.url) else NextRun(now, DelayReason.NEW)
        return NextRun(self.state.next_at, DelayReason(self.state.next_reason))


class NewFeed(msgspec.Struct, frozen=True, kw_only=True):
    """A feed to add, with a checked URL."""

    url: str
    title: str | None = None
    refresh_interval: int
    user_id: str | None = None


class FeedStore:
    """The feeds in the application's database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.tables: FeedTables = create_tables()
        self._prepared = False
        self._lock = asyncio.Lock()

    async def prepare(self) -> None:
        """Creates what is missing in the database, once per process."""
        async with self._lock:
            if not self._prepared:
                async with self.database.reading() as connection:
                    self.tables = await connection.run_sync(describe_tables)
                await self.database.prepare(self.tables.metadata)
                self._prepared = True

    async def get(self, feed_id: str) -> Feed | None:
        async with self.database.reading() as connection:
            return await self.load(connection, feed_id)

    async def load(self, connection: AsyncConnection, feed_id: str) -> Feed | None:
        query = self._select().where(self.tables.feeds.c.id == feed_id)
        row = (await connection.execute(query)).mappings().first()
        return None if row is None else _read_feed(row)

    async def find(
        self, *, after: str = "", limit: int = 100, status: str | None = None, text: str = ""
    ) -> list[Feed]:
        """Returns feeds in the order of their ids. `after` is the last id of the previous page."""
        columns = self.tables.feeds.c
        conditions: list[ColumnElement[bool]] = [columns.id > after] if after else []
        if status is not None:
            conditions.append(columns.last_fetch_status == status)
        if text:
            conditions.append(or_(_contains(columns.url, text), _contains(columns.title, text)))
        query = self._select().where(*conditions).order_by(columns.id).limit(limit)
        async with self.database.reading() as connection:
            return [_read_feed(row) for row in (await connection.execute(query)).mappings()]

    async def find_failing(self, before: float) -> list[Feed]:
        """Returns the feeds that have failed since `before` or longer, and are not paused."""
        states = self.tables.states.c
        query = self._select().where(states.failing_since <= before, states.paused.is_(False))
        async with self.database.reading() as connection:
            return [_read_feed(row) for row in (await connection.execute(query)).mappings()]

    async def counts(self, import_id: str | None = None) -> dict[str, int]:
        """Returns the number of feeds by status: `success`, `failed`, and `new` for none yet. `import_id`
        selects the feeds of one OPML import."""
        feeds, states = self.tables.feeds.c, self.tables.states.c
        status = func.coalesce(feeds.last_fetch_status, "new")
        query = select(status, func.count()).select_from(self._joined()).group_by(status)
        if import_id is not None:
            query = query.where(states.import_id == import_id)
        async with self.database.reading() as connection:
            return {row[0]: int(row[1]) for row in await connection.execute(query)}

    async def add(self, new: Sequence[NewFeed], import_id: str | None = None) -> list[Feed]:
        """Adds feeds and returns them. URLs that a feed has already are left out. Either all are added or,
        if the table refuses one, none."""
        urls = {feed.url: feed for feed in new}
        added: list[str] = []
        async with (
            explain_refused_rows(self.database, self.tables.feeds, "feed"),
            self.database.transaction() as connection,
        ):
            for url in await self._known_urls(connection, list(urls)):
                del urls[url]
            for some in slice_items(list(urls.values())):
                rows = [{"id": str(uuid4()), **msgspec.structs.asdict(feed)} for feed in some]
                states = [{"feed_id": row["id"], "url": row["url"], "import_id": import_id} for row in rows]
                await connection.execute(insert(self.tables.feeds), rows)
                await connection.execute(insert(self.tables.states), states)
                added += [row["id"] for row in rows]
        return await self.get_many(added)

    async def get_many(self, ids: Iterable[str]) -> list[Feed]:
        found: list[Feed] = []
        async with self.database.reading() as connection:
            for some in slice_items(list(ids)):
                query = self._select().where(self.tables.feeds.c.id.in_(some))
                found += [_read_feed(row) for row in (await connection.execute(query)).mappings()]
        return found

    async def find_by_url(self, url: str) -> Feed | None:
        query = self._select().where(self.tables.feeds.c.url == url)
        async with self.database.reading() as connection:
            row = (await connection.execute(query)).mappings().first()
        return None if row is None else _read_feed(row)

    async def change(self, feed_id: str, **values: Any) -> None:
        """Changes columns of the feed's row."""
        async with self.database.transaction() as connection:
            await self.change_row(connection, feed_id, values)

    async def change_row(self, connection: AsyncConnection, feed_id: str, values: Mapping[str, Any]) -> None:
        table = self.tables.feeds
        await connection.execute(update(table).where(table.c.id == feed_id).values(**values))

    async def delete(self, feed_id: str) -> bool:
        """Deletes a feed with its articles. Returns False if it does not exist."""
        tables = self.tables
        async with self.database.transaction() as connection:
            for table in (tables.article_keys, tables.articles, tables.states, tables.hours):
                await connection.execute(delete(table).where(table.c.feed_id == feed_id))
            done = await connection.execute(delete(tables.feeds).where(tables.feeds.c.id == feed_id))
        return bool(done.rowcount)

    async def set_state(self, feed: Feed, **values: Any) -> None:
        async with self.database.transaction() as connection:
            await self.write_state(connection, feed, values)

    async def write_state(self, connection: AsyncConnection, feed: Feed, values: Mapping[str, Any]) -> None:
        """Writes values of the feed's state; a feed that another program added gets its first state."""
        row = {"feed_id": feed.id, "url": feed.url, **values}
        await upsert_row(connection, self.tables.states, row, ("feed_id",), values)

    async def _known_urls(self, connection: AsyncConnection, urls: list[str]) -> list[str]:
        column = self.tables.feeds.c.url
        found: set[str] = set()
        for some in slice_items(urls):
            found |= set((await connection.execute(select(column).where(column.in_(some)))).scalars())
        return [url for url in urls if url in found]

    def _joined(self) -> Any:
        feeds, states = self.tables.feeds, self.tables.states
        return feeds.outerjoin(states, states.c.feed_id == feeds.c.id)

    def _select(self) -> Select[Any]:
        feeds, states = self.tables.feeds, self.tables.states
        row = [feeds.c[name] for name in FEED_COLUMNS]
        state = [states.c[name].label(f"state_{name}") for name in FeedState.__struct_fields__]
        return select(*row, *state).select_from(self._joined())


def _contains(column: ColumnElement[str], text: str) -> ColumnElement[bool]:
    return func.lower(column).contains(text.lower(), autoescape=True)


def _read_feed(row: Mapping[Any, Any]) -> Feed:
    values = {name: row[name] for name in FEED_COLUMNS}
    state = {
        name: value for name in FeedState.__struct_fields__ if (value := row[f"state_{name}"]) is not None
    }
    return Feed(**values, state=FeedState(**state))


async def upsert_row(
    connection: AsyncConnection,
    table: Table,
    row: Mapping[str, Any],
    keys: Sequence[str],
    changes: Mapping[str, Any],
) -> None:
    """Inserts `row`, or applies `changes` to the row with the same `keys`."""
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = make(table).values(**row)
    statement = (
        statement.on_conflict_do_update(index_elements=list(keys), set_=dict(changes))
        if changes
        else statement.on_conflict_do_nothing(index_elements=list(keys))
    )
    await connection.execute(statement)
