"""The dashboard pages of the articles application."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tidemill.web import PageResponse, Redirect, Role, RouteRequest
from tidemill_apps.articles.embed_requests import MANUAL_PRIORITY
from tidemill_apps.articles.embedding_triggers import (
    EmbeddingTriggers,
    TriggerLimits,
    parse_post_id,
    refuse_unknown_post,
)
from tidemill_apps.articles.post_summaries import PostSummaries
from tidemill_apps.articles.routes import (
    ArticleSearchQuery,
    HideFlag,
    PostTitle,
    search_articles,
)
from tidemill_apps.articles.samples import add_samples
from tidemill_apps.articles.service import MESSAGES, Articles
from tidemill_apps.articles.status import EmbeddingAvailability, EmbeddingProgress, EmbeddingQueue
from tidemill_apps.common.pages import add_templates

MAX_ARTICLES_LISTED = 20
MAX_ARTICLES_RETRIED = 1000
"""Maximum number of failed articles that one click retries."""


class ArticleForm(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the article form. A field that the user left empty counts as not sent, so its default
    applies."""

    title: PostTitle = ""
    content: str = ""
    hide: HideFlag = "0"


class ArticlePages:
    def __init__(self, articles: Articles, limits: TriggerLimits, triggers: EmbeddingTriggers) -> None:
        self._articles, self._limits, self._triggers = articles, limits, triggers
        self._availability = EmbeddingAvailability(articles)
        self._summaries, self._queue_view, self._progress = (
            PostSummaries(articles.posts),
            EmbeddingQueue(articles),
            EmbeddingProgress(articles),
        )

    def declare(self) -> None:
        web = self._articles.app.web
        add_templates(self._articles.app, Path(__file__).with_name("templates"))
        web.page("/articles", title={"en": "Articles", "zh": "文章"})(self.overview)
        web.page("/articles/search", title="Search articles", query=ArticleSearchQuery, listed=False)(
            self.search
        )
        web.page("/articles/{id}", title="Article")(self.one)
        for path, handler, summary, body in (
            ("/articles/create", self.create, "Create an article.", ArticleForm),
            ("/articles/{id}/save", self.save, "Change an article.", ArticleForm),
            ("/articles/{id}/delete", self.delete, "Delete an article and its vectors.", None),
            ("/articles/{id}/embed", self.embed, "Embed an article before all that wait.", None),
            ("/articles/embed", self.embed_all, "Embed every article again.", None),
            ("/articles/retry", self.retry, "Retry the failed articles.", None),
            ("/articles/samples", self.add_samples, "Add the sample articles.", None),
        ):
            web.route("POST", path, role=Role.ADMIN, summary=summary, body=body)(handler)

    async def overview(self, request: RouteRequest) -> PageResponse:
        """Returns the page `/articles`. Viewers see visible articles only. Admins see all articles, the
        queue, failures and progress."""
        if not request.user.role.may(Role.ADMIN):
            newest = await self._summaries.load_recent(MAX_ARTICLES_LISTED, hidden=False)
            return self._page(request, "articles.html", {"newest": newest}, live=("newest",))
        progress = await self._progress.counts()
        context = {
            "progress": progress,
            "counts": progress,
            "queue": await self._queue_view.status(),
            "queue_name": self._articles.queue,
            **await self._blocked_context(),
            "failures": await self._summaries.load_failed(MAX_ARTICLES_LISTED),
            "newest": await self._summaries.load_recent(MAX_ARTICLES_LISTED),
        }
        return self._page(request, "articles.html", context, live=("figures", "failures", "queue", "newest"))

    async def one(self, request: RouteRequest) -> PageResponse:
        post = await self._triggers.load_visible(request)
        context = {
            "post": post,
            "progress": await self._progress.load_post(post.id),
            **await self._blocked_context(),
        }
        return self._page(request, "article.html", context, live=("progress",))

    async def search(self, request: RouteRequest) -> PageResponse:
        results = await search_articles(self._articles, request)
        return self._page(request, "article_search.html", {"text": request.query.text, "matches": results})

    async def create(self, request: RouteRequest) -> Redirect:
        new: ArticleForm = request.body
        self._limits.check_length(request, new.content)
        post = await self._articles.create(new.title, new.content, new.hide)
        return MESSAGES.redirect(request, f"/articles/{post.id}", "saved", post=post.id)

    async def save(self, request: RouteRequest) -> Redirect:
        new: ArticleForm = request.body
        post = await self._triggers.load_post(request)
        content = _changed_content(post.content, new.content)
        if content is not UNSET:
            self._limits.check_length(request, new.content)
        if await self._articles.change(post.id, title=new.title, content=content, hide=new.hide) is None:
            raise refuse_unknown_post(request)
        return MESSAGES.redirect(request, f"/articles/{post.id}", "saved", post=post.id)

    async def delete(self, request: RouteRequest) -> Redirect:
        number = parse_post_id(request)
        if not await self._articles.delete(number):
            raise refuse_unknown_post(request)
        return MESSAGES.redirect(request, "/articles", "deleted", post=number)

    async def embed(self, request: RouteRequest) -> Redirect:
        await self._triggers.trigger_one(request)
        return MESSAGES.redirect(request, f"/articles/{request.path['id']}", "queued")

    async def embed_all(self, request: RouteRequest) -> Redirect:
        count = await self._triggers.trigger_many(request, None)
        return MESSAGES.redirect(request, "/articles", "queued_many", count=count)

    async def retry(self, request: RouteRequest) -> Redirect:
        failed = await self._summaries.load_failed_ids(MAX_ARTICLES_RETRIED)
        count = await self._triggers.trigger_many(request, failed, MANUAL_PRIORITY) if failed else 0
        return MESSAGES.redirect(request, "/articles", "queued_many", count=count)

    async def add_samples(self, request: RouteRequest) -> Redirect:
        count = await add_samples(self._articles)
        return MESSAGES.redirect(request, "/articles", "samples", count=count)

    async def _blocked_context(self) -> dict[str, Any]:
        """Returns the values for the page template that say why no provider calls are made and what is wrong
        with Qdrant. A value is None if there is no such problem."""
        closed, qdrant_problem = (
            await self._availability.call_block(),
            await self._availability.qdrant_problem(),
        )
        return {"pool_name": self._articles.pool.name, "call_block": closed, "qdrant_problem": qdrant_problem}

    def _page(
        self, request: RouteRequest, template: str, context: dict[str, Any], live: tuple[str, ...] = ()
    ) -> PageResponse:
        return MESSAGES.page(request, template, {"simulated": self._articles.simulated, **context}, live=live)


def _changed_content(stored: str, sent: str) -> str | UnsetType:
    """Returns the text sent by the form, or UNSET if it equals the stored text. Line endings are not
    compared, because a browser changes them."""
    return UNSET if stored.replace("\r\n", "\n").replace("\r", "\n") == sent else sent
