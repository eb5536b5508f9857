"""Streams by WebSocket: a real server, and a client that is not ours."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from websockets.asyncio.client import connect

from tests.web.asgi import ASGI, HOST, shake
from tests.web.signed import token_of
from tests.web.songs import FOLLOW, Songs, at_work, code_of, heard
from tidemill.web import Event, Role, Who, dashboard, sockets, streams
from tidemill.web import server as serving
from tidemill.web.serving import Server


@pytest_asyncio.fixture
async def songs() -> AsyncIterator[Songs]:
    made = Songs()
    async with made.app, at_work(made):
        yield made


@pytest_asyncio.fixture
async def token(songs: Songs) -> str:
    return await token_of(songs.app, Role.OPERATOR)


async def test_each_event_is_a_frame_and_the_end_is_said(songs: Songs, token: str) -> None:
    async with songs.open(token=token) as socket:
        for event in (Event("note", "啦\nla", id="7"), Event("", ""), Event("rest", "{}"), None):
            songs.told.put_nowait(event)
        assert await heard(socket) == {"event": "note", "id": "7", "data": "啦\nla"}
        assert await heard(socket) == {"event": "rest", "id": None, "data": "{}"}
        assert await code_of(socket) == 1000
    assert songs.ended == 1


async def test_what_is_sent_here_is_not_looked_at(songs: Songs, token: str) -> None:
    async with songs.open(token=token) as socket:
        for sent in ("{", b"\0\xff", "x" * 60_000):
            await socket.send(sent)
        songs.told.put_nowait(Event("note", "la"))
        assert (await heard(socket))["data"] == "la"
        await socket.send("x" * (serving.HEARD + 1))
        assert await code_of(socket) == 1009


@pytest.mark.parametrize("how", ["query", "header"])
async def test_who_comes_back_says_what_was_seen_last(songs: Songs, token: str, how: str) -> None:
    path = f"{FOLLOW}?last_event_id=%E4%B8%83%2F7&album=%E4%B8%80"
    headers = {} if how == "query" else {"Last_Event_ID": "of-header"}
    async with songs.open(path if how == "query" else FOLLOW, token, **headers):
        pass
    [asked] = songs.asked
    assert asked.headers["last-event-id"].encode("latin-1").decode() == (
        "七/7" if how == "query" else "of-header"
    )
    assert asked.query.album == ("一" if how == "query" else None)


async def test_what_changes_is_told_and_nothing_twice(songs: Songs) -> None:
    viewer = await token_of(songs.app, Role.VIEWER, "bo")
    await songs.app.enqueue_many([songs.sing.using(delay=60).job()])
    path = "/api/v1/events?queue=songs"
    async with songs.open(path, viewer) as socket:
        first = await heard(socket)
    assert (first["event"], json.loads(first["data"])["name"]) == ("queue", "songs")
    async with songs.open(f"{path}&last_event_id={first['id']}", viewer) as back:
        async with songs.open(path, viewer) as fresh:
            assert await heard(fresh) == first
        await songs.app.inspect.pause("songs", reason="tea")
        assert json.loads((await heard(back))["data"])["pause"]["reason"] == "tea"


async def test_nobody_the_wrong_and_the_few_are_refused_as_requests_are(songs: Songs, token: str) -> None:
    assert (await songs.refused()).response.status_code == 401
    assert (await songs.refused(token="tm_1_1")).response.status_code == 401  # noqa: S106 - a wrong one
    viewer = await songs.refused(token=await token_of(songs.app, Role.VIEWER, "bo"))
    assert viewer.response.status_code == 403
    assert json.loads(viewer.response.body or b"")["message"].startswith("role: ")
    assert viewer.response.headers["x-frame-options"] == "DENY"
    missing = await songs.refused(f"{FOLLOW}?album=%E6%97%A0", token)
    assert missing.response.status_code == 404
    assert json.loads(missing.response.body or b"") == {"status": False, "message": "there is no album '无'"}
    assert (await songs.refused(f"{FOLLOW}?unknown=1", token)).response.status_code == 422
    assert (await songs.refused("/api/v1/queues", token)).response.status_code == 400
    assert (await songs.refused("/static/css/base.css", token)).response.status_code == 200
    assert songs.ended == 0


async def test_pages_of_others_are_refused(songs: Songs, token: str) -> None:
    for origin in ("https://elsewhere.example", "null", f"http://{songs.url}.elsewhere.example"):
        refused = await songs.refused(token=token, Origin=origin)
        assert refused.response.status_code == 403, origin
    assert (await songs.refused(token=token, Sec_Fetch_Site="cross-site")).response.status_code == 403
    async with songs.open(token=token, Origin=f"http://{songs.url}"):
        pass


async def test_a_session_is_enough_from_a_page_of_ours(songs: Songs, token: str) -> None:
    begun = await songs.app.access.sessions.begin((await songs.app.access.tokens.list())[0].id)
    cookie = f"tidemill-session-{songs.url.partition(':')[2]}={begun.secret}"
    assert (await songs.refused(Cookie=cookie)).response.status_code == 403
    foreign = await songs.refused(Cookie=cookie, Origin="https://elsewhere.example")
    assert foreign.response.status_code == 403
    async with songs.open(Cookie=cookie, Origin=f"http://{songs.url}") as socket:
        songs.told.put_nowait(Event("note", "la"))
        assert (await heard(socket))["data"] == "la"


async def test_a_stream_ends_when_its_viewer_may_no_longer_look(
    songs: Songs, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when there is nothing to tell."""
    monkeypatch.setattr(streams, "LOOK_AGAIN", 0.05)
    async with songs.open(token=token) as socket:
        songs.told.put_nowait(Event("note", "la"))
        await heard(socket)
        await songs.app.access.tokens.revoke("ann")
        assert await code_of(socket) == 1008
    assert songs.ended == 1


