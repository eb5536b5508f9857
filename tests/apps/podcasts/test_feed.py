"""The podcast feed by the rules of Apple and of the podcast namespace, as two parsers read it."""

from __future__ import annotations

import logging
import re
import struct
import uuid
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree as ET

import feedparser
import podcastparser
import pytest
import pytest_asyncio

from tests.apps.podcasts.podcast_texts import MILLS, MILLS_ZH
from tests.apps.podcasts.service_kit import ANONYMOUS, PUBLIC_URL, VIEWER, Studio, studio_in
from tidemill import ConfigurationError
from tidemill_apps.podcasts.cover import load_cover
from tidemill_apps.podcasts.tables import NewPodcast

ITUNES = "{http://www.itunes.com/dtds/podcast-1.0.dtd}"
PODCAST = "{https://podcastindex.org/namespace/1.0}"
ATOM = "{http://www.w3.org/2005/Atom}"


class PublishedFeed:
    """A studio with two episodes and one feed; `path` is the feed's address without the host."""

    def __init__(self, studio: Studio, ids: list[int], url: str) -> None:
        self.studio, self.ids, self.url = studio, ids, url

    @property
    def path(self) -> str:
        return self.url.removeprefix(PUBLIC_URL).removesuffix("/feed.xml")

    @property
    def token(self) -> str:
        return self.path.rpartition("/")[2]

    async def xml(self) -> ET.Element:
        answer = await self.studio.call("GET", f"{self.path}/feed.xml", who=ANONYMOUS)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/rss+xml; charset=utf-8")
        return ET.fromstring(answer.body)  # noqa: S314 - our own


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def published(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PublishedFeed]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMILL_WEB_PUBLIC_URL", PUBLIC_URL)
        folder: Path = tmp_path_factory.mktemp("feed")
        async with studio_in(folder) as studio:
            hostile = NewPodcast(
                title="Ebb & <flow> ]]> “潮”", text=MILLS.text, format="markdown", language="en"
            )
            ids = [(await studio.podcasts.create(new)).id for new in (hostile, MILLS_ZH.new())]
            await studio.work()
            answer = await studio.call("POST", "/api/podcast-feeds", {"name": "phone"})
            assert answer.status == 200, answer.text
            yield PublishedFeed(studio, ids, answer.json["url"])


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_channel_follows_apples_rules(published: PublishedFeed) -> None:
    """https://podcasters.apple.com/support/823-podcast-requirements: the required tags of a show."""
    rss = await published.xml()
    assert (rss.tag, rss.get("version"), len(rss)) == ("rss", "2.0", 1)
    channel = rss[0]
    for tag in ("title", "description", "language", "link", f"{ITUNES}author"):
        assert channel.findtext(tag), tag
    assert channel.findtext(f"{ITUNES}explicit") in ("true", "false")
    category = channel.find(f"{ITUNES}category")
    assert category is not None
    assert category.get("text") == "News"
    image = channel.find(f"{ITUNES}image")
    assert image is not None
    assert re.fullmatch(r"http://127\.0\.0\.1:8750/podcasts/f/[\w-]{22}/cover\.png", image.get("href") or "")
    link = channel.find(f"{ATOM}link")
    assert link is not None
    assert (link.get("rel"), link.get("href")) == ("self", published.url)


async def test_every_item_follows_apples_rules(published: PublishedFeed) -> None:
    items = (await published.xml())[0].findall("item")
    assert len(items) == 2
    guids = [item.findtext("guid") or "" for item in items]
    assert len(set(guids)) == 2
    for item in items:
        assert item.findtext("title")
        assert (item.findtext("description") or "").startswith(("How they work. A tide", "工作原理。潮汐"))
        guid, enclosure = item.find("guid"), item.find("enclosure")
        assert guid is not None
        assert guid.get("isPermaLink") == "false"
        assert enclosure is not None
        assert (enclosure.get("url") or "").endswith(".mp3")
        assert enclosure.get("type") == "audio/mpeg"
        answer = await published.studio.call(
            "GET", (enclosure.get("url") or "").removeprefix(PUBLIC_URL), who=ANONYMOUS
        )
        assert len(answer.body) == int(enclosure.get("length") or 0) > 10_000
        assert parsedate_to_datetime(item.findtext("pubDate") or "").tzinfo is not None
        assert (item.findtext(f"{ITUNES}duration") or "").isdigit()


