"""Streams over WebSocket: a real server and an independent client."""

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

from tests.web.asgi_client import ASGI, HOST, send_handshake
from tests.web.signed_in_client import create_token
from tests.web.stream_app import STREAM_PATH, StreamApp, close_code, receive_event, serve_stream_app
from tidemill.web import Role, StreamEvent, User, dashboard, streams
from tidemill.web import server as serving
from tidemill.web import streams as web_streams
from tidemill.web.asgi import Dashboard


@pytest_asyncio.fixture
async def songs() -> AsyncIterator[StreamApp]:
    made = StreamApp()
    async with made.app, serve_stream_app(made):
        yield made


@pytest_asyncio.fixture
async def token(songs: StreamApp) -> str:
    return await create_token(songs.app, Role.OPERATOR)


async def test_each_event_is_a_frame_and_the_end_has_a_close_code(songs: StreamApp, token: str) -> None:
    async with songs.open(token=token) as socket:
        for event in (
            StreamEvent("note", "啦\nla", id="7"),
            StreamEvent("", ""),
            StreamEvent("rest", "{}"),
            None,
        ):
            songs.outbox.put_nowait(event)
        assert await receive_event(socket) == {"event": "note", "id": "7", "data": "啦\nla"}
        assert await receive_event(socket) == {"event": "rest", "id": None, "data": "{}"}
        assert await close_code(socket) == 1000
    assert songs.ended == 1


async def test_client_messages_are_ignored(songs: StreamApp, token: str) -> None:
    async with songs.open(token=token) as socket:
        for sent in ("{", b"\0\xff", "x" * 60_000):
            await socket.send(sent)
        songs.outbox.put_nowait(StreamEvent("note", "la"))
        assert (await receive_event(socket))["data"] == "la"
        await socket.send("x" * (serving.MAX_WEBSOCKET_MESSAGE_BYTES + 1))
        assert await close_code(socket) == 1009


@pytest.mark.parametrize("how", ["query", "header"])
async def test_a_reconnect_continues_after_the_last_event(songs: StreamApp, token: str, how: str) -> None:
    path = f"{STREAM_PATH}?last_event_id=%E4%B8%83%2F7&album=%E4%B8%80"
    headers = {} if how == "query" else {"Last_Event_ID": "of-header"}
    async with songs.open(path if how == "query" else STREAM_PATH, token, **headers):
        pass
    [request] = songs.requests
    assert request.headers["last-event-id"].encode("latin-1").decode() == (
        "七/7" if how == "query" else "of-header"
    )
    assert request.query.album == ("一" if how == "query" else None)


async def test_each_change_is_sent_once(songs: StreamApp) -> None:
    viewer = await create_token(songs.app, Role.VIEWER, "bo")
    await songs.app.enqueue_many([songs.sing.using(delay=60).job()])
    path = "/api/v1/events?queue=songs"
    async with songs.open(path, viewer) as socket:
        first = await receive_event(socket)
    assert (first["event"], json.loads(first["data"])["name"]) == ("queue", "songs")
    async with songs.open(f"{path}&last_event_id={first['id']}", viewer) as back:
        async with songs.open(path, viewer) as fresh:
            assert await receive_event(fresh) == first
        await songs.app.inspect.pause("songs", reason="tea")
        assert json.loads((await receive_event(back))["data"])["pause"]["reason"] == "tea"


async def test_missing_wrong_and_weak_tokens_are_refused(songs: StreamApp, token: str) -> None:
    assert (await songs.refused()).response.status_code == 401
    assert (await songs.refused(token="tm_1_1")).response.status_code == 401  # noqa: S106 - a wrong one
    viewer = await songs.refused(token=await create_token(songs.app, Role.VIEWER, "bo"))
    assert viewer.response.status_code == 403
    assert json.loads(viewer.response.body or b"")["message"].startswith("role: ")
    assert viewer.response.headers["x-frame-options"] == "DENY"
    missing = await songs.refused(f"{STREAM_PATH}?album=%E6%97%A0", token)
    assert missing.response.status_code == 404
    assert json.loads(missing.response.body or b"") == {"status": False, "message": "there is no album '无'"}
    assert (await songs.refused(f"{STREAM_PATH}?unknown=1", token)).response.status_code == 422
    assert (await songs.refused("/api/v1/queues", token)).response.status_code == 400
    assert (await songs.refused("/static/css/base.css", token)).response.status_code == 200
    assert songs.ended == 0


async def test_pages_of_other_sites_are_refused(songs: StreamApp, token: str) -> None:
    for origin in ("https://elsewhere.example", "null", f"http://{songs.url}.elsewhere.example"):
        refused = await songs.refused(token=token, Origin=origin)
        assert refused.response.status_code == 403, origin
    assert (await songs.refused(token=token, Sec_Fetch_Site="cross-site")).response.status_code == 403
    async with songs.open(token=token, Origin=f"http://{songs.url}"):
        pass


async def test_a_session_works_from_the_own_origin(songs: StreamApp, token: str) -> None:
    new_session = await songs.app.auth.sessions.create((await songs.app.auth.tokens.list())[0].id)
    cookie = f"tidemill-session-{songs.url.partition(':')[2]}={new_session.secret}"
    assert (await songs.refused(Cookie=cookie)).response.status_code == 403
    foreign = await songs.refused(Cookie=cookie, Origin="https://elsewhere.example")
    assert foreign.response.status_code == 403
    async with songs.open(Cookie=cookie, Origin=f"http://{songs.url}") as socket:
        songs.outbox.put_nowait(StreamEvent("note", "la"))
        assert (await receive_event(socket))["data"] == "la"


