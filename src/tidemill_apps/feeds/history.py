"""Counts outcomes per feed and hour, and connections per site and minute."""

from __future__ import annotations

import msgspec
from sqlalchemy import case, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from tidemill_apps.common.database_types import upsert_row
from tidemill_apps.feeds.due_times import MINUTE_SECONDS, ConnectionCounts
from tidemill_apps.feeds.feed_store import FeedStore

HOUR_SECONDS = 3600
HISTORY_HOURS = 24


class HourCounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The runs of one hour, of one feed or of all. `hour` is the wall time of its beginning; `seconds` is the
    sum of their durations."""

    hour: int
    successes: int
    failed: int
    articles: int
    seconds: float


class FeedHistory:
    """The history of the last 24 hours. It is stored as counts, because finished jobs are deleted earlier."""

    def __init__(self, feeds: FeedStore) -> None:
        self._feeds = feeds

    async def count_run(
        self,
        connection: AsyncConnection,
        feed_id: str,
        now: float,
        *,
        success: bool,
        articles: int,
        seconds: float,
    ) -> None:
        """Counts one run of a feed, in the caller's transaction."""
        table = self._feeds.tables.hours
        row = {
            "feed_id": feed_id,
            "hour": int(now // HOUR_SECONDS) * HOUR_SECONDS,
            "successes": int(success),
            "failed": int(not success),
            "articles": articles,
            "seconds": seconds,
        }
        added = {name: table.c[name] + row[name] for name in ("successes", "failed", "articles", "seconds")}
        await upsert_row(connection, table, row, ("feed_id", "hour"), added)

    async def hours(self, now: float, feed_id: str | None = None) -> list[HourCounts]:
        """Returns the counts of the last 24 hours, the newest hour first; of all feeds without `feed_id`."""
        columns = self._feeds.tables.hours.c
        sums = [func.sum(columns[name]) for name in ("successes", "failed", "articles", "seconds")]
        query = select(columns.hour, *sums).where(columns.hour > now - (HISTORY_HOURS + 1) * HOUR_SECONDS)
        if feed_id is not None:
            query = query.where(columns.feed_id == feed_id)
        query = query.group_by(columns.hour).order_by(columns.hour.desc())
        async with self._feeds.database.reading() as connection:
            rows = list(await connection.execute(query))
        return [
            HourCounts(hour=row[0], successes=row[1], failed=row[2], articles=row[3], seconds=float(row[4]))
            for row in rows
        ]

    async def count_connection(
        self, connection: AsyncConnection, site: str, now: float, *, connected: bool
    ) -> None:
        """Counts one fetch of a site in the current minute, in the caller's transaction."""
        table = self._feeds.tables.site_minutes
        row = {
            "site": site,
            "minute": int(now // MINUTE_SECONDS),
            "connected": int(connected),
            "failed": int(not connected),
        }
        added = {name: table.c[name] + row[name] for name in ("connected", "failed")}
        await upsert_row(connection, table, row, ("site", "minute"), added)

    async def connections(self, now: float) -> ConnectionCounts:
        """Returns the fetches of this minute and the minute before, over all workers."""
        columns = self._feeds.tables.site_minutes.c
        failed_sites = func.count(func.distinct(case((columns.failed > 0, columns.site))))
        query = select(func.sum(columns.connected), func.sum(columns.failed), failed_sites)
        query = query.where(columns.minute >= int(now // MINUTE_SECONDS) - 1)
        async with self._feeds.database.reading() as connection:
            connected, failed, sites = (await connection.execute(query)).one()
        return ConnectionCounts(int(connected or 0), int(failed or 0), int(sites))

    async def prune(self, now: float) -> None:
        """Deletes counts older than the history."""
        hours, minutes = self._feeds.tables.hours, self._feeds.tables.site_minutes
        async with self._feeds.database.transaction() as connection:
            oldest = now - (HISTORY_HOURS + 1) * HOUR_SECONDS
            await connection.execute(delete(hours).where(hours.c.hour < oldest))
            await connection.execute(delete(minutes).where(minutes.c.minute < now // MINUTE_SECONDS - 2))
