"""Embeddings that a user requests by API or page. Text length, requests per minute and queue length are
limited."""

from __future__ import annotations

import math
from collections.abc import Collection
from http import HTTPStatus

from sqlalchemy import Column, Float, Index, Integer, String, Table, delete, func, insert, or_, select

from tidemill import Job, QueueFull
from tidemill.web import HTTPError, Role, RouteRequest
from tidemill_apps.articles.embed_requests import (
    BULK_PRIORITY,
    MANUAL_PRIORITY,
    load_waiting_jobs,
    reprioritise_jobs,
)
from tidemill_apps.articles.post_summaries import PostSummaries
from tidemill_apps.articles.posts import Post
from tidemill_apps.articles.service import MESSAGES, Articles

MINUTE_SECONDS = 60.0
TRIGGER_LOCK_ID = 0x61727469
"""Id of the PostgreSQL advisory lock that serialises the counting of triggers."""


class TriggerLimits:
    """Checks limits for embeddings that a user requests. A check that fails raises an HTTPError that says
    what the user can do, and changes nothing."""

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

    def check_length(self, request: RouteRequest, content: str) -> None:
        limit = self._articles.settings.content_limit
        if len(content) > limit:
            raise HTTPError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                MESSAGES.translate(request.language, "too_long", count=len(content), limit=limit),
                field="content",
            )

    async def check_room(self, request: RouteRequest, more: int) -> None:
        """Raises HTTPError 503 if the queue has no space for `more` new jobs."""
        waiting, limit = await self._articles.requests.waiting()
        if more and limit is not None and waiting + more > limit:
            raise self.build_queue_full(request, waiting, limit)

    def build_queue_full(self, request: RouteRequest, waiting: int, limit: int) -> HTTPError:
        sentence = MESSAGES.translate(request.language, "full", waiting=waiting, limit=limit)
        return HTTPError(
            HTTPStatus.SERVICE_UNAVAILABLE, sentence, headers={"retry-after": str(int(MINUTE_SECONDS))}
        )

    async def count_trigger(self, request: RouteRequest) -> None:
        """Counts one request of the user. Raises HTTPError 429 if the user has reached `triggers_per_minute`
        in the last minute."""
        who, limit = request.user.name, self._articles.settings.triggers_per_minute
        wait = await self._count_or_wait(who, limit)
        if wait:
            seconds = math.ceil(wait)
            raise HTTPError(
                HTTPStatus.TOO_MANY_REQUESTS,
                MESSAGES.translate(request.language, "too_often", who=who, limit=limit, wait=seconds),
                headers={"retry-after": str(seconds)},
            )

    async def _count_or_wait(self, who: str, limit: int) -> float:
        """Counts one request of the user `who` and returns 0. If the user has made `limit` requests in the
        last minute, counts nothing and returns the seconds to wait."""
        columns = self._triggers.c
        await self._posts.prepare()
        async with self._posts.database.transaction() as connection:
            if connection.dialect.name == "postgresql":  # SQLite has one writer at a time
                await connection.execute(select(func.pg_advisory_xact_lock(TRIGGER_LOCK_ID)))
            now = self._articles.app.clock.wall()
            over = or_(columns.at <= now - MINUTE_SECONDS, columns.at > now + MINUTE_SECONDS)
            await connection.execute(delete(self._triggers).where(over))
            query = select(func.count(), func.min(columns.at)).where(columns.who == who)
            count, first = (await connection.execute(query)).one()
            if count >= limit:
                return min(max(float(first) + MINUTE_SECONDS - now, 1.0), MINUTE_SECONDS)
            await connection.execute(insert(self._triggers).values(who=who, at=now))
            return 0.0


MAX_IDS_NAMED = 10
MAX_POST_ID = 2**63 - 1


def parse_post_id(request: RouteRequest) -> int:
    """Returns the article id in the request's path. Raises HTTPError 404 if it is not a number. It does not
    check that the article exists."""
    named = request.path["id"]
    if not (named.isascii() and named.isdigit() and int(named) <= MAX_POST_ID):
        raise refuse_unknown_post(request)
    return int(named)