async def test_a_stream_ends_when_its_viewer_loses_access(
    songs: StreamApp, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream ends even while there are no events."""
    monkeypatch.setattr(streams, "RECHECK_SECONDS", 0.05)
    async with songs.open(token=token) as socket:
        songs.outbox.put_nowait(StreamEvent("note", "la"))
        await receive_event(socket)
        await songs.app.auth.tokens.revoke("ann")
        assert await close_code(socket) == 1008
    assert songs.ended == 1


async def test_a_stopping_server_sends_a_close_code() -> None:
    songs = StreamApp()
    async with songs.app:
        token = await create_token(songs.app, Role.ADMIN)
        async with serve_stream_app(songs):
            one = await songs.open(token=token)
            other = await songs.open("/api/v1/events", token)
            songs.outbox.put_nowait(StreamEvent("note", "la"))
            assert (await receive_event(one), (await receive_event(other))["event"]) == (
                {"event": "note", "id": None, "data": "la"},
                "overview",
            )
        assert (await close_code(one), await close_code(other)) == (1001, 1001)
        assert songs.ended == 1


async def test_an_sse_stream_ends_with_the_server() -> None:
    songs = StreamApp()
    async with songs.app:
        token = await create_token(songs.app, Role.ADMIN)
        async with serve_stream_app(songs):
            reader, writer = await asyncio.open_connection(*songs.url.split(":"))
            request = (
                f"GET {STREAM_PATH} HTTP/1.1\r\nHost: {songs.url}\r\nAuthorization: Bearer {token}\r\n\r\n"
            )
            writer.write(request.encode())
            songs.outbox.put_nowait(StreamEvent("note", "la"))
            assert b"event: note\ndata: la\n\n" in await reader.readuntil(b"data: la\n\n")
        assert (await reader.read()).endswith(b"0\r\n\r\n"), "whole, and not cut off"
        writer.close()
        assert songs.ended == 1


async def test_a_disconnect_ends_the_stream(songs: StreamApp, token: str) -> None:
    socket = await songs.open(token=token)
    songs.outbox.put_nowait(StreamEvent("note", "la"))
    await receive_event(socket)
    socket.transport.abort()
    async with asyncio.timeout(10):
        await songs.gone.wait()


async def test_a_failing_source_has_its_close_code_and_is_logged(
    songs: StreamApp, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    for error in (ZeroDivisionError("ours"), ConnectionError("the database is gone"), TimeoutError("slow")):
        async with songs.open(token=token) as socket:
            songs.outbox.put_nowait(error)
            with caplog.at_level(logging.ERROR, "tidemill"):
                assert await close_code(socket) == 1011
        assert str(error) in caplog.text


async def test_a_slow_reader_slows_the_source(
    songs: StreamApp, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 16 MB only the part that socket buffers hold is produced for a reader who stopped."""
    monkeypatch.setattr(web_streams, "SEND_TIMEOUT_SECONDS", 0.5)
    for _ in range(1000):
        songs.outbox.put_nowait(StreamEvent("note", "la" * 8192))
    async with connect(
        f"ws://{songs.url}{STREAM_PATH}", additional_headers={"Authorization": f"Bearer {token}"}, max_queue=1
    ) as socket:
        await receive_event(socket)
        async with asyncio.timeout(20):
            await songs.gone.wait()  # the reader was dropped
        assert songs.made < 800, "the source went on as if somebody had read"
        socket.transport.abort()


@pytest.mark.parametrize(("scheme", "origin", "status"), [("wss", "https", 101), ("wss", "http", 403)])
async def test_a_socket_over_tls_needs_a_page_over_tls(
    songs: StreamApp, token: str, scheme: str, origin: str, status: int
) -> None:
    inner: ASGI = Dashboard(songs.app).starlette

    async def over_tls(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, "scheme": scheme}, receive, send)

    headers = {"authorization": f"Bearer {token}", "origin": f"{origin}://{HOST}"}
    assert (await send_handshake(over_tls, STREAM_PATH, headers=headers)).status == status


async def test_a_mounted_dashboard_serves_websockets(songs: StreamApp, token: str) -> None:
    async def vouched(request: Request) -> User | None:
        return User("ann", Role.OPERATOR) if request.headers.get("x-user") == "ann" else None

    site: ASGI = Starlette(routes=[Mount("/jobs", dashboard(songs.app, auth=vouched))])
    own = {"origin": f"http://{HOST}", "x-user": "ann"}
    assert (await send_handshake(site, f"/jobs{STREAM_PATH}", headers=own)).status == 101
    assert (await send_handshake(site, f"/jobs{STREAM_PATH}", headers={"x-user": "ann"})).status == 403
    assert (await send_handshake(site, f"/jobs{STREAM_PATH}", headers={**own, "x-user": "bo"})).status == 401


async def test_a_server_that_cannot_answer_a_handshake_refuses_it(songs: StreamApp) -> None:
    messages: list[dict[str, Any]] = []
    inner: ASGI = Dashboard(songs.app).starlette

    async def note(message: dict[str, Any]) -> None:
        messages.append(message)

    async def poor(scope: Any, receive: Any, _: Any) -> None:
        await inner({**scope, "extensions": None}, receive, note)

    await send_handshake(poor, STREAM_PATH)
    assert messages == [{"type": "websocket.close"}]
