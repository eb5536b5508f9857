"""The API of articles (E8), under the dashboard's sign-in (E11)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from tidemill.web import Asked, Events, Refused, Role
from tidemill_apps.articles.answers import (
    Answer,
    NewPost,
    PostChange,
    Queued,
    QueuedCount,
    Said,
    Searched,
    ShownPost,
    Wanted,
    shown,
    told,
)
from tidemill_apps.articles.glance import distinct
from tidemill_apps.articles.limits import Limits
from tidemill_apps.articles.progress import Progress, Watched
from tidemill_apps.articles.searching import Found, SearchShut, SearchUnavailable
from tidemill_apps.articles.triggers import Triggers, number_of, unknown
from tidemill_apps.articles.waiting import QueueStatus, Waiting
from tidemill_apps.articles.words import said

if TYPE_CHECKING:
    from tidemill_apps.articles.articles import Articles

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[[Asked], Awaitable[Any]]


class Routes:
    def __init__(self, articles: Articles, limits: Limits, triggers: Triggers) -> None:
        self._articles, self._limits, self._triggers = articles, limits, triggers
        self._waiting, self._progress = Waiting(articles), Progress(articles)

    def declare(self) -> None:
        self._add(
            "GET", "/api/embedding/queue/status", self.status, Answer[QueueStatus], "Who waits, who runs."
        )
        self._add(
            "GET",
            "/api/embedding/progress",
            self._progress.follow,
            Events,
            "How far embedding is, as it changes: events `counts` and `processing`, or `post` of one.",
            query=Watched,
        )
        self._add("POST", "/api/post/{id}/embed", self.embed, Said, "Embed an article before all others.")
        self._add(
            "POST",
            "/api/post/embed/batch",
            self.embed_many,
            Queued,
            "Embed these articles, or every one that has content and is not hidden, when nothing else waits.",
            takes=Wanted,
        )
        self._add("POST", "/api/post", self.create, Answer[ShownPost], "Write an article.", takes=NewPost)
        for method in ("PUT", "PATCH"):
            self._add(
                method,
                "/api/post/{id}",
                self.change,
                Answer[ShownPost],
                "Change what is given of an article.",
                takes=PostChange,
            )
        self._add("DELETE", "/api/post/{id}", self.delete, Said, "Delete an article and its vectors.")
        self._add("GET", "/api/post/{id}", self.get, Answer[ShownPost], "An article.", role=Role.VIEWER)
        self._add(
            "GET",
            "/api/post/search",
            self.search,
            Answer[list[Found]],
            "Articles by what they mean, the nearest first; hidden ones are not found.",
            query=Searched,
            role=Role.VIEWER,
        )

    async def status(self, _: Asked) -> Answer[QueueStatus]:
        return Answer(data=await self._waiting.status())

    async def embed(self, asked: Asked) -> Said:
        await self._triggers.one(asked)
        return Said(message=said(asked.language, "queued"))

    async def embed_many(self, asked: Asked) -> Queued:
        ids = None if asked.body.ids is None else distinct(asked.body.ids)
        count = await self._triggers.many(asked, ids)
        message = said(asked.language, "queued_many", count=count)
        return Queued(message=message, data=QueuedCount(count))

    async def create(self, asked: Asked) -> Answer[ShownPost]:
        new: NewPost = asked.body
        self._limits.mind_length(asked, new.content)
        return Answer(data=shown(await self._articles.create(new.title, new.content, new.hide)))

    async def change(self, asked: Asked) -> Answer[ShownPost]:
        change: PostChange = asked.body
        if isinstance(change.content, str):
            self._limits.mind_length(asked, change.content)
        changed = await self._articles.change(
            number_of(asked), title=change.title, content=change.content, hide=change.hide
        )
        if changed is None:
            raise unknown(asked)
        return Answer(data=shown(changed.post))

    async def delete(self, asked: Asked) -> Said:
        number = number_of(asked)
        if not await self._articles.delete(number):
            raise unknown(asked)
        return Said(message=said(asked.language, "deleted", post=number))

    async def get(self, asked: Asked) -> Answer[ShownPost]:
        return Answer(data=shown(await self._triggers.visible(asked)))

    async def search(self, asked: Asked) -> Answer[list[Found]]:
        return Answer(data=await found(self._articles, asked))

    def _add(
        self,
        method: Method,
        path: str,
        handler: Handler,
        answers: Any,
        says: str,
        *,
        takes: Any = None,
        query: Any = None,
        role: Role = Role.ADMIN,
    ) -> None:
        self._articles.app.web.route(
            method, path, role=role, says=says, takes=takes, query=query, answers=answers, problem=told
        )(handler)


async def found(articles: Articles, asked: Asked) -> list[Found]:
    try:
        return await articles.search(asked.query.text, asked.query.limit)
    except SearchShut as error:
        how = said(asked.language, "open_it" if error.shut.until is None else "try_later")
        sentence = said(asked.language, "shut", reason=error.shut.reason)
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{sentence}; {how}") from error
    except SearchUnavailable as error:
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
