"""Article rows without their texts, for lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Select, func, select

from tidemill_apps.articles.posts import Posts, PostStatus, parse_hide


class PostSummary(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    title: str
    hide: str
    rag_status: str | None
    rag_error: str | None
    length: int


class PostSummaries:
    def __init__(self, posts: Posts) -> None:
        self._posts, self._columns = posts, posts.table.c

    async def load(self, ids: Collection[int]) -> dict[int, PostSummary]:
        """Returns a mapping from article id to article. Ids that do not exist are left out."""
        found = await self._load(self._query().where(self._columns.id.in_(ids))) if ids else []
        return {summary.id: summary for summary in found}

    async def load_recent(self, limit: int, *, hidden: bool = True) -> list[PostSummary]:
        """Returns up to `limit` articles, the newest first. `hidden=False`: without hidden articles."""
        query = self._query() if hidden else self._query().where(self._posts.is_shown())
        return await self._load(query.order_by(self._columns.id.desc()).limit(limit))

    async def load_failed(self, limit: int, *, hidden: bool = True) -> list[PostSummary]:
        """Returns up to `limit` articles whose embedding failed, the newest first. `hidden=False`: without
        hidden articles."""
        query = self._query().where(self._columns.rag_status == PostStatus.FAILED)
        query = query if hidden else query.where(self._posts.is_shown())
        return await self._load(query.order_by(self._columns.id.desc()).limit(limit))

    async def load_failed_ids(self, limit: int) -> list[int]:
        query = select(self._columns.id).where(self._columns.rag_status == PostStatus.FAILED)
        return await self._load_numbers(query.order_by(self._columns.id).limit(limit))

    async def find_retry_error(self, words: str) -> str | None:
        """Returns a stored error that contains `words`, of an article that is being retried. Returns None if
        there is no such article."""
        columns = self._columns
        condition = (
            columns.rag_status == PostStatus.PROCESSING,
            columns.rag_error.contains(words, autoescape=True),
        )
        found = await self._load(self._query().where(*condition).limit(1))
        return found[0].rag_error if found else None

    async def find_titles(self, titles: Sequence[str]) -> set[str]:
        """Returns the titles in `titles` that existing articles already use."""
        await self._posts.prepare()
        async with self._posts.database.reading() as connection:
            query = select(self._columns.title).where(self._columns.title.in_(titles))
            return {str(title) for title in (await connection.execute(query)).scalars()}

    async def count_visible(self) -> int:
        """Counts visible articles that have a text."""
        condition = select(func.count()).where(self._posts.has_text(), self._posts.is_shown())
        [count] = await self._load_numbers(condition)
        return count

    async def count_visible_failed(self) -> int:
        """Counts visible articles with a text whose embedding failed."""
        failed = self._columns.rag_status == PostStatus.FAILED
        condition = select(func.count()).where(failed, self._posts.has_text(), self._posts.is_shown())
        [count] = await self._load_numbers(condition)
        return count

    def _query(self) -> Select[*tuple[Any, ...]]:
        columns = self._columns
        length = func.length(func.coalesce(columns.content, "")).label("length")
        return select(columns.id, columns.title, columns.hide, columns.rag_status, columns.rag_error, length)

    async def _load(self, query: Select[*tuple[Any, ...]]) -> list[PostSummary]:
        await self._posts.prepare()
        async with self._posts.database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [
            PostSummary(**{**row, "title": row["title"] or "", "hide": parse_hide(row["hide"])})
            for row in rows
        ]

    async def _load_numbers(self, query: Select[int]) -> list[int]:
        await self._posts.prepare()
        async with self._posts.database.reading() as connection:
            return list((await connection.execute(query)).scalars())


def remove_duplicates(ids: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(ids))
