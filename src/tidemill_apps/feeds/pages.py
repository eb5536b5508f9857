"""The dashboard pages of the feeds application."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tidemill.web import PageResponse, Redirect, Role, RouteRequest
from tidemill_apps.feeds.addresses import InvalidFeedUrl
from tidemill_apps.feeds.feed_store import Feed
from tidemill_apps.feeds.routes import FeedActions, FeedsQuery, NewFeedBody, OpmlBody
from tidemill_apps.feeds.service import FEEDS_QUEUE, MESSAGES, SITE_POOL
from tidemill_apps.feeds.sites import mask_url

MAX_ARTICLES_SHOWN = 30


class OpmlPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    import_id: Annotated[str, Meta(max_length=64)] = ""


class FeedPages:
    def __init__(self, actions: FeedActions) -> None:
        self._actions, self._feeds = actions, actions.feeds

    def declare(self) -> None:
        """Adds the pages and their forms to the application."""
        web = self._feeds.app.web
        web.templates(Path(__file__).with_name("templates"))
        web.page("/feeds", title={"en": "Feeds", "zh": "订阅源"}, query=FeedsQuery)(self.overview)
        web.page("/feeds/opml", title="OPML", role=Role.ADMIN, query=OpmlPageQuery, listed=False)(self.opml)
        web.page("/feeds/{id}", title="Feed")(self.one)
        for path, handler, summary, body, role in (
            ("/feeds/add", self.add, "Add a feed.", NewFeedBody, Role.ADMIN),
            ("/feeds/import", self.import_opml, "Import feeds from OPML.", OpmlBody, Role.ADMIN),
            ("/feeds/{id}/save", self.save, "Change a feed.", NewFeedBody, Role.ADMIN),
            ("/feeds/{id}/delete", self.delete, "Delete a feed.", None, Role.ADMIN),
            ("/feeds/{id}/refresh", self.refresh, "Refresh a feed now.", None, Role.OPERATOR),
            ("/feeds/{id}/pause", self.pause, "Pause a feed.", None, Role.OPERATOR),
            ("/feeds/{id}/resume", self.resume, "End the pause of a feed.", None, Role.OPERATOR),
        ):
            web.route("POST", path, role=role, summary=summary, body=body)(handler)

    async def overview(self, request: RouteRequest) -> PageResponse:
        query, now = request.query, self._feeds.now()
        found = await self._actions.find(query, query.limit + 1)
        context = {
            "feeds": [self._shown(request, feed) for feed in found[: query.limit]],
            "next": found[query.limit - 1].id if len(found) > query.limit else None,
            "counts": await self._feeds.store.counts(),
            "hours": await self._feeds.history.hours(now),
            "network_down": (await self._feeds.history.connections(now)).network_down,
            "query": query,
            "queue_name": FEEDS_QUEUE,
            "default_interval": self._feeds.settings.default_interval,
        }
        return MESSAGES.page(request, "feeds.html", context, live=("figures", "list"))

    async def one(self, request: RouteRequest) -> PageResponse:
        feed = await self._actions.load(request)
        context = {
            "feed": self._shown(request, feed),
            "site": self._site_of(feed),
            "pool_name": SITE_POOL,
            "hours": await self._feeds.history.hours(self._feeds.now(), feed.id),
            "articles": await self._feeds.articles.find(feed.id, MAX_ARTICLES_SHOWN),
            "article_count": await self._feeds.articles.count(feed.id),
        }
        return MESSAGES.page(request, "feed.html", context, live=("state", "runs", "articles"))

    async def opml(self, request: RouteRequest) -> PageResponse:
        progress = await self._actions.import_progress(request.query.import_id)
        context = {"progress": progress if progress.total else None}
        return MESSAGES.page(request, "feeds_opml.html", context, live=("progress",))

    async def add(self, request: RouteRequest) -> Redirect:
        feed = await self._actions.add(request)
        return MESSAGES.redirect(request, f"/feeds/{feed.id}", "added", url=mask_url(feed.url))

    async def save(self, request: RouteRequest) -> Redirect:
        feed, form = await self._actions.load(request), request.body
        interval = form.refresh_interval or feed.refresh_interval
        await self._actions.change(feed, url=form.url, title=form.title or "", refresh_interval=interval)
        return MESSAGES.redirect(request, f"/feeds/{feed.id}", "saved")

    async def import_opml(self, request: RouteRequest) -> Redirect:
        done = await self._actions.import_opml(request.body)
        path, counts = f"/feeds/opml?import_id={done.import_id}", {"added": done.added, "known": done.known}
        if not done.refused:
            return MESSAGES.redirect(request, path, "imported", refused=0, **counts)
        refused = {"refused": done.refused_count, "first": done.refused[0]}
        return MESSAGES.redirect(request, path, "imported_refused", **refused, **counts)

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

    def _site_of(self, feed: Feed) -> str | None:
        """Returns the site, or None if another program stored a URL that cannot be fetched."""
        try:
            return self._feeds.site_of(feed.url)
        except InvalidFeedUrl:
            return None

    def _shown(self, request: RouteRequest, feed: Feed) -> dict[str, Any]:
        due, state = feed.next_run(self._feeds.now()), feed.state
        status = "paused" if state.paused else "gone" if state.gone else feed.last_fetch_status
        return {
            "row": feed,
            "state": state,
            "title": feed.title or mask_url(feed.url),
            "url": feed.url if request.user.role.may(Role.ADMIN) else mask_url(feed.url),
            "redirect_url": mask_url(state.redirect_url or ""),
            "status": status or "new",
            "next_at": None if state.paused else due.at,
            "reason": due.reason.value,
        }
