"""Articles as lists show them: without their texts, which may be long."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Select, func, select

from tidemill_apps.articles.hiding import as_read
from tidemill_apps.articles.posts import Posts, Status


class Line(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    title: str
    hide: str
    rag_status: str | None
    rag_error: str | None
    length: int


class Glance:
    def __init__(self, posts: Posts) -> None:
        self._posts, self._columns = posts, posts.table.c

    async def of(self, ids: Collection[int]) -> dict[int, Line]:
        """Those there are, by id."""
        found = await self._lines(self._query().where(self._columns.id.in_(ids))) if ids else []
        return {line.id: line for line in found}

    async def recent(self, limit: int, *, hidden: bool = True) -> list[Line]:
        """The newest first, the hidden ones among them or not."""
        query = self._query() if hidden else self._query().where(self._posts.is_shown())
        return await self._lines(query.order_by(self._columns.id.desc()).limit(limit))

    async def failed(self, limit: int, *, hidden: bool = True) -> list[Line]:
        """The newest first, the hidden ones among them or not."""
        query = self._query().where(self._columns.rag_status == Status.FAILED)
        query = query if hidden else query.where(self._posts.is_shown())
        return await self._lines(query.order_by(self._columns.id.desc()).limit(limit))

    async def all_failed(self, limit: int) -> list[int]:
        query = select(self._columns.id).where(self._columns.rag_status == Status.FAILED)
        return await self._numbers(query.order_by(self._columns.id).limit(limit))

    async def tried_again(self, words: str) -> str | None:
        """Why an article that is being embedded was not before, if that has these words in it."""
        columns = self._columns
        meant = (columns.rag_status == Status.PROCESSING, columns.rag_error.contains(words, autoescape=True))
        found = await self._lines(self._query().where(*meant).limit(1))
        return found[0].rag_error if found else None

    async def titled(self, titles: Sequence[str]) -> set[str]:
        """Those of the titles that an article has."""
        await self._posts.prepare()
        async with self._posts.database.reading() as connection:
            query = select(self._columns.title).where(self._columns.title.in_(titles))
            return {str(title) for title in (await connection.execute(query)).scalars()}

    async def shown(self) -> int:
        """How many articles have a text and are not hidden."""
        meant = select(func.count()).where(self._posts.has_text(), self._posts.is_shown())
        [count] = await self._numbers(meant)
        return count

    async def shown_failed(self) -> int:
        """How many of those failed."""
        failed = self._columns.rag_status == Status.FAILED
        meant = select(func.count()).where(failed, self._posts.has_text(), self._posts.is_shown())
        [count] = await self._numbers(meant)
        return count

    def _query(self) -> Select[*tuple[Any, ...]]:
        columns = self._columns
        length = func.length(func.coalesce(columns.content, "")).label("length")
        return select(columns.id, columns.title, columns.hide, columns.rag_status, columns.rag_error, length)

    async def _lines(self, query: Select[*tuple[Any, ...]]) -> list[Line]:
        await self._posts.prepare()
        async with self._posts.database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [Line(**{**row, "title": row["title"] or "", "hide": as_read(row["hide"])}) for row in rows]

    async def _numbers(self, query: Select[int]) -> list[int]:
        await self._posts.prepare()
        async with self._posts.database.reading() as connection:
            return list((await connection.execute(query)).scalars())


def distinct(ids: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(ids))