async def test_the_podcast_namespace(published: PublishedFeed) -> None:
    """https://podcasting2.org/docs/podcast-namespace: guid, locked and transcript."""
    channel = (await published.xml())[0]
    guid = uuid.uuid5(
        uuid.UUID("ead4c236-bf58-58c6-a2c6-a6b28d128cb6"), published.url.partition("://")[2][:-9]
    )
    assert channel.findtext(f"{PODCAST}guid") == str(guid)
    assert channel.findtext(f"{PODCAST}locked") == "yes"
    for item in channel.findall("item"):
        transcript = item.find(f"{PODCAST}transcript")
        assert transcript is not None
        assert (transcript.get("type"), transcript.get("language") in ("en", "zh")) == ("text/vtt", True)
        path = (transcript.get("url") or "").removeprefix(PUBLIC_URL)
        answer = await published.studio.call("GET", path, who=ANONYMOUS)
        assert answer.headers["content-type"] == "text/vtt; charset=utf-8"
        assert answer.text.startswith("WEBVTT")


async def test_guids_stay_when_an_episode_is_generated_again(published: PublishedFeed) -> None:
    before = [item.findtext("guid") for item in (await published.xml())[0].findall("item")]
    await published.studio.podcasts.regenerate(published.ids[0])
    during = [item.findtext("guid") for item in (await published.xml())[0].findall("item")]
    await published.studio.work()
    after = [item.findtext("guid") for item in (await published.xml())[0].findall("item")]
    assert before == during == after


async def test_two_parsers_read_it(published: PublishedFeed) -> None:
    body = (await published.studio.call("GET", f"{published.path}/feed.xml", who=ANONYMOUS)).body
    read = feedparser.parse(body)
    assert not read.bozo
    assert [entry.title for entry in read.entries] == ["潮汐磨坊", "Ebb & <flow> ]]> “潮”"]
    assert [entry.enclosures[0].type for entry in read.entries] == ["audio/mpeg", "audio/mpeg"]
    parsed = podcastparser.parse(published.url, BytesIO(body))
    assert parsed["title"] == "Podcasts"
    assert [episode["total_time"] > 10 for episode in parsed["episodes"]] == [True, True]
    assert parsed["episodes"][0]["enclosures"][0]["mime_type"] == "audio/mpeg"


async def test_the_cover_is_a_square_of_1400_to_3000_pixels(published: PublishedFeed, tmp_path: Path) -> None:
    answer = await published.studio.call("GET", f"{published.path}/cover.png", who=ANONYMOUS)
    assert (answer.status, answer.headers["content-type"]) == (200, "image/png")
    width, height = struct.unpack(">II", answer.body[16:24])
    assert width == height
    assert 1400 <= width <= 3000
    small = tmp_path / "small.png"
    small.write_bytes(answer.body[:16] + struct.pack(">II", 100, 100) + answer.body[24:])
    with pytest.raises(ConfigurationError, match=r"^PODCASTS_COVER: must be a square PNG .* is 100 by 100"):
        load_cover(str(small))
    with pytest.raises(ConfigurationError, match=r"^PODCASTS_COVER: .*none\.png cannot be read"):
        load_cover(str(tmp_path / "none.png"))


async def test_media_cannot_act_as_pages(published: PublishedFeed) -> None:
    for file in ("feed.xml", "cover.png", f"{published.ids[0]}.mp3", f"{published.ids[0]}.vtt"):
        headers = (await published.studio.call("GET", f"{published.path}/{file}", who=ANONYMOUS)).headers
        assert (headers["content-security-policy"], headers["x-content-type-options"]) == (
            "sandbox",
            "nosniff",
        )


