"""Reads and writes feeds: the rows of the table `feeds`, and what the application knows about each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import asdict, replace
from sqlalchemy import ColumnElement, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidemill_apps.common.database import Database, explain_refused_rows, slice_items
from tidemill_apps.common.database_types import upsert_row
from tidemill_apps.feeds.due_times import MINUTE_SECONDS, DelayReason, NextRun, RedirectRecord, first_run
from tidemill_apps.feeds.tables import FeedTables, create_tables, describe_tables


class FeedState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a feed: the columns of `feed_state`.

    - `url`: the URL that the validators, the digest, the failures and the redirect belong to.
    - `closed_until`: the wall time before which nothing fetches the feed, also not by hand.
    - `interval`: the minutes with which the feed was last scheduled.
    - `failures`: final failures in a row; `successes` and `failed` count all runs."""

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
    successes: int = 0
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

    def for_url(self, url: str) -> FeedState:
        """Returns the state if it belongs to `url`. Otherwise only counts, pause and import are kept."""
        if self.url == url:
            return self
        kept = {name: getattr(self, name) for name in ("successes", "failed", "paused", "import_id")}
        return FeedState(url=url, **kept)

    def scheduled(self, interval: int, next_run: NextRun) -> FeedState:
        reason = next_run.reason.value
        return replace(self, interval=interval, next_at=next_run.at, next_reason=reason)

    @property
    def values(self) -> dict[str, Any]:
        """The values to write after a run. A person may have paused the feed meanwhile."""
        return {name: value for name, value in asdict(self).items() if name not in ("paused", "import_id")}


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
        """True if the feed was last scheduled with its present URL and interval. Another program may have
        changed the row."""
        return (self.state.url, self.state.interval) == (self.url, self.refresh_interval)

    def next_run(self, now: float) -> NextRun:
        """Returns when the feed is due. The stored time holds unless URL or interval have changed."""
        state = self.state
        if state.url not in ("", self.url):
            return NextRun(now, DelayReason.NEW)
        if state.next_at is not None and state.next_reason is not None and self.is_scheduled_as_stored:
            return NextRun(state.next_at, DelayReason(state.next_reason))
        due = first_run(self.last_fetched, self.interval_seconds, now)
        if (state.closed_until or 0.0) > due.at:
            return NextRun(state.closed_until or 0.0, DelayReason.SERVER_WAIT)
        return due


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
        self._prepared, self._lock = False, asyncio.Lock()

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
        return next(iter(await self._read(connection, self.tables.feeds.c.id == feed_id)), None)

    async def find_by_url(self, url: str) -> Feed | None:
        async with self.database.reading() as connection:
            return next(iter(await self._read(connection, self.tables.feeds.c.url == url)), None)

    async def find(
        self, *, after: str = "", limit: int = 100, status: str | None = None, text: str = ""
    ) -> list[Feed]:
        """Returns feeds in the order of their ids. `after` is the last id of the previous page."""
        columns = self.tables.feeds.c
        conditions: list[ColumnElement[bool]] = [columns.id > after] if after else []
        conditions += [] if status is None else [columns.last_fetch_status == status]
        if text:
            words = [
                func.lower(column).contains(text.lower(), autoescape=True)
                for column in (columns.url, columns.title)
            ]
            conditions.append(or_(*words))
        async with self.database.reading() as connection:
            return await self._read(connection, *conditions, limit=limit)

    async def find_failing(self, before: float) -> list[Feed]:
        """Returns the feeds that have failed since `before` or longer, and are not paused."""
        async with self.database.reading() as connection:
            found = await self._read(connection, self.tables.states.c.failing_since <= before)
        return [feed for feed in found if not feed.state.paused]

    async def counts(self, import_id: str | None = None) -> dict[str, int]:
        """Returns the number of feeds by status: `success`, `failed`, and `new` for none yet. `import_id`
        selects the feeds of one OPML import."""
        status = func.coalesce(self.tables.feeds.c.last_fetch_status, "new")
        query = select(status, func.count()).select_from(self._with_states()).group_by(status)
        if import_id is not None:
            query = query.where(self.tables.states.c.import_id == import_id)
        async with self.database.reading() as connection:
            return {row[0]: int(row[1]) for row in await connection.execute(query)}

    async def add(self, new: Sequence[NewFeed], import_id: str | None = None) -> list[Feed]:
        """Adds feeds and returns them. URLs that a feed has already are left out. Either all are added or,
        if the table refuses one, none."""
        urls, column, added = {feed.url: feed for feed in new}, self.tables.feeds.c.url, list[str]()
        refused = explain_refused_rows(self.database, self.tables.feeds, "feed")
        async with refused, self.database.transaction() as connection:
            for some in slice_items(list(urls)):
                for url in (await connection.execute(select(column).where(column.in_(some)))).scalars():
                    urls.pop(url, None)
            for feeds in slice_items(list(urls.values())):
                rows = [{"id": str(uuid4()), **asdict(feed)} for feed in feeds]
                states = [{"feed_id": row["id"], "url": row["url"], "import_id": import_id} for row in rows]
                await connection.execute(insert(self.tables.feeds), rows)
                await connection.execute(insert(self.tables.states), states)
                added += [row["id"] for row in rows]
        return await self._get_many(added)

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
        """Writes some values of the feed's state."""
        async with self.database.transaction() as connection:
            await self.write_state(connection, feed, values)

    async def write_state(self, connection: AsyncConnection, feed: Feed, values: Mapping[str, Any]) -> None:
        row = {"feed_id": feed.id, "url": feed.url, **values}
        await upsert_row(connection, self.tables.states, row, ("feed_id",), values)

    async def _get_many(self, ids: Iterable[str]) -> list[Feed]:
        found: list[Feed] = []
        async with self.database.reading() as connection:
            for some in slice_items(list(ids)):
                found += await self._read(connection, self.tables.feeds.c.id.in_(some))
        return found

    def _with_states(self) -> Any:
        feeds, states = self.tables.feeds, self.tables.states
        return feeds.outerjoin(states, states.c.feed_id == feeds.c.id)

    async def _read(
        self, connection: AsyncConnection, *conditions: ColumnElement[bool], limit: int | None = None
    ) -> list[Feed]:
        feeds, states = self.tables.feeds, self.tables.states
        names = [name for name in Feed.__struct_fields__ if name != "state"]
        labels = [states.c[name].label(f"state_{name}") for name in FeedState.__struct_fields__]
        query = select(*(feeds.c[name] for name in names), *labels).select_from(self._with_states())
        query = query.where(*conditions).order_by(feeds.c.id).limit(limit)
        return [_read_feed(row, names) for row in (await connection.execute(query)).mappings()]


def _read_feed(row: Mapping[Any, Any], names: Sequence[str]) -> Feed:
    state = {name: row[f"state_{name}"] for name in FeedState.__struct_fields__}
    known = {name: value for name, value in state.items() if value is not None}
    return Feed(**{name: row[name] for name in names}, state=FeedState(**known))
