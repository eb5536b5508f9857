"""Reads and writes the articles of feeds."""

from __future__ import annotations

from collections.abc import Sequence
from html import unescape
from typing import Any
from uuid import uuid4

import msgspec
import nh3
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidemill_apps.common.database import slice_items
from tidemill_apps.common.database_types import upsert_row
from tidemill_apps.feeds.documents import FeedEntry
from tidemill_apps.feeds.entries import KnownArticle, plan_changes
from tidemill_apps.feeds.feed_store import FeedStore


class Article(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An article of a feed. `text` is its content without markup."""

    id: str
    title: str
    url: str | None
    text: str
    published_at: float | None


class ArticleStore:
    """The articles in the application's database. `limit` is how many of a feed are kept; 0 for all."""

    def __init__(self, feeds: FeedStore, limit: int) -> None:
        self._feeds, self._limit = feeds, limit

    async def store_entries(
        self, connection: AsyncConnection, feed_id: str, entries: Sequence[FeedEntry], now: float
    ) -> int:
        """Stores the entries of a feed's document in the caller's transaction. An entry that is stored
        already is updated. Returns the number of new articles."""
        known = await self._load_known(connection, feed_id)
        changes = plan_changes(known, entries)
        current = {*changes.unchanged, *(article_id for article_id, _ in changes.updated)}
        for some in slice_items(changes.new):
            ids = [str(uuid4()) for _ in some]
            current.update(ids)
            rows = [_article_row(id_, feed_id, entry) for id_, entry in zip(ids, some, strict=True)]
            keys = [_key_row(id_, feed_id, entry, now) for id_, entry in zip(ids, some, strict=True)]
            await connection.execute(insert(self._feeds.tables.articles), rows)
            await connection.execute(insert(self._feeds.tables.article_keys), keys)
        for article_id, entry in changes.updated:
            await self._update(connection, article_id, feed_id, entry, now)
        if self._limit:
            await self._prune(connection, feed_id, {article.article_id for article in known} - current)
        return len(changes.new)

    async def find(self, feed_id: str, limit: int) -> list[Article]:
        """Returns the newest articles of a feed."""
        table = self._feeds.tables.articles
        query = (
            select(table)
            .where(table.c.feed_id == feed_id)
            .order_by(table.c.published_at.desc().nulls_last(), table.c.id)
            .limit(limit)
        )
        async with self._feeds.database.reading() as connection:
            return [_read_article(row) for row in (await connection.execute(query)).mappings()]

    async def count(self, feed_id: str) -> int:
        table = self._feeds.tables.articles
        query = select(func.count()).select_from(table).where(table.c.feed_id == feed_id)
        async with self._feeds.database.reading() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def _load_known(self, connection: AsyncConnection, feed_id: str) -> list[KnownArticle]:
        """Returns the articles that the feed has or had. The result includes articles that another program
        wrote into the table, and articles that were deleted by the retention."""
        articles, keys = self._feeds.tables.articles, self._feeds.tables.article_keys
        stored = await connection.execute(
            select(articles.c.id, articles.c.url).where(articles.c.feed_id == feed_id)
        )
        known = {row.id: KnownArticle(row.id, None, row.url, "") for row in stored}
        query = select(keys).where(keys.c.feed_id == feed_id)
        for row in await connection.execute(query):
            known[row.article_id] = KnownArticle(row.article_id, row.guid, row.url, row.digest)
        return list(known.values())

    async def _update(
        self, connection: AsyncConnection, article_id: str, feed_id: str, entry: FeedEntry, now: float
    ) -> None:
        articles, keys = self._feeds.tables.articles, self._feeds.tables.article_keys
        row = _article_row(article_id, feed_id, entry)
        if entry.published is None:  # the date of the first version stays
            del row["published_at"]
        await connection.execute(update(articles).where(articles.c.id == article_id).values(**row))
        key = _key_row(article_id, feed_id, entry, now)
        later = {name: key[name] for name in ("guid", "url", "digest")}
        await upsert_row(connection, keys, key, ("article_id",), later)

    async def _prune(self, connection: AsyncConnection, feed_id: str, absent: set[str]) -> None:
        """Deletes the oldest articles beyond the limit. `absent` are the articles that the document no longer
        has. The key of a deleted article stays while the document has its entry; otherwise the entry would
        be a new article at the next fetch."""
        articles, keys = self._feeds.tables.articles, self._feeds.tables.article_keys
        order = (keys.c.added.is_(None), keys.c.added.desc(), articles.c.published_at.desc(), articles.c.id)
        query = select(articles.c.id).outerjoin(keys, keys.c.article_id == articles.c.id)
        query = query.where(articles.c.feed_id == feed_id).order_by(*order)
        ids = list((await connection.execute(query)).scalars())
        for some in slice_items(ids[self._limit :]):
            await connection.execute(delete(articles).where(articles.c.id.in_(some)))
        for some in slice_items(list(absent - set(ids[: self._limit]))):
            await connection.execute(delete(keys).where(keys.c.article_id.in_(some)))


def _article_row(article_id: str, feed_id: str, entry: FeedEntry) -> dict[str, Any]:
    return {
        "id": article_id,
        "feed_id": feed_id,
        "title": entry.title,
        "url": entry.url,
        "content": entry.content,
        "published_at": entry.published,
    }


def _key_row(article_id: str, feed_id: str, entry: FeedEntry, now: float) -> dict[str, Any]:
    return {
        "article_id": article_id,
        "feed_id": feed_id,
        "guid": entry.guid,
        "url": entry.url,
        "digest": entry.digest,
        "added": now,
    }


def _read_article(row: Any) -> Article:
    text = unescape(nh3.clean(row["content"] or "", tags=set()))
    url = row["url"] if (row["url"] or "").startswith(("http://", "https://")) else None
    return Article(
        id=row["id"], title=row["title"] or "", url=url, text=text, published_at=row["published_at"]
    )