async def test_range_and_etag_of_an_enclosure(published: PublishedFeed) -> None:
    path = f"{published.path}/{published.ids[0]}.mp3"
    whole = await published.studio.call("GET", path, who=ANONYMOUS)
    part = await published.studio.call("GET", path, who=ANONYMOUS, range="bytes=100-199")
    assert (part.status, part.body) == (206, whole.body[100:200])
    assert part.headers["content-range"] == f"bytes 100-199/{len(whole.body)}"
    again = await published.studio.call("GET", path, who=ANONYMOUS, if_none_match=whole.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    behind = await published.studio.call("GET", path, who=ANONYMOUS, range=f"bytes={len(whole.body)}-")
    assert behind.status == 416


async def test_head_of_an_enclosure(published: PublishedFeed) -> None:
    answer = await published.studio.call("HEAD", f"{published.path}/{published.ids[0]}.mp3", who=ANONYMOUS)
    row = await published.studio.podcast(published.ids[0])
    assert (answer.status, answer.headers["content-length"], answer.body) == (200, str(row.size), b"")


@pytest.mark.parametrize("file", ["99.mp3", "1.exe", "1", "..", "x.mp3", "1.mp3.exe", f"{'9' * 30}.mp3"])
async def test_other_files_do_not_exist(published: PublishedFeed, file: str) -> None:
    assert (await published.studio.call("GET", f"{published.path}/{file}", who=ANONYMOUS)).status == 404


async def test_a_wrong_or_revoked_token_is_404(published: PublishedFeed) -> None:
    studio = published.studio
    for wrong in ("x" * 22, published.token[:-1], f"{published.token}a", published.token.swapcase()):
        for file in ("feed.xml", "cover.png", "1.mp3"):
            answer = await studio.call("GET", f"/podcasts/f/{wrong}/{file}", who=ANONYMOUS)
            assert answer.status == 404
    made = (await studio.call("POST", "/api/podcast-feeds", {"name": "old"})).json
    path = made["url"].removeprefix(PUBLIC_URL)
    assert (await studio.call("GET", path, who=ANONYMOUS)).status == 200
    assert (await studio.call("DELETE", f"/api/podcast-feeds/{made['id']}")).status == 204
    assert (await studio.call("GET", path, who=ANONYMOUS)).status == 404
    assert (await studio.call("DELETE", f"/api/podcast-feeds/{made['id']}")).status == 404


async def test_the_token_has_128_bits_and_is_stored_hashed(published: PublishedFeed) -> None:
    assert len(published.token) == 22  # 16 bytes as base64
    stored = (published.studio.folder / "podcasts.db").read_bytes()
    assert published.token.encode() not in stored
    page = (await published.studio.call("GET", "/podcasts", accept="text/html")).text
    assert published.token not in page


async def test_a_failure_does_not_log_the_token(
    published: PublishedFeed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(token: str) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(published.studio.podcasts.episodes, "find_feed", fail)
    with caplog.at_level(logging.DEBUG):
        answer = await published.studio.call("GET", f"{published.path}/feed.xml", who=ANONYMOUS)
    assert answer.status == 500
    assert "/podcasts/f/***/feed.xml failed" in caplog.text
    assert published.token not in caplog.text.replace("find_feed", "")


async def test_requests_are_limited_per_feed_and_per_wrong_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_WEB_PUBLIC_URL", PUBLIC_URL)
    async with studio_in(tmp_path, feed_rate=3) as studio:
        url = (await studio.call("POST", "/api/podcast-feeds", {"name": "a"})).json["url"]
        for path in (url.removeprefix(PUBLIC_URL), "/podcasts/f/wrong/feed.xml"):
            answers = [await studio.call("GET", path, who=ANONYMOUS) for _ in range(4)]
            assert [answer.status for answer in answers][2:] == [404 if "wrong" in path else 200, 429]
            assert 0 < int(answers[3].headers["retry-after"]) <= 61


async def test_a_feed_needs_the_public_address_and_an_admin(
    tmp_path: Path, published: PublishedFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEMILL_WEB_PUBLIC_URL")
    async with studio_in(tmp_path) as studio:
        answer = await studio.call("POST", "/api/podcast-feeds", {"name": "a"})
        assert (answer.status, answer.json["field"]) == (422, "web.public_url")
        assert "TIDEMILL_WEB_PUBLIC_URL" in answer.json["detail"]
        assert await studio.podcasts.episodes.load_feeds() == []
    refused = await published.studio.call("POST", "/api/podcast-feeds", {"name": "a"}, who=VIEWER)
    assert refused.status == 403