def refuse_unknown_post(request: RouteRequest) -> HTTPError:
    sentence = MESSAGES.translate(request.language, "unknown", post=request.path["id"][:20])
    return HTTPError(HTTPStatus.NOT_FOUND, sentence, field="id")


class EmbeddingTriggers:
    """Requests embeddings for a user. A refused request changes nothing. If the queue becomes full after the
    checks, the remaining articles stay pending and are enqueued later."""

    def __init__(self, articles: Articles, limits: TriggerLimits) -> None:
        self._articles, self._limits = articles, limits
        self._summaries = PostSummaries(articles.posts)

    async def load_post(self, request: RouteRequest) -> Post:
        """Returns the article whose id is in the request's path. Raises HTTPError 404 if it does not
        exist."""
        post = await self._articles.posts.get(parse_post_id(request))
        if post is None:
            raise refuse_unknown_post(request)
        return post

    async def load_visible(self, request: RouteRequest) -> Post:
        """Returns the article whose id is in the request's path. Raises HTTPError 404 if it does not exist,
        or if it is hidden and the user is not an admin."""
        post = await self.load_post(request)
        if post.hidden and not request.user.role.may(Role.ADMIN):
            raise refuse_unknown_post(request)
        return post

    async def trigger_one(self, request: RouteRequest) -> None:
        """Requests the embedding of the article in the request's path. Its job runs before all bulk and
        automatic embeddings (requirement E2)."""
        post = await self.load_post(request)
        self._limits.check_length(request, post.content)
        if not post.content:
            sentence = MESSAGES.translate(request.language, "without_text", post=post.id)
            raise HTTPError(HTTPStatus.UNPROCESSABLE_ENTITY, sentence, field="content")
        await self._request(request, [post.id], MANUAL_PRIORITY)

    async def trigger_many(
        self, request: RouteRequest, ids: Collection[int] | None, priority: int = BULK_PRIORITY
    ) -> int:
        """Requests embeddings of the articles `ids`, or of all visible articles with a text if `ids` is None.
        Returns the number of requested articles."""
        if ids is not None:
            await self._check_known(request, ids)
        return await self._request(request, ids, priority)

    async def _check_known(self, request: RouteRequest, ids: Collection[int]) -> None:
        lines = await self._summaries.load([number for number in ids if 0 < number <= MAX_POST_ID])
        if unknown := [str(number) for number in ids if number not in lines]:
            named = ", ".join(unknown[:MAX_IDS_NAMED]) + (" …" if len(unknown) > MAX_IDS_NAMED else "")
            sentence = MESSAGES.translate(request.language, "unknown_many", posts=named)
            raise HTTPError(HTTPStatus.NOT_FOUND, sentence, field="ids")
        limit = self._articles.settings.content_limit
        for line in lines.values():
            if line.length > limit:
                sentence = MESSAGES.translate(request.language, "too_long", count=line.length, limit=limit)
                raise HTTPError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{line.id}: {sentence}", field="ids")

    async def _request(self, request: RouteRequest, ids: Collection[int] | None, priority: int) -> int:
        waiting = await self._waiting_in_full_queue(ids or ())
        others = None if ids is None else [number for number in ids if number not in waiting]
        await self._limits.check_room(
            request, await self._summaries.count_visible() if others is None else len(others)
        )
        await self._limits.count_trigger(request)
        requests = self._articles.requests
        try:
            await reprioritise_jobs(self._articles.app, waiting.values(), priority)
            if others is None:
                return await requests.request_all(priority)
            return len(waiting) + await requests.request_many(others, priority)
        except QueueFull as error:
            # Another request was faster. Rows that are pending by now are sent when there is room.
            raise HTTPError(
                HTTPStatus.SERVICE_UNAVAILABLE, str(error), headers={"retry-after": "60"}
            ) from error

    async def _waiting_in_full_queue(self, ids: Collection[int]) -> dict[int, Job]:
        """Returns the waiting jobs of the articles `ids`, by article id. Returns an empty mapping if the
        queue has space for new jobs of all `ids`."""
        room = await self._articles.requests.room()
        if room is None or len(ids) <= room:
            return {}
        return await load_waiting_jobs(self._articles.app, self._articles.posts, ids)
