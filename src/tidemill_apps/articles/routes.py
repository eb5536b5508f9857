"""The HTTP API of the articles application, with its request and response types."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidemill import AnswerUnavailable
from tidemill.web import EventStream, HTTPError, Problem, Role, RouteRequest, retry_after_header
from tidemill_apps.articles.embedding_triggers import (
    EmbeddingTriggers,
    TriggerLimits,
    parse_post_id,
    refuse_unknown_post,
)
from tidemill_apps.articles.post_summaries import remove_duplicates
from tidemill_apps.articles.posts import Post
from tidemill_apps.articles.search import ArticleMatch, SearchUnavailable
from tidemill_apps.articles.service import MESSAGES, Articles
from tidemill_apps.articles.status import (
    EmbeddingProgress,
    EmbeddingProgressQuery,
    EmbeddingQueue,
    EmbeddingQueueStatus,
)

DataT = TypeVar("DataT")
HideFlag = Literal["0", "1"]
PostTitle = Annotated[str, Meta(max_length=500)]


class ArticlesDataReply(msgspec.Struct, Generic[DataT], frozen=True, kw_only=True):
    status: bool = True
    data: DataT


class ArticlesMessageReply(msgspec.Struct, frozen=True, kw_only=True):
    status: bool = True
    message: str


def build_problem_body(problem: Problem) -> dict[str, Any]:
    """Returns the JSON body of an error response, in the format of the API that this application replaces."""
    return {"status": False, "message": problem.detail}


class NewPostBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    title: PostTitle
    content: str = ""
    hide: HideFlag = "0"


class PostChangeBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The request body of a change to an article. Fields that the client leaves out do not change."""

    title: PostTitle | UnsetType = UNSET
    content: str | UnsetType = UNSET
    hide: HideFlag | UnsetType = UNSET


class EmbedBatchBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The request body of `POST /api/post/embed/batch`. If `ids` is left out, every visible article with a
    text is embedded."""

    ids: Annotated[list[int], Meta(min_length=1, max_length=10_000)] | None = None


class ArticleSearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1, max_length=2000)]
    limit: Annotated[int, Meta(ge=1, le=50)] = 10


class QueuedReply(msgspec.Struct, frozen=True, kw_only=True):
    status: bool = True
    message: str
    data: QueuedCount


class QueuedCount(msgspec.Struct, frozen=True):
    queued: int


class PostReply(msgspec.Struct, frozen=True, kw_only=True):
    """An article in a response, without the columns that only workers need."""

    id: int
    title: str
    content: str
    hide: str
    rag_status: str | None
    rag_error: str | None


def build_post_reply(post: Post) -> PostReply:
    return PostReply(**{name: getattr(post, name) for name in PostReply.__struct_fields__})


HttpMethod = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
RouteHandler = Callable[[RouteRequest], Awaitable[Any]]


class ArticleRoutes:
    def __init__(self, articles: Articles, limits: TriggerLimits, triggers: EmbeddingTriggers) -> None:
        self._articles, self._limits, self._triggers = articles, limits, triggers
        self._queue_view, self._progress = EmbeddingQueue(articles), EmbeddingProgress(articles)

    def declare(self) -> None:
        """Adds the routes to the application."""
        self._declare_embedding()
        self._declare_articles()

    def _declare_embedding(self) -> None:
        self._add(
            "GET",
            "/api/embedding/queue/status",
            self.status,
            ArticlesDataReply[EmbeddingQueueStatus],
            "Waiting and running articles.",
        )
        self._add(
            "GET",
            "/api/embedding/progress",
            self._progress.follow,
            EventStream,
            "Progress as an event stream: events `counts` and `processing`, or `post` for one article.",
            query=EmbeddingProgressQuery,
        )
        self._add(
            "POST",
            "/api/post/{id}/embed",
            self.embed,
            ArticlesMessageReply,
            "Embed an article before all that wait.",
        )
        self._add(
            "POST",
            "/api/post/embed/batch",
            self.embed_many,
            QueuedReply,
            "Embed these articles, or every visible one with content, at low priority.",
            body=EmbedBatchBody,
        )

    def _declare_articles(self) -> None:
        self._add(
            "POST",
            "/api/post",
            self.create,
            ArticlesDataReply[PostReply],
            "Create an article.",
            body=NewPostBody,
        )
        for method in ("PUT", "PATCH"):
            self._add(
                method,
                "/api/post/{id}",
                self.change,
                ArticlesDataReply[PostReply],
                "Change the given fields of an article.",
                body=PostChangeBody,
            )
        self._add(
            "DELETE",
            "/api/post/{id}",
            self.delete,
            ArticlesMessageReply,
            "Delete an article and its vectors.",
        )
        self._add(
            "GET",
            "/api/post/{id}",
            self.get,
            ArticlesDataReply[PostReply],
            "Return an article.",
            role=Role.VIEWER,
        )
        self._add(
            "GET",
            "/api/post/search",
            self.search,
            ArticlesDataReply[list[ArticleMatch]],
            "Search visible articles by meaning, the nearest first.",
            query=ArticleSearchQuery,
            role=Role.VIEWER,
        )

    async def status(self, _: RouteRequest) -> ArticlesDataReply[EmbeddingQueueStatus]:
        return ArticlesDataReply(data=await self._queue_view.status())

    async def embed(self, request: RouteRequest) -> ArticlesMessageReply:
        await self._triggers.trigger_one(request)
        return ArticlesMessageReply(message=MESSAGES.translate(request.language, "queued"))

    async def embed_many(self, request: RouteRequest) -> QueuedReply:
        ids = None if request.body.ids is None else remove_duplicates(request.body.ids)
        count = await self._triggers.trigger_many(request, ids)
        message = MESSAGES.translate(request.language, "queued_many", count=count)
        return QueuedReply(message=message, data=QueuedCount(count))

    async def create(self, request: RouteRequest) -> ArticlesDataReply[PostReply]:
        new: NewPostBody = request.body
        self._limits.check_length(request, new.content)
        return ArticlesDataReply(
            data=build_post_reply(await self._articles.create(new.title, new.content, new.hide))
        )

    async def change(self, request: RouteRequest) -> ArticlesDataReply[PostReply]:
        change: PostChangeBody = request.body
        if isinstance(change.content, str):
            self._limits.check_length(request, change.content)
        changed = await self._articles.change(
            parse_post_id(request), title=change.title, content=change.content, hide=change.hide
        )
        if changed is None:
            raise refuse_unknown_post(request)
        return ArticlesDataReply(data=build_post_reply(changed.post))

    async def delete(self, request: RouteRequest) -> ArticlesMessageReply:
        number = parse_post_id(request)
        if not await self._articles.delete(number):
            raise refuse_unknown_post(request)
        return ArticlesMessageReply(message=MESSAGES.translate(request.language, "deleted", post=number))

    async def get(self, request: RouteRequest) -> ArticlesDataReply[PostReply]:
        return ArticlesDataReply(data=build_post_reply(await self._triggers.load_visible(request)))

    async def search(self, request: RouteRequest) -> ArticlesDataReply[list[ArticleMatch]]:
        return ArticlesDataReply(data=await search_articles(self._articles, request))

    def _add(
        self,
        method: HttpMethod,
        path: str,
        handler: RouteHandler,
        response: Any,
        summary: str,
        *,
        body: Any = None,
        query: Any = None,
        role: Role = Role.ADMIN,
    ) -> None:
        self._articles.app.web.route(
            method,
            path,
            role=role,
            summary=summary,
            body=body,
            query=query,
            response=response,
            problem=build_problem_body,
        )(handler)


async def search_articles(articles: Articles, request: RouteRequest) -> list[ArticleMatch]:
    try:
        return await articles.search(request.query.text, request.query.limit)
    except AnswerUnavailable as error:
        later = error.retry_after
        headers = {} if later is None else retry_after_header(later)
        sentence = f"the question could not be embedded: {error}; try again, and see that a worker runs"
        if error.code == "pool_closed":
            remedy = MESSAGES.translate(request.language, "open_it" if later is None else "try_later")
            blocked = MESSAGES.translate(request.language, "call_block", reason=error.reason)
            sentence = f"{blocked}; {remedy}"
        raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, sentence, headers=headers) from error
    except SearchUnavailable as error:
        raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