async def test_the_server_stops_and_says_so() -> None:
    songs = Songs()
    async with songs.app:
        token = await token_of(songs.app, Role.ADMIN)
        async with at_work(songs):
            one = await songs.open(token=token)
            other = await songs.open("/api/v1/events", token)
            songs.told.put_nowait(Event("note", "la"))
            assert (await heard(one), (await heard(other))["event"]) == (
                {"event": "note", "id": None, "data": "la"},
                "overview",
            )
        assert (await code_of(one), await code_of(other)) == (1001, 1001)
        assert songs.ended == 1


async def test_the_stream_of_a_request_ends_with_the_server_as_well() -> None:
    songs = Songs()
    async with songs.app:
        token = await token_of(songs.app, Role.ADMIN)
        async with at_work(songs):
            reader, writer = await asyncio.open_connection(*songs.url.split(":"))
            asked = f"GET {FOLLOW} HTTP/1.1\r\nHost: {songs.url}\r\nAuthorization: Bearer {token}\r\n\r\n"
            writer.write(asked.encode())
            songs.told.put_nowait(Event("note", "la"))
            assert b"event: note\ndata: la\n\n" in await reader.readuntil(b"data: la\n\n")
        assert (await reader.read()).endswith(b"0\r\n\r\n"), "whole, and not cut off"
        writer.close()
        assert songs.ended == 1


async def test_who_goes_is_noticed(songs: Songs, token: str) -> None:
    socket = await songs.open(token=token)
    songs.told.put_nowait(Event("note", "la"))
    await heard(socket)
    socket.transport.abort()
    async with asyncio.timeout(10):
        await songs.gone.wait()


async def test_a_source_that_fails_is_told_apart_and_logged(
    songs: Songs, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    for error in (ZeroDivisionError("ours"), ConnectionError("the database is gone"), TimeoutError("slow")):
        async with songs.open(token=token) as socket:
            songs.told.put_nowait(error)
            with caplog.at_level(logging.ERROR, "tidemill"):
                assert await code_of(socket) == 1011
        assert str(error) in caplog.text


async def test_who_does_not_read_makes_the_source_wait(
    songs: Songs, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 MB are to be told; what is made for a reader who stopped reading is what sockets hold."""
    monkeypatch.setattr(sockets, "SLOW", 0.5)
    for _ in range(1000):
        songs.told.put_nowait(Event("note", "la" * 8192))
    async with connect(
        f"ws://{songs.url}{FOLLOW}", additional_headers={"Authorization": f"Bearer {token}"}, max_queue=1
    ) as socket:
        await heard(socket)
        async with asyncio.timeout(20):
            await songs.gone.wait()  # the reader was given up
        assert songs.made < 800, "the source went on as if somebody had read"
        socket.transport.abort()


@pytest.mark.parametrize(("scheme", "origin", "status"), [("wss", "https", 101), ("wss", "http", 403)])
async def test_a_socket_over_tls_is_of_a_page_over_tls(
    songs: Songs, token: str, scheme: str, origin: str, status: int
) -> None:
    inner: ASGI = Server(songs.app).starlette

    async def over_tls(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, "scheme": scheme}, receive, send)

    headers = {"authorization": f"Bearer {token}", "origin": f"{origin}://{HOST}"}
    assert (await shake(over_tls, FOLLOW, headers=headers)).status == status


async def test_it_is_served_where_it_is_mounted(songs: Songs, token: str) -> None:
    async def vouched(request: Request) -> Who | None:
        return Who("ann", Role.OPERATOR) if request.headers.get("x-user") == "ann" else None

    site: ASGI = Starlette(routes=[Mount("/jobs", dashboard(songs.app, auth=vouched))])
    own = {"origin": f"http://{HOST}", "x-user": "ann"}
    assert (await shake(site, f"/jobs{FOLLOW}", headers=own)).status == 101
    assert (await shake(site, f"/jobs{FOLLOW}", headers={"x-user": "ann"})).status == 403
    assert (await shake(site, f"/jobs{FOLLOW}", headers={**own, "x-user": "bo"})).status == 401


async def test_a_server_that_cannot_answer_a_handshake_refuses_it(songs: Songs) -> None:
    said: list[dict[str, Any]] = []
    inner: ASGI = Server(songs.app).starlette

    async def note(message: dict[str, Any]) -> None:
        said.append(message)

    async def poor(scope: Any, receive: Any, _: Any) -> None:
        await inner({**scope, "extensions": None}, receive, note)

    await shake(poor, FOLLOW)
    assert said == [{"type": "websocket.close"}]
