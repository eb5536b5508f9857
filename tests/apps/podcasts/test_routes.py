"""The API and the pages: bad input names field and remedy and changes nothing; pages in two languages."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.apps.podcasts.podcast_texts import MILLS, QUEUES, QUEUES_ZH
from tests.apps.podcasts.service_kit import (
    OPERATOR,
    PUBLIC_URL,
    VIEWER,
    Studio,
    simulated_speech,
    speech_simulator,
    studio_in,
)
from tests.web.asgi_client import ClientResponse
from tidemill import Filter
from tidemill_apps.common.messages import MessageCatalogue
from tidemill_apps.podcasts.service import MESSAGES

FORM = "application/x-www-form-urlencoded"


async def page(studio: Studio, path: str, language: str = "en", who: str = "admin") -> str:
    answer = await studio.call("GET", path, accept="text/html", accept_language=language, who=who)
    assert answer.status == 200, answer.text
    return answer.text


async def submit(studio: Studio, path: str, **fields: Any) -> ClientResponse:
    body = urlencode(fields).encode()
    return await studio.call("POST", path, body, content_type=FORM, accept="text/html")


@pytest.mark.parametrize(
    ("body", "status", "field", "remedy"),
    [
        ({"title": "A", "text": ""}, 422, "text", "write some"),
        ({"title": "A", "text": "```\ncode\n```"}, 422, "text", "write some"),
        ({"title": " ", "text": "Some text."}, 422, "title", "give the episode a title"),
        ({"title": "A", "text": "x" * 301}, 413, "text", "raise PODCASTS_TEXT_LIMIT"),
        ({"title": "A", "article": 1}, 422, "article", "PODCASTS_ARTICLES_URL is not set"),
        ({"title": "A", "text": "Some.", "format": "pdf"}, 422, "format", "markdown"),
        ({"title": "A", "text": "Some.", "voice": "x"}, 422, "voice", "leave it out"),
        ({"title": "A", "text": "Some.", "language": "fr"}, 422, "language", "fr"),
    ],
)
async def test_bad_input_names_field_and_remedy_and_changes_nothing(
    body: dict[str, Any], status: int, field: str, remedy: str, tmp_path: Path
) -> None:
    async with studio_in(tmp_path, text_limit=300) as studio:
        for path in ("/api/podcasts", "/api/podcasts/plan"):
            answer = await studio.call("POST", path, body)
            assert (answer.status, answer.json["field"]) == (status, field), answer.text
            assert remedy in answer.json["detail"]
        assert await studio.podcasts.episodes.load_recent() == []
        assert (await studio.app.inspect.find(Filter())).jobs == ()


@pytest.mark.parametrize("name", ["7", "0", "x", "%20", "9" * 40, "-1", "\uff11"])
async def test_an_unknown_podcast_is_404(name: str, tmp_path: Path) -> None:
    async with studio_in(tmp_path) as studio:
        path = f"/api/podcasts/{quote(name, safe='%')}"
        for method, end in (("GET", ""), ("DELETE", ""), ("POST", "/generate"), ("GET", "/audio")):
            answer = await studio.call(method, f"{path}{end}")
            assert (answer.status, answer.json["field"]) == (404, "podcast")
            assert "find it on the page of podcasts" in answer.json["detail"]


async def test_a_podcast_by_the_api(tmp_path: Path) -> None:
    async with studio_in(tmp_path) as studio:
        made = await studio.call(
            "POST", "/api/podcasts", {"title": "Queues", "text": QUEUES.text}, who=OPERATOR
        )
        assert (made.json["status"], made.json["language"]) == ("pending", "en")
        number = made.json["id"]
        assert (await studio.call("GET", f"/api/podcasts/{number}/audio")).status == 404
        await studio.work()
        found = (await studio.call("GET", f"/api/podcasts/{number}", who=VIEWER)).json
        assert (found["status"], found["speaker"], found["cost"]) == ("done", "espeak-ng en-us", 0.0)
        assert (await studio.call("GET", "/api/podcasts", who=VIEWER)).json == [found]
        audio = await studio.call("GET", f"/api/podcasts/{number}/audio", who=VIEWER)
        assert (audio.headers["content-type"], len(audio.body)) == ("audio/mpeg", found["size"])
        assert (await studio.call("DELETE", f"/api/podcasts/{number}", who=VIEWER)).status == 403
        assert (await studio.call("DELETE", f"/api/podcasts/{number}", who=OPERATOR)).status == 204
        assert (await studio.call("GET", f"/api/podcasts/{number}")).status == 404


async def test_an_article_of_the_feeds_application(tmp_path: Path) -> None:
    file = tmp_path / "feeds.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE articles (id INTEGER PRIMARY KEY, feed_id, title, url, content)")
        connection.execute(
            "INSERT INTO articles VALUES (7, 1, '潮汐', 'https://example.org', ?)", [QUEUES_ZH.text]
        )
    async with studio_in(tmp_path, articles_url=f"sqlite:///{file}") as studio:
        made = (await studio.call("POST", "/api/podcasts", {"article": 7})).json
        assert (made["title"], made["language"]) == ("潮汐", "zh")
        answer = await studio.call("POST", "/api/podcasts", {"article": 8})
        assert (answer.status, answer.json["field"]) == (404, "article")


async def test_the_plan_of_a_paid_service(tmp_path: Path) -> None:
    async with (
        speech_simulator() as server,
        studio_in(tmp_path, speech=simulated_speech(server.url)) as studio,
    ):
        plan = (await studio.call("POST", "/api/podcasts/plan", {"title": "A", "text": MILLS.text})).json
        assert plan["cost_usd"] == round(plan["characters"] * 15e-6, 6) > 0
        assert (plan["calls"], plan["parts"], plan["speaker"]) == (2, 2, "tts-1 alloy")
        assert server.provider.request_log.bills == []
        assert "espeak" not in await page(studio, "/podcasts")


async def test_every_page_says_that_espeak_speaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_WEB_PUBLIC_URL", PUBLIC_URL)
    async with studio_in(tmp_path) as studio:
        number = (await studio.podcasts.create(QUEUES.new())).id
        for path in ("/podcasts", "/podcasts/new", f"/podcasts/{number}"):
            assert "espeak-ng on this machine speaks" in await page(studio, path)
            assert "由本机的 espeak-ng 朗读" in await page(studio, path, "zh-CN")
        shown = await submit(studio, "/podcasts/feeds/create", name="phone")
        assert "espeak-ng on this machine speaks" in shown.text
        assert f"{PUBLIC_URL}/podcasts/f/" in shown.text


async def test_a_podcast_by_the_pages(tmp_path: Path) -> None:
    async with studio_in(tmp_path) as studio:
        fields = {"title": "磨坊 <b>", "text": MILLS.text, "format": "markdown", "language": ""}
        planned = await submit(studio, "/podcasts/plan", **fields)
        assert "about 0:" in planned.text
        assert "磨坊 &lt;b&gt;" in planned.text
        assert await studio.podcasts.episodes.load_recent() == []
        created = await submit(studio, "/podcasts/create", **fields)
        assert (created.status, created.headers["location"]) == (303, "/podcasts/1")
        assert "Waiting" in await page(studio, "/podcasts/1")
        await studio.work()
        shown = await page(studio, "/podcasts/1")
        assert '<audio controls preload="none" src="/api/podcasts/1/audio"' in shown
        assert "<b>" not in shown.partition("<main")[2].partition("<h1>")[2].partition("</h1>")[0]
        assert "Generate again" not in await page(studio, "/podcasts/1", who=VIEWER)
        assert (await submit(studio, "/podcasts/1/generate")).headers["location"] == "/podcasts/1"
        assert (await submit(studio, "/podcasts/1/delete")).headers["location"] == "/podcasts"
        assert "No podcasts yet" in await page(studio, "/podcasts")


async def test_a_failed_podcast_says_why_and_offers_another_try(tmp_path: Path) -> None:
    async with studio_in(tmp_path) as studio:
        row = await studio.podcasts.create(QUEUES.new())
        await studio.podcasts.episodes.fail(row, "the voice is <hoarse>", studio.app.clock.wall() + 60, "job")
        shown = await page(studio, f"/podcasts/{row.id}")
        assert "the voice is &lt;hoarse&gt;" in shown
        assert "Try again" in shown
        assert "It is generated once more by itself in" in shown
        assert "再试一次" in await page(studio, f"/podcasts/{row.id}", "zh")


def test_both_languages_have_the_same_messages() -> None:
    catalogue: MessageCatalogue = MESSAGES
    assert catalogue.languages["en"].keys() == catalogue.languages["zh"].keys()
