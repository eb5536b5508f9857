"""Embeddings that a person asks for: by the API and by the buttons of the pages alike."""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus
from typing import TYPE_CHECKING

from tidemill import Job, QueueFull
from tidemill.web import Asked, Refused, Role
from tidemill_apps.articles.glance import Glance
from tidemill_apps.articles.hurrying import hurry, waiting_for
from tidemill_apps.articles.limits import Limits
from tidemill_apps.articles.posts import Post
from tidemill_apps.articles.requesting import BULK, MANUAL
from tidemill_apps.articles.words import said

if TYPE_CHECKING:
    from tidemill_apps.articles.articles import Articles

NAMED = 10
LARGEST = 2**63 - 1


def number_of(asked: Asked) -> int:
    """Of the article that the path names; whether it is there is another question."""
    named = asked.path["id"]
    if not (named.isascii() and named.isdigit() and int(named) <= LARGEST):
        raise unknown(asked)
    return int(named)


def unknown(asked: Asked) -> Refused:
    sentence = said(asked.language, "unknown", post=asked.path["id"][:20])
    return Refused(HTTPStatus.NOT_FOUND, sentence, field="id")


class Triggers:
    """Nothing is requested before all of it may be; a refused one changes nothing."""

    def __init__(self, articles: Articles, limits: Limits) -> None:
        self._articles, self._limits = articles, limits
        self._glance = Glance(articles.posts)

    async def post(self, asked: Asked) -> Post:
        """The one that the path names."""
        post = await self._articles.posts.get(number_of(asked))
        if post is None:
            raise unknown(asked)
        return post

    async def visible(self, asked: Asked) -> Post:
        """The same; a hidden one is there for admins only."""
        post = await self.post(asked)
        if post.hidden and not asked.who.role.may(Role.ADMIN):
            raise unknown(asked)
        return post

    async def one(self, asked: Asked) -> None:
        """First of all that wait (E2)."""
        post = await self.post(asked)
        self._limits.mind_length(asked, post.content)
        if not post.content:
            sentence = said(asked.language, "without_text", post=post.id)
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, sentence, field="content")
        await self._request(asked, [post.id], MANUAL)

    async def many(self, asked: Asked, ids: Collection[int] | None, priority: int = BULK) -> int:
        """How many were requested."""
        if ids is not None:
            await self._mind_known(asked, ids)
        return await self._request(asked, ids, priority)

    async def _mind_known(self, asked: Asked, ids: Collection[int]) -> None:
        lines = await self._glance.of([number for number in ids if 0 < number <= LARGEST])
        if unknown := [str(number) for number in ids if number not in lines]:
            named = ", ".join(unknown[:NAMED]) + (" …" if len(unknown) > NAMED else "")
            sentence = said(asked.language, "unknown_many", posts=named)
            raise Refused(HTTPStatus.NOT_FOUND, sentence, field="ids")
        limit = self._articles.settings.content_limit
        for line in lines.values():
            if line.length > limit:
                sentence = said(asked.language, "too_long", count=line.length, limit=limit)
                raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{line.id}: {sentence}", field="ids")

    async def _request(self, asked: Asked, ids: Collection[int] | None, priority: int) -> int:
        waiting = await self._waiting_in_full_queue(ids or ())
        others = None if ids is None else [number for number in ids if number not in waiting]
        await self._limits.mind_room(asked, await self._glance.shown() if others is None else len(others))
        await self._limits.mind_triggers(asked)
        requests = self._articles.requests
        try:
            await hurry(self._articles.app, waiting.values(), priority)
            if others is None:
                return await requests.request_all(priority)
            return len(waiting) + await requests.request_many(others, priority)
        except QueueFull as error:
            # Others were quicker: what is pending by now is sent when there is room.
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE, str(error), headers={"retry-after": "60"}
            ) from error

    async def _waiting_in_full_queue(self, ids: Collection[int]) -> dict[int, Job]:
        """The jobs of those that wait, where there is not room for all."""
        room = await self._articles.requests.room()
        if room is None or len(ids) <= room:
            return {}
        return await waiting_for(self._articles.app, self._articles.posts, ids)
