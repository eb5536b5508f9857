"""The HTTP API of the podcasts application, with its request and response types."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal, Never, cast

import msgspec
from msgspec import Meta

from tidemill.web import File, HTTPError, Role, RouteRequest
from tidemill_apps.common.sentences import Language, TextFormat, clean_text, detect_language
from tidemill_apps.podcasts.feed import MAX_ID_DIGITS, PodcastFeedRoutes, serve_media
from tidemill_apps.podcasts.plan import GenerationPlan
from tidemill_apps.podcasts.service import MESSAGES, Podcasts
from tidemill_apps.podcasts.tables import NewPodcast, Podcast
from tidemill_apps.podcasts.text import read_sections

Method = Literal["GET", "POST", "DELETE"]
PodcastTitle = Annotated[str, Meta(max_length=300)]


class PodcastBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A text, or the id of an article. The language is detected if left out."""

    title: PodcastTitle = ""
    text: str = ""
    article: Annotated[int, Meta(ge=1)] | None = None
    format: TextFormat = "markdown"
    language: Language | None = None


class FeedBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]


class PodcastReply(msgspec.Struct, frozen=True, kw_only=True):
    """A podcast in a response, without its text."""

    id: int
    title: str
    language: str
    status: str
    error: str | None
    speaker: str | None
    characters: int
    duration: float | None
    size: int | None
    cost: float
    job_id: str | None
    regenerate_at: float | None


class FeedUrlReply(msgspec.Struct, frozen=True, kw_only=True):
    """A new feed. `url` contains the secret token and is shown only here."""

    id: int
    name: str
    url: str


def build_podcast_reply(podcast: Podcast) -> PodcastReply:
    return PodcastReply(**{name: getattr(podcast, name) for name in PodcastReply.__struct_fields__})


class PodcastRoutes:
    def __init__(self, podcasts: Podcasts, feeds: PodcastFeedRoutes) -> None:
        self._podcasts, self._feeds = podcasts, feeds

    def declare(self) -> None:
        web, one = self._podcasts.app.web, "/api/podcasts/{podcast}"
        viewer, operator, admin = Role.VIEWER, Role.OPERATOR, Role.ADMIN
        reply, body = PodcastReply, PodcastBody
        for method, path, role, handler, response, sent, summary in (
            ("GET", "/api/podcasts", viewer, self.list, list[PodcastReply], None, "The newest podcasts."),
            ("POST", "/api/podcasts", operator, self.create, reply, body, "Generate a podcast of a text."),
            ("POST", "/api/podcasts/plan", operator, self.plan, GenerationPlan, body, "Cost and length."),
            ("GET", one, viewer, self.get, reply, None, "Return a podcast."),
            ("DELETE", one, operator, self.delete, None, None, "Delete a podcast and its audio."),
            ("POST", f"{one}/generate", operator, self.generate, reply, None, "Generate a podcast again."),
            ("GET", f"{one}/audio", viewer, self.audio, File, None, "The audio of an episode."),
            ("GET", f"{one}/transcript", viewer, self.transcript, File, None, "The transcript as WebVTT."),
            ("POST", "/api/podcast-feeds", admin, self.create_feed, FeedUrlReply, FeedBody, "Create a feed."),
            ("DELETE", "/api/podcast-feeds/{feed}", admin, self.revoke_feed, None, None, "Revoke a feed."),
        ):
            types: dict[str, Any] = {"body": sent, "response": response}
            audited = not path.endswith("/plan")
            route = web.route(
                cast("Method", method), path, role=role, summary=summary, audited=audited, **types
            )
            route(handler)

    async def list(self, _: RouteRequest) -> list[PodcastReply]:
        return [build_podcast_reply(row) for row in await self._podcasts.episodes.load_recent()]

    async def get(self, request: RouteRequest) -> PodcastReply:
        return build_podcast_reply(await load_podcast(self._podcasts, request))

    async def plan(self, request: RouteRequest) -> GenerationPlan:
        return await self._podcasts.plan(await check_body(self._podcasts, request))

    async def create(self, request: RouteRequest) -> PodcastReply:
        new = await check_body(self._podcasts, request)
        return build_podcast_reply(await self._podcasts.create(new))

    async def generate(self, request: RouteRequest) -> PodcastReply:
        found = await self._podcasts.regenerate(parse_id(request, "podcast"))
        return build_podcast_reply(found or refuse_missing(request))

    async def delete(self, request: RouteRequest) -> None:
        if not await self._podcasts.delete(parse_id(request, "podcast")):
            refuse_missing(request)

    async def audio(self, request: RouteRequest) -> File:
        return serve_media(self._podcasts, await load_podcast(self._podcasts, request), "mp3")

    async def transcript(self, request: RouteRequest) -> File:
        return serve_media(self._podcasts, await load_podcast(self._podcasts, request), "vtt")

    async def create_feed(self, request: RouteRequest) -> FeedUrlReply:
        feed, url = await self._feeds.create(request.body.name)
        return FeedUrlReply(id=feed.id, name=feed.name, url=url)

    async def revoke_feed(self, request: RouteRequest) -> None:
        if not await self._podcasts.episodes.revoke_feed(parse_id(request, "feed")):
            refuse_missing(request, "feed")


async def check_body(podcasts: Podcasts, request: RouteRequest) -> NewPodcast:
    """Returns the checked text of a request. Raises HTTPError that names the field and the remedy."""
    body: PodcastBody = request.body
    title, text, format_, limit = body.title, body.text, body.format, podcasts.settings.text_limit
    if body.article is not None:
        found = await podcasts.load_article(body.article)
        if found is None:
            raise _refuse(request, HTTPStatus.NOT_FOUND, "article", "unknown_article", article=body.article)
        title, text, format_ = title or found[0], found[1], "html"
    title = " ".join(clean_text(title).split())
    if not title:
        raise _refuse(request, HTTPStatus.UNPROCESSABLE_ENTITY, "title", "no_title")
    if len(text) > limit:
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        raise _refuse(request, status, "text", "too_long", count=len(text), limit=limit)
    if not read_sections(text, format_, title):
        raise _refuse(request, HTTPStatus.UNPROCESSABLE_ENTITY, "text", "no_text")
    text = text.replace("\0", "")
    return NewPodcast(title=title, text=text, format=format_, language=body.language or detect_language(text))


async def load_podcast(podcasts: Podcasts, request: RouteRequest) -> Podcast:
    return await podcasts.episodes.get(parse_id(request, "podcast")) or refuse_missing(request)


def parse_id(request: RouteRequest, name: str) -> int:
    value = request.path[name]
    if not (value.isascii() and value.isdigit() and len(value) < MAX_ID_DIGITS):
        refuse_missing(request, name)
    return int(value)


def refuse_missing(request: RouteRequest, name: str = "podcast") -> Never:
    raise _refuse(request, HTTPStatus.NOT_FOUND, name, f"unknown_{name}", **{name: request.path[name][:20]})


def _refuse(request: RouteRequest, status: HTTPStatus, field: str, key: str, **values: object) -> HTTPError:
    return HTTPError(status, MESSAGES.translate(request.language, key, **values), field=field)
