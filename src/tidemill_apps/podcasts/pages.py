"""The dashboard pages of the podcasts application: the list, one episode with a player, and a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidemill.web import PageResponse, Redirect, Role, RouteRequest
from tidemill_apps.common.status import load_jobs
from tidemill_apps.podcasts.feed import PodcastFeedRoutes
from tidemill_apps.podcasts.routes import (
    FeedBody,
    PodcastBody,
    check_body,
    load_podcast,
    parse_id,
    refuse_missing,
)
from tidemill_apps.podcasts.service import MESSAGES, Podcasts


class PodcastPages:
    def __init__(self, podcasts: Podcasts, feeds: PodcastFeedRoutes) -> None:
        self._podcasts, self._feeds = podcasts, feeds

    def declare(self) -> None:
        web = self._podcasts.app.web
        web.templates(Path(__file__).with_name("templates"))
        web.page("/podcasts", title={"en": "Podcasts", "zh": "播客"})(self.overview)
        web.page("/podcasts/new", title="New podcast", role=Role.OPERATOR, listed=False)(self.new)
        web.page("/podcasts/{podcast}", title="Podcast")(self.one)
        for path, handler, role, body, summary in (
            ("/podcasts/plan", self.plan, Role.OPERATOR, PodcastBody, "Predict the cost from the page."),
            ("/podcasts/create", self.create, Role.OPERATOR, PodcastBody, "Create a podcast from the page."),
            (
                "/podcasts/{podcast}/generate",
                self.generate,
                Role.OPERATOR,
                None,
                "Generate it from the page.",
            ),
            ("/podcasts/{podcast}/delete", self.delete, Role.OPERATOR, None, "Delete it from the page."),
            ("/podcasts/feeds/create", self.create_feed, Role.ADMIN, FeedBody, "Create a feed."),
            ("/podcasts/feeds/{feed}/revoke", self.revoke_feed, Role.ADMIN, None, "Revoke a feed."),
        ):
            changes = handler != self.plan
            web.route("POST", path, role=role, summary=summary, body=body, audited=changes)(handler)

    async def overview(self, request: RouteRequest) -> PageResponse:
        context = {
            "podcasts": await self._podcasts.episodes.load_recent(),
            "feeds": await self._podcasts.episodes.load_feeds(),
            "public_url": self._podcasts.app.settings.value("web.public_url"),
        }
        return self._page(request, "podcasts.html", context, live=("list",))

    async def one(self, request: RouteRequest) -> PageResponse:
        podcast = await load_podcast(self._podcasts, request)
        jobs = await load_jobs(self._podcasts.app, [podcast.job_id] if podcast.job_id else [])
        context = {"podcast": podcast, "job": next(iter(jobs.values()), None)}
        return self._page(request, "podcast.html", context, live=("state", "actions"))

    async def new(self, request: RouteRequest) -> PageResponse:
        return self._page(request, "podcast_new.html", {"body": PodcastBody(), "plan": None})

    async def plan(self, request: RouteRequest) -> PageResponse:
        """Shows the form again with the predicted cost and length above it."""
        plan = await self._podcasts.plan(await check_body(self._podcasts, request))
        return self._page(request, "podcast_new.html", {"body": request.body, "plan": plan})

    async def create(self, request: RouteRequest) -> Redirect:
        podcast = await self._podcasts.create(await check_body(self._podcasts, request))
        return MESSAGES.redirect(request, f"/podcasts/{podcast.id}", "created", podcast=podcast.title)

    async def generate(self, request: RouteRequest) -> Redirect:
        podcast = await self._podcasts.regenerate(parse_id(request, "podcast")) or refuse_missing(request)
        return MESSAGES.redirect(request, f"/podcasts/{podcast.id}", "requested")

    async def delete(self, request: RouteRequest) -> Redirect:
        if not await self._podcasts.delete(parse_id(request, "podcast")):
            refuse_missing(request)
        return MESSAGES.redirect(request, "/podcasts", "deleted")

    async def create_feed(self, request: RouteRequest) -> PageResponse:
        """Shows the address of the new feed once."""
        _, url = await self._feeds.create(request.body.name)
        return self._page(request, "podcast_feed.html", {"name": request.body.name, "url": url})

    async def revoke_feed(self, request: RouteRequest) -> Redirect:
        if not await self._podcasts.episodes.revoke_feed(parse_id(request, "feed")):
            refuse_missing(request, "feed")
        return MESSAGES.redirect(request, "/podcasts", "revoked")

    def _page(
        self, request: RouteRequest, template: str, context: dict[str, Any], live: tuple[str, ...] = ()
    ) -> PageResponse:
        offline = {"offline": self._podcasts.speech.is_offline}
        return MESSAGES.page(request, template, {**offline, **context}, live=live)
