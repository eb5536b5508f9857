"""The Subsonic client: passwords against a real server, tokens against a recorded session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.apps.music.audio_files import recording
from tests.apps.music.recorded_server import replaying, serving
from tests.apps.music.subsonic_server import MusicServer
from tidemill_apps.music.subsonic import SubsonicClient, SubsonicError, SubsonicRefusal
from tidemill_apps.music.tables import Track


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient() as client:
        yield client


def at(server: MusicServer, http: httpx2.AsyncClient, **other: Any) -> SubsonicClient:
    given: dict[str, Any] = {"url": server.url, "user": server.user, "password": server.password}
    return SubsonicClient(client=http, salt=lambda: "c19b2d", **{**given, "token": False, **other})


async def listed(client: SubsonicClient, size: int) -> list[list[Track]]:
    return [page async for page in client.pages(size)]


async def test_every_song_of_a_real_server_is_listed_once_page_by_page(
    subsonic: MusicServer, http: httpx2.AsyncClient
) -> None:
    held = subsonic.hold(25)
    pages = await listed(at(subsonic, http), 10)
    assert [len(page) for page in pages] == [10, 10, 5]
    found = [track for page in pages for track in page]
    assert len({track.id for track in found}) == 25
    fields = sorted((track.title, track.artist, track.album, track.genre) for track in found)
    assert fields == sorted(held)
    assert sum("潮汐" in track.title for track in found) == 12


async def test_a_last_page_that_is_full_is_followed_by_nothing(
    subsonic: MusicServer, http: httpx2.AsyncClient
) -> None:
    subsonic.hold(20)
    assert [len(page) for page in await listed(at(subsonic, http), 10)] == [10, 10]


async def test_a_server_without_songs_has_no_pages(subsonic: MusicServer, http: httpx2.AsyncClient) -> None:
    subsonic.hold(0)
    await at(subsonic, http).ping()
    assert await listed(at(subsonic, http), 10) == []


async def test_a_scan_changes_when_the_collection_was_changed(
    subsonic: MusicServer, http: httpx2.AsyncClient
) -> None:
    subsonic.hold(2)
    client = at(subsonic, http)
    before = await client.last_modified()
    assert before > 1_700_000_000_000
    assert await client.last_modified() == before
    subsonic.rescan()
    assert await client.last_modified() > before


async def test_a_recorded_session_with_tokens(http: httpx2.AsyncClient) -> None:
    with replaying("token.json") as (url, requests):
        client = SubsonicClient(url, "joe", "sesame", http, lambda: "c19b2d")
        await client.ping()
        assert await client.last_modified() == 1_771_500_000_000
        pages = await listed(client, 2)
    assert requests == ["ping", "getIndexes", "getScanStatus", "search3", "search3", "search3"]
    assert [[track.title for track in page] for page in pages] == [
        ["Harbour Lights", "雾中灯塔"],
        ["Slack Tide", "归帆"],
    ]
    assert [track.genre for page in pages for track in page] == ["Folk", "民谣", None, "摇滚"]


@pytest.mark.parametrize(("password", "salt"), [("Sesame", "c19b2d"), ("sesame", "c19b2e")])
async def test_a_token_of_another_password_or_salt_is_refused(
    http: httpx2.AsyncClient, password: str, salt: str
) -> None:
    message = "does not know the user 'joe' with this password; correct MUSIC_SUBSONIC_USER or "
    with replaying("token.json") as (url, _), pytest.raises(SubsonicRefusal, match=message):
        await SubsonicClient(url, "joe", password, http, lambda: salt).ping()


async def test_every_call_draws_a_salt_of_its_own_and_never_sends_the_password(
    http: httpx2.AsyncClient,
) -> None:
    forms: list[dict[str, str]] = []
    salts = iter(["first", "second"])

    def answer(path: str, form: dict[str, str]) -> Any:
        forms.append(form)
        return {"subsonic-response": {"status": "ok", "version": "1.16.1"}}

    with serving(answer) as url:
        client = SubsonicClient(url, "joe", "sesame", http, lambda: next(salts))
        await client.ping()
        await client.ping()
    assert [form["s"] for form in forms] == ["first", "second"]
    assert forms[0]["t"] != forms[1]["t"]
    assert "sesame" not in str(forms)


async def test_a_collection_that_is_being_scanned_has_no_date_yet(http: httpx2.AsyncClient) -> None:
    def answer(path: str, form: dict[str, str]) -> Any:
        scan_status = (
            {"indexes": {"lastModified": 7}} if "getIndexes" in path else {"scanStatus": {"scanning": True}}
        )
        return {"subsonic-response": {"status": "ok", "version": "1.16.1", **scan_status}}

    with serving(answer) as url:
        assert await SubsonicClient(url, "joe", "sesame", http, lambda: "c19b2d").last_modified() == 0


async def test_a_wrong_password(subsonic: MusicServer, http: httpx2.AsyncClient) -> None:
    with pytest.raises(SubsonicError, match=r"user 'ada' with this password; .* MUSIC_SUBSONIC_PASSWORD$"):
        await at(subsonic, http, password="打开").ping()  # noqa: S106 - a wrong one


async def test_a_server_that_takes_no_tokens(subsonic: MusicServer, http: httpx2.AsyncClient) -> None:
    with pytest.raises(SubsonicError, match=r"takes no tokens .*; set MUSIC_SUBSONIC_AUTH=password$"):
        await at(subsonic, http, token=True).ping()


async def test_a_dead_server(http: httpx2.AsyncClient) -> None:
    with pytest.raises(
        SubsonicError,
        match=r"^the music server http://127\.0\.0\.1:9 cannot be reached: .*URL right\?$",
    ):
        await SubsonicClient("http://127.0.0.1:9/", "joe", "sesame", http, lambda: "salt").ping()


async def test_an_address_that_is_none(http: httpx2.AsyncClient) -> None:
    with pytest.raises(SubsonicError, match="is MUSIC_SUBSONIC_URL right"):
        await SubsonicClient("navidrome", "joe", "sesame", http, lambda: "salt").ping()


@pytest.mark.parametrize("body", [b"<html>Welcome</html>", b"", b'{"hello": 1}', b"\xff\xfe"])
async def test_something_that_is_no_subsonic_server(http: httpx2.AsyncClient, body: bytes) -> None:
    with (
        serving(lambda *_: body) as url,
        pytest.raises(SubsonicError, match=r"Subsonic server \(status 200\); set MUSIC_SUBSONIC_URL to "),
    ):
        await SubsonicClient(url, "joe", "sesame", http, lambda: "salt").ping()


async def test_an_error_document_s_message_is_in_the_error(http: httpx2.AsyncClient) -> None:
    document = {
        "status": "failed",
        "version": "1.16.1",
        "error": {"code": 60, "message": "The trial is over."},
    }
    with (
        serving(lambda *_: {"subsonic-response": document}) as url,
        pytest.raises(SubsonicError, match=r"refused: The trial is over\. \(error 60\)$"),
    ):
        await SubsonicClient(url, "joe", "sesame", http, lambda: "salt").ping()


async def test_no_sentence_has_the_password(subsonic: MusicServer, http: httpx2.AsyncClient) -> None:
    for url, token in ((subsonic.url, True), (subsonic.url, False), ("http://127.0.0.1:9", False)):
        with pytest.raises(SubsonicError) as raised:
            await SubsonicClient(url, "ada", "open-sesame", http, lambda: "salt", token=token).ping()
        assert "open-sesame" not in str(raised.value)


def test_half_of_the_recordings_are_chinese() -> None:
    assert sum("潮汐" in recording(number).title for number in range(500)) == 250
