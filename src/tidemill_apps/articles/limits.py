"""What one article and one user may ask for, and how many may wait (E11).

Who triggered what is kept in the application's own database, so the limit holds over all processes. Only what
was let through counts: a trigger for an article that is not there uses nothing up.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import TYPE_CHECKING

from sqlalchemy import Column, Float, Index, Integer, String, Table, delete, func, insert, or_, select

from tidemill.web import Asked, Refused
from tidemill_apps.articles.words import said

if TYPE_CHECKING:
    from tidemill_apps.articles.articles import Articles

MINUTE = 60.0
TURN = 0x61727469
"""A number of our own, by which whoever counts triggers on PostgreSQL waits for the others."""


class Limits:
    """Each raises `Refused` with what to do, and changes nothing then."""

    def __init__(self, articles: Articles) -> None:
        self._articles, self._posts = articles, articles.posts
        self._triggers = Table(
            "article_triggers",
            articles.posts.table.metadata,
            Column("id", Integer, primary_key=True),
            Column("who", String, nullable=False),
            Column("at", Float, nullable=False),
            Index("article_triggers_by_who", "who", "at"),
        )

    def mind_length(self, asked: Asked, content: str) -> None:
        limit = self._articles.settings.content_limit
        if len(content) > limit:
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                said(asked.language, "too_long", count=len(content), limit=limit),
                field="content",
            )

    async def mind_room(self, asked: Asked, more: int) -> None:
        """For so many `more`; of those that wait already none is one more."""
        waiting, limit = await self._articles.requests.waiting()
        if more and limit is not None and waiting + more > limit:
            raise self.full(asked, waiting, limit)

    def full(self, asked: Asked, waiting: int, limit: int) -> Refused:
        sentence = said(asked.language, "full", waiting=waiting, limit=limit)
        return Refused(HTTPStatus.SERVICE_UNAVAILABLE, sentence, headers={"retry-after": str(int(MINUTE))})

    async def mind_triggers(self, asked: Asked) -> None:
        """One more by whoever asks, if the minute that is just over has room for it."""
        who, limit = asked.who.name, self._articles.settings.triggers_per_minute
        wait = await self._take(who, limit)
        if wait:
            seconds = math.ceil(wait)
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                said(asked.language, "too_often", who=who, limit=limit, wait=seconds),
                headers={"retry-after": str(seconds)},
            )

    async def _take(self, who: str, limit: int) -> float:
        """Seconds to wait; 0 when it was let through. A clock that was set back leaves no one locked out."""
        columns = self._triggers.c
        await self._posts.prepare()
        async with self._posts.database.transaction() as connection:
            if connection.dialect.name == "postgresql":  # SQLite has one writer at a time anyway
                await connection.execute(select(func.pg_advisory_xact_lock(TURN)))
            now = self._articles.app.clock.wall()
            over = or_(columns.at <= now - MINUTE, columns.at > now + MINUTE)
            await connection.execute(delete(self._triggers).where(over))
            query = select(func.count(), func.min(columns.at)).where(columns.who == who)
            count, first = (await connection.execute(query)).one()
            if count >= limit:
                return min(max(float(first) + MINUTE - now, 1.0), MINUTE)
            await connection.execute(insert(self._triggers).values(who=who, at=now))
            return 0.0
