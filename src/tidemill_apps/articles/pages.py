"""The pages of articles in the dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from tidemill.web import Asked, Go, Page, Role
from tidemill_apps.articles.answers import Hide, Searched, Title
from tidemill_apps.articles.glance import Glance
from tidemill_apps.articles.holding import Holding
from tidemill_apps.articles.limits import Limits
from tidemill_apps.articles.progress import Progress
from tidemill_apps.articles.requesting import MANUAL
from tidemill_apps.articles.routes import found
from tidemill_apps.articles.samples import samples
from tidemill_apps.articles.triggers import Triggers, number_of, unknown
from tidemill_apps.articles.waiting import Waiting
from tidemill_apps.articles.words import said, say_in

if TYPE_CHECKING:
    from tidemill_apps.articles.articles import Articles

LISTED = 20
RETRIED = 1000
"""Failed articles that one press of the button tries again."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What a form says; a field that is left blank is not sent."""

    title: Title = ""
    content: str = ""
    hide: Hide = "0"


class Pages:
    def __init__(self, articles: Articles, limits: Limits, triggers: Triggers) -> None:
        self._articles, self._limits, self._triggers = articles, limits, triggers
        self._holding = Holding(articles)
        self._glance, self._waiting, self._progress = (
            Glance(articles.posts),
            Waiting(articles),
            Progress(articles),
        )

    def declare(self) -> None:
        web = self._articles.app.web
        web.templates(Path(__file__).with_name("templates"))
        web.page("/articles", title={"en": "Articles", "zh": "文章"})(self.overview)
        web.page("/articles/search", title="Search articles", query=Searched, listed=False)(self.search)
        web.page("/articles/{id}", title="Article")(self.one)
        for path, handler, says, takes in (
            ("/articles/create", self.create, "Write an article.", Written),
            ("/articles/{id}/save", self.save, "Change an article.", Written),
            ("/articles/{id}/delete", self.delete, "Delete an article and its vectors.", None),
            ("/articles/{id}/embed", self.embed, "Embed an article before all others.", None),
            ("/articles/embed", self.embed_all, "Embed every article again.", None),
            ("/articles/retry", self.retry, "Try the failed articles again.", None),
            ("/articles/samples", self.add_samples, "Add the sample articles.", None),
        ):
            web.route("POST", path, role=Role.ADMIN, says=says, takes=takes)(handler)

    async def overview(self, asked: Asked) -> Page:
        """Who may only look finds what is shown, and reads it; the work on it is for admins."""
        if not asked.who.role.may(Role.ADMIN):
            newest = await self._glance.recent(LISTED, hidden=False)
            return self._page(asked, "articles.html", {"newest": newest}, live=("newest",))
        progress = await self._progress.counts()
        shows = {
            "progress": progress,
            "counts": progress,
            "queue": await self._waiting.status(),
            "queue_name": self._articles.queue,
            **await self._held(),
            "failures": await self._glance.failed(LISTED),
            "newest": await self._glance.recent(LISTED),
        }
        return self._page(asked, "articles.html", shows, live=("figures", "failures", "queue", "newest"))

    async def one(self, asked: Asked) -> Page:
        post = await self._triggers.visible(asked)
        shows = {"post": post, "standing": await self._progress.of(post.id), **await self._held()}
        return self._page(asked, "article.html", shows, live=("standing",))

    async def search(self, asked: Asked) -> Page:
        results = await found(self._articles, asked)
        return self._page(asked, "article_search.html", {"text": asked.query.text, "found": results})

    async def create(self, asked: Asked) -> Go:
        new: Written = asked.body
        self._limits.mind_length(asked, new.content)
        post = await self._articles.create(new.title, new.content, new.hide)
        return Go(f"/articles/{post.id}", notice=said(asked.language, "saved", post=post.id))

    async def save(self, asked: Asked) -> Go:
        new: Written = asked.body
        post = await self._triggers.post(asked)
        content = _changed(post.content, new.content)
        if content is not UNSET:
            self._limits.mind_length(asked, new.content)
        if await self._articles.change(post.id, title=new.title, content=content, hide=new.hide) is None:
            raise unknown(asked)
        return Go(f"/articles/{post.id}", notice=said(asked.language, "saved", post=post.id))

    async def delete(self, asked: Asked) -> Go:
        number = number_of(asked)
        if not await self._articles.delete(number):
            raise unknown(asked)
        return Go("/articles", notice=said(asked.language, "deleted", post=number))

    async def embed(self, asked: Asked) -> Go:
        await self._triggers.one(asked)
        return Go(f"/articles/{asked.path['id']}", notice=said(asked.language, "queued"))

    async def embed_all(self, asked: Asked) -> Go:
        count = await self._triggers.many(asked, None)
        return Go("/articles", notice=said(asked.language, "queued_many", count=count))

    async def retry(self, asked: Asked) -> Go:
        failed = await self._glance.all_failed(RETRIED)
        count = await self._triggers.many(asked, failed, MANUAL) if failed else 0
        return Go("/articles", notice=said(asked.language, "queued_many", count=count))

    async def add_samples(self, asked: Asked) -> Go:
        count = await add_samples(self._articles)
        return Go("/articles", notice=said(asked.language, "samples", count=count))

    async def _held(self) -> dict[str, Any]:
        """Why no call is made, or nothing can be stored and found, if so."""
        closed, away = await self._holding.shut(), await self._holding.away()
        return {"pool_name": self._articles.pool.name, "shut": closed, "away": away}

    def _page(self, asked: Asked, template: str, shows: dict[str, Any], live: tuple[str, ...] = ()) -> Page:
        always = {"say": say_in(asked.language), "simulated": self._articles.simulated}
        return Page(template, {**always, **shows}, live=live)


def _changed(stored: str, sent: str) -> str | UnsetType:
    """A form cannot say how lines end: a text that differs in nothing else stays, and costs no call."""
    return UNSET if stored.replace("\r\n", "\n").replace("\r", "\n") == sent else sent


async def add_samples(articles: Articles) -> int:
    """Those whose titles are not there yet; how many that are."""
    known = await Glance(articles.posts).titled([sample.title for sample in samples()])
    new = [sample for sample in samples() if sample.title not in known]
    for sample in new:
        await articles.create(sample.title, sample.content)
    return len(new)
