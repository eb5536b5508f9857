"""The dashboard pages of the feeds application."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tidemill.web import PageResponse, Redirect, Role, RouteRequest
from tidemill_apps.feeds.feed_store import Feed
from tidemill_apps.feeds.routes import FeedActions, FeedTitle, FeedUrl
from tidemill_apps.feeds.service import FEEDS_QUEUE, MESSAGES, SITE_POOL
from tidemill_apps.feeds.settings import RefreshInterval
from tidemill_apps.feeds.sites import mask_url

MAX_FEEDS_SHOWN = 100
MAX_ARTICLES_SHOWN = 30


class FeedForm(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the feed form. An empty field counts as not sent, so its default applies."""

    url: FeedUrl
    title: FeedTitle | None = None
    refresh_interval: RefreshInterval | None = None


class OpmlForm(msgspec.Struct, frozen=True, kw_only=True):
    opml: str = ""


class FeedsPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query of the page `/feeds`. `after` is the last id of the previous page."""

    after: str = ""
    status: Literal["success", "failed"] | None = None
    text: Annotated[str, Meta(max_length=200)] = ""


class OpmlPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    import_id: Annotated[str, Meta(max_length=64)] = ""


class FeedPages:
    def __init__(self, actions: FeedActions) -> None:
        self._actions, self._feeds = actions, actions.feeds

    def declare(self) -> None:
        """Adds the pages and their forms to the application."""
        web = self._feeds.app.web
        web.templates(Path(__file__).with_name("templates"))
        web.page("/feeds", title={"en": "Feeds", "zh": "订阅源"}, query=FeedsPageQuery)(self.overview)
        web.page("/feeds/opml", title="OPML", role=Role.ADMIN, query=OpmlPageQuery, listed=False)(self.opml)
        web.page("/feeds/{id}", title="Feed")(self.one)
        for path, handler, summary, body, role in (
            ("/feeds/add", self.add, "Add a feed.", FeedForm, Role.ADMIN),
            ("/feeds/import", self.import_opml, "Import feeds from OPML.", OpmlForm, Role.ADMIN),
            ("/feeds/{id}/save", self.save, "Change a feed.", FeedForm, Role.ADMIN),
            ("/feeds/{id}/delete", self.delete, "Delete a feed.", None, Role.ADMIN),
            ("/feeds/{id}/refresh", self.refresh, "Refresh a feed now.", None, Role.OPERATOR),
            ("/feeds/{id}/pause", self.pause, "Pause a feed.", None, Role.OPERATOR),
            ("/feeds/{id}/resume", self.resume, "End the pause of a feed.", None, Role.OPERATOR),
        ):
            web.route("POST", path, role=role, summary=summary, body=body)(handler)

    async def overview(self, request: RouteRequest) -> PageResponse:
        query, store = request.query, self._feeds.store
        await store.prepare()
        found = await store.find(
            after=query.after, limit=MAX_FEEDS_SHOWN + 1, status=query.status, text=query.text
        )
        context = {
            "feeds": [self._shown(request, feed) for feed in found[:MAX_FEEDS_SHOWN]],
            "next": found[MAX_FEEDS_SHOWN - 1].id if len(found) > MAX_FEEDS_SHOWN else None,
            "counts": await store.counts(),
            "hours": await self._feeds.history.hours(self._feeds.now()),
            "network_down": (await self._feeds.history.connections(self._feeds.now())).network_down,
            "query": query,
            "queue_name": FEEDS_QUEUE,
            "default_interval": self._feeds.settings.default_interval,
        }
        return MESSAGES.page(request, "feeds.html", context, live=("figures", "list"))

    async def one(self, request: RouteRequest) -> PageResponse:
        feed = await self._actions.load(request)
        context = {
            "feed": self._shown(request, feed),
            "site": self._feeds.site_of(feed.url),
            "pool_name": SITE_POOL,
            "hours": await self._feeds.history.hours(self._feeds.now(), feed.id),
            "articles": await self._feeds.articles.find(feed.id, MAX_ARTICLES_SHOWN),
            "article_count": await self._feeds.articles.count(feed.id),
        }
        return MESSAGES.page(request, "feed.html", context, live=("state", "runs", "articles"))

    async def opml(self, request: RouteRequest) -> PageResponse:
        import_id = request.query.import_id
        progress = await self._actions.import_progress(import_id) if import_id else None
        context = {"progress": progress if progress is not None and progress.total else None}
        return MESSAGES.page(request, "feeds_opml.html", context, live=("progress",))

    async def add(self, request: RouteRequest) -> Redirect:
        form: FeedForm = request.body
        feed = await self._actions.add(request, form.url, form.title, form.refresh_interval, None)
        return MESSAGES.redirect(request, f"/feeds/{feed.id}", "added", url=mask_url(feed.url))

    async def save(self, request: RouteRequest) -> Redirect:
        form: FeedForm = request.body
        feed = await self._actions.load(request)
        values: dict[str, Any] = {"url": form.url, "title": form.title or ""}
        if form.refresh_interval is not None:
            values["refresh_interval"] = form.refresh_interval
        await self._actions.change(feed, **values)
        return MESSAGES.redirect(request, f"/feeds/{feed.id}", "saved")

    async def import_opml(self, request: RouteRequest) -> Redirect:
        done = await self._actions.import_opml(request.body.opml, None, None)
        path = f"/feeds/opml?import_id={done.import_id}"
        refused = len(done.refused)
        return MESSAGES.redirect(
            request, path, "imported", added=done.added, known=done.known, refused=refused
        )

    async def delete(self, request: RouteRequest) -> Redirect:
        await self._feeds.delete(await self._actions.load(request))
        return MESSAGES.redirect(request, "/feeds", "deleted")

    async def refresh(self, request: RouteRequest) -> Redirect:
        feed = await self._actions.load(request)
        await self._feeds.refresh(feed)
        return MESSAGES.redirect(request, f"/feeds/{feed.id}", "refresh_sent")

    async def pause(self, request: RouteRequest) -> Redirect:
        feed = await self._actions.load(request)
        await self._feeds.schedules.pause(feed, None)
        return MESSAGES.redirect(request, f"/feeds/{feed.id}", "paused_now")

    async def resume(self, request: RouteRequest) -> Redirect:
        feed = await self._actions.load(request)
        await self._feeds.schedules.resume(feed)
        return MESSAGES.redirect(request, f"/feeds/{feed.id}", "resumed")

    def _shown(self, request: RouteRequest, feed: Feed) -> dict[str, Any]:
        due = feed.next_run(self._feeds.now())
        status = "paused" if feed.state.paused else "gone" if feed.state.gone else feed.last_fetch_status
        admin = request.user.role.may(Role.ADMIN)
        url = feed.url if admin else mask_url(feed.url)
        return {
            "id": feed.id,
            "title": feed.title or mask_url(feed.url),
            "own_title": feed.title or "",
            "url": url,
            "interval": feed.refresh_interval,
            "status": status or "new",
            "error": feed.last_fetch_error,
            "fetched": feed.last_fetched,
            "next_at": None if feed.state.paused else due.at,
            "reason": due.reason.value,
            "state": feed.state,
        }
