"""The podcast feed: RSS 2.0 with the namespaces of Apple and of the podcast index. A secret token protects
it."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from xml.etree import ElementTree as ET

from tidemill import ConfigurationError
from tidemill.web import File, HTTPError, Role, RouteRequest, TextResponse
from tidemill_apps.common.request_limits import RequestLimits
from tidemill_apps.common.sentences import join_sentences
from tidemill_apps.podcasts.cover import load_cover
from tidemill_apps.podcasts.service import Podcasts
from tidemill_apps.podcasts.settings import PodcastsSettings
from tidemill_apps.podcasts.tables import Podcast, PodcastFeed
from tidemill_apps.podcasts.text import read_sections

ITUNES, PODCAST, ATOM = (
    "http://www.itunes.com/dtds/podcast-1.0.dtd",
    "https://podcastindex.org/namespace/1.0",
    "http://www.w3.org/2005/Atom",
)
for _prefix, _namespace in (("itunes", ITUNES), ("podcast", PODCAST), ("atom", ATOM)):
    ET.register_namespace(_prefix, _namespace)
PODCAST_NAMESPACE = uuid.UUID("ead4c236-bf58-58c6-a2c6-a6b28d128cb6")
"""The namespace of `podcast:guid`, as the podcast index defines it."""
MEDIA_TYPES = {"mp3": "audio/mpeg", "vtt": "text/vtt; charset=utf-8"}
MEDIA_HEADERS = {"content-security-policy": "sandbox", "x-content-type-options": "nosniff"}
TOKEN_BYTES = 16
SUMMARY_CHARS = 300


class PodcastFeedRoutes:
    """The public routes of feeds. The path contains a secret token; a wrong token gets a 404."""

    def __init__(self, podcasts: Podcasts) -> None:
        self._podcasts, self._settings = podcasts, podcasts.settings
        self._limits = RequestLimits(podcasts.app.clock.boot, podcasts.settings.feed_rate)

    def declare(self) -> None:
        web = self._podcasts.app.web
        summary = "The podcast feed, its cover, audio and transcripts, by the feed's secret token."
        web.route("GET", "/podcasts/f/{secret}/{file}", role=Role.PUBLIC, summary=summary)(self.serve)

    async def create(self, name: str) -> tuple[PodcastFeed, str]:
        """Creates a feed. Returns it with its address, which cannot be shown again."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        address = f"{self.public_url()}/podcasts/f/{token}/feed.xml"
        return await self._podcasts.episodes.create_feed(name, token), address

    def public_url(self) -> str:
        """Returns the address at which players reach this server. Raises ConfigurationError if unset."""
        found = self._podcasts.app.settings.value("web.public_url")
        if not found:
            raise ConfigurationError(
                "web.public_url: must be the address at which podcast players reach this server; set "
                "TIDEMILL_WEB_PUBLIC_URL=https://…"
            )
        return str(found).rstrip("/")

    async def serve(self, request: RouteRequest) -> File | TextResponse:
        token, file = request.path["secret"], request.path["file"]
        feed = await self._podcasts.episodes.find_feed(token)
        self._limits.check(f"feed {feed.id}" if feed is not None else f"wrong {request.address}")
        if feed is None:
            raise HTTPError(HTTPStatus.NOT_FOUND, "there is no such feed; ask for a new address")
        if file == "feed.xml":
            podcasts = await self._podcasts.episodes.load_published()
            base = f"{self.public_url()}/podcasts/f/{token}"
            return _respond(render_feed(self._settings, podcasts, base), "application/rss+xml; charset=utf-8")
        if file == "cover.png":
            return _respond(load_cover(self._settings.cover), "image/png")
        name, _, ending = file.partition(".")
        if not (name.isascii() and name.isdigit() and len(name) < MAX_ID_DIGITS):
            raise HTTPError(HTTPStatus.NOT_FOUND, "there is no such file in this feed")
        return serve_media(self._podcasts, await self._podcasts.episodes.get(int(name)), ending)


MAX_ID_DIGITS = 18


def serve_media(podcasts: Podcasts, podcast: Podcast | None, ending: str) -> File:
    """Returns the audio or the transcript of an episode. Raises HTTPError 404 if there is none."""
    keys = {} if podcast is None else {"mp3": podcast.audio_key, "vtt": podcast.transcript_key}
    if (key := keys.get(ending)) is None:
        raise HTTPError(HTTPStatus.NOT_FOUND, "there is no such file; generate the podcast first")
    return File(key, store=podcasts.storage.store, media_type=MEDIA_TYPES[ending], headers=MEDIA_HEADERS)


def _respond(content: bytes, media_type: str) -> TextResponse:
    return TextResponse(content, media_type, headers=MEDIA_HEADERS)


def render_feed(settings: PodcastsSettings, podcasts: Sequence[Podcast], base: str) -> bytes:
    """Returns the feed as XML. `base` is the address of the feed without the file name."""
    rss = ET.Element("rss", {"version": "2.0"})
    channel = ET.SubElement(rss, "channel")
    _add(channel, "title", settings.feed_title)
    _add(channel, "link", base.partition("/podcasts/f/")[0])
    _add(channel, "description", settings.feed_description)
    _add(channel, "language", settings.feed_language)
    _add(channel, "generator", "Tidemill")
    _add(channel, f"{{{ATOM}}}link", href=f"{base}/feed.xml", rel="self", type="application/rss+xml")
    _add(channel, f"{{{ITUNES}}}author", settings.feed_author)
    _add(channel, f"{{{ITUNES}}}category", text=settings.feed_category)
    _add(channel, f"{{{ITUNES}}}explicit", str(settings.feed_explicit).lower())
    _add(channel, f"{{{ITUNES}}}image", href=f"{base}/cover.png")
    _add(channel, f"{{{ITUNES}}}type", "episodic")
    _add(channel, f"{{{PODCAST}}}guid", str(uuid.uuid5(PODCAST_NAMESPACE, base.partition("://")[2])))
    _add(channel, f"{{{PODCAST}}}locked", "yes")
    for podcast in podcasts:
        _add_item(ET.SubElement(channel, "item"), podcast, base)
    return bytes(ET.tostring(rss, encoding="utf-8", xml_declaration=True))


def _add_item(item: ET.Element, podcast: Podcast, base: str) -> None:
    published = datetime.fromtimestamp(podcast.published_at or podcast.created_at, UTC)
    _add(item, "title", podcast.title)
    _add(item, "description", summarise(podcast))
    _add(item, "guid", podcast.guid, isPermaLink="false")
    _add(item, "pubDate", format_datetime(published))
    audio = {"url": f"{base}/{podcast.id}.mp3", "length": str(podcast.size), "type": MEDIA_TYPES["mp3"]}
    _add(item, "enclosure", **audio)
    _add(item, f"{{{ITUNES}}}duration", str(round(podcast.duration or 0)))
    _add(item, f"{{{ITUNES}}}explicit", "false")
    transcript = {"url": f"{base}/{podcast.id}.vtt", "type": "text/vtt", "language": podcast.language}
    _add(item, f"{{{PODCAST}}}transcript", **transcript)


def summarise(podcast: Podcast) -> str:
    sections = read_sections(podcast.text, podcast.format, podcast.title)
    flat = join_sentences(sentence for section in sections for sentence in section.sentences)
    return flat if len(flat) <= SUMMARY_CHARS else f"{flat[:SUMMARY_CHARS].rstrip()} …"


def _add(parent: ET.Element, tag: str, content: str | None = None, /, **attributes: str) -> None:
    ET.SubElement(parent, tag, attributes).text = content
