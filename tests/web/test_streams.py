"""Limits, ends and cleanup of streams, over server-sent events and WebSocket."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio
from starlette.requests import Request

from tests.web.asgi_client import send_handshake, send_request
from tests.web.signed_in_client import create_token
from tests.web.stream_app import STREAM_PATH, StreamApp, close_code, receive_event, serve_stream_app
from tidemill import ConfigurationError
from tidemill.errors import StoreUnavailable
from tidemill.web import EventStream, Role, RouteRequest, StreamEvent, User, server, streams
from tidemill.web.asgi import Dashboard
from tidemill.web.response_builder import format_sse

OPEN = "/api/songs/radio"


@pytest_asyncio.fixture
async def songs() -> AsyncIterator[StreamApp]:
    made = StreamApp()

    @made.app.web.route("GET", OPEN, role=Role.PUBLIC, summary="A public stream.", response=EventStream)
    async def radio(_asked: RouteRequest) -> EventStream:
        return EventStream(made.notes())

    async with made.app:
        yield made


async def test_streams_per_viewer_are_limited(songs: StreamApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_STREAMS_PER_VIEWER", 2)
    ann, bo = [await create_token(songs.app, Role.OPERATOR, name) for name in ("ann", "bo")]
    async with serve_stream_app(songs), songs.open(token=ann) as first, songs.open(token=ann):
        refused = (await songs.refused(token=ann)).response
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
        assert json.loads(refused.body or b"")["message"].startswith("2 streams of yours are open")
        async with songs.open(token=bo), songs.open(OPEN), songs.open(OPEN):
            assert (await songs.refused(OPEN)).response.status_code == 429
        await first.close()
        async with asyncio.timeout(10):
            await songs.gone.wait()
        async with songs.open(token=ann):
            pass


async def test_streams_of_all_viewers_are_limited(songs: StreamApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_STREAMS", 1)
    ann, bo = [await create_token(songs.app, Role.OPERATOR, name) for name in ("ann", "bo")]
    async with serve_stream_app(songs), songs.open(token=ann):
        assert (await songs.refused(token=bo)).response.status_code == 503


async def test_streams_without_a_reader_are_not_counted(
    songs: StreamApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_STREAMS_PER_VIEWER", 1)
    token = await create_token(songs.app, Role.OPERATOR)
    headers = {"authorization": f"Bearer {token}"}
    app = Dashboard(songs.app).starlette
    for before in range(3):
        head = await send_request(app, "HEAD", STREAM_PATH, headers=headers)
        assert (head.status, head.streams, songs.ended) == (200, True, before)
        songs.outbox.put_nowait(None)
        assert (await send_handshake(app, STREAM_PATH, headers=headers)).status == 101


async def test_a_public_stream_continues(songs: StreamApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RECHECK_SECONDS", 1e-6)
    async with serve_stream_app(songs), songs.open(OPEN) as radio:
        for number in range(3):
            songs.outbox.put_nowait(StreamEvent("note", str(number)))
            assert (await receive_event(radio))["data"] == str(number)


@pytest.mark.parametrize(
    ("later", "goes_on"),
    [
        (User("ann", Role.ADMIN), True),
        (User("ann", Role.OPERATOR), True),
        (User("ann", Role.VIEWER), False),
        (User("bo", Role.ADMIN), False),
        (None, False),
    ],
)
async def test_a_stream_ends_when_its_viewer_gets_a_lower_role(
    songs: StreamApp, *, later: User | None, goes_on: bool
) -> None:
    user: User | None = User("ann", Role.OPERATOR)

    async def vouched(_request: Request) -> User | None:
        return user

    authenticator = Dashboard(songs.app, vouched).authenticator
    more: list[object] = []
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "tidemill.headers": more}
    request = Request({**scope, "query_string": b"", "server": ("127.0.0.1", 8750), "scheme": "http"})
    [route] = [each for each in Dashboard(songs.app).routes if each.path == "/api/v1/events"]
    new_session = await authenticator.authorize(request, route)
    sent = len(more)
    user = later
    assert await authenticator.still_allows(request, route, new_session) is goes_on
    assert len(more) == sent, "no cookie is sent with a stream that goes on"


async def test_a_stream_that_opens_during_shutdown_is_closed(songs: StreamApp) -> None:
    token = await create_token(songs.app, Role.OPERATOR)
    stopping = Dashboard(songs.app)
    stopping.close()
    stream = stopping.streams.follow(songs.notes(), _always, token)
    assert [event async for event in stream] == []
    assert stream.end_reason is streams.StreamEnd.CLOSED


@pytest.mark.parametrize(
    ("error", "lines"), [(StoreUnavailable("the store is away"), 1), (ZeroDivisionError("ours"), 3)]
)
async def test_a_stream_ends_when_the_access_check_fails(
    songs: StreamApp,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    error: Exception,
    lines: int,
) -> None:
    async def unknown() -> bool:
        raise error

    monkeypatch.setattr(streams, "RECHECK_SECONDS", 1e-6)
    songs.outbox.put_nowait(StreamEvent("note", "la"))
    stream = streams.StreamRegistry(songs.app.clock).follow(songs.notes(), unknown, "ann")
    assert [event async for event in stream] == []
    assert (stream.end_reason, songs.ended) == (streams.StreamEnd.FAILED, 1)
    assert f"a stream failed: {error}" in caplog.text
    assert min(len(caplog.text.splitlines()), 3) == lines, "a store that is away needs no traceback"


async def test_events_before_a_failure_are_sent(songs: StreamApp, caplog: pytest.LogCaptureFixture) -> None:
    for item in (StreamEvent("note", "la"), StreamEvent("note", "le"), ZeroDivisionError("ours")):
        songs.outbox.put_nowait(item)
    with caplog.at_level(logging.WARNING):
        async with serve_stream_app(songs), httpx2.AsyncClient(base_url=f"http://{songs.url}") as client:
            text = (await client.get(OPEN)).text
    assert text == "event: note\ndata: la\n\nevent: note\ndata: le\n\n"
    assert [record.name for record in caplog.records] == ["tidemill"], "told once"


async def test_the_connection_of_a_client_that_stops_reading_is_closed(
    songs: StreamApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel closes the connection and the stream ends with it, for both protocols."""
    monkeypatch.setattr(server, "SEND_TIMEOUT_SECONDS", 0.2)
    token = await create_token(songs.app, Role.OPERATOR)
    request = f"GET {STREAM_PATH} HTTP/1.1\r\nHost: {{}}\r\nAuthorization: Bearer {token}\r\n\r\n"
    for _ in range(1000):
        songs.outbox.put_nowait(StreamEvent("note", "la" * 8192))
    async with serve_stream_app(songs):
        host, _, port = songs.url.partition(":")
        with socket.create_connection((host, int(port))) as idle:
            idle.sendall(request.format(songs.url).encode())
            async with asyncio.timeout(20):
                await songs.gone.wait()
    assert songs.made < 800, "the source went on as if somebody had read"


async def test_refused_handshakes_are_not_logged(songs: StreamApp, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with serve_stream_app(songs):
            assert (await songs.refused()).response.status_code == 401
    assert caplog.records == []


async def test_sign_out_ends_a_stream(songs: StreamApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RECHECK_SECONDS", 0.05)
    await create_token(songs.app, Role.OPERATOR)
    sessions = songs.app.auth.sessions
    new_session = await sessions.create((await songs.app.auth.tokens.list())[0].id)
    async with serve_stream_app(songs):
        cookie = f"tidemill-session-{songs.url.partition(':')[2]}={new_session.secret}"
        async with songs.open(Cookie=cookie, Origin=f"http://{songs.url}") as reader:
            songs.outbox.put_nowait(StreamEvent("note", "la"))
            await receive_event(reader)
            await sessions.end(new_session.secret)
            assert await close_code(reader) == 1008


@pytest.mark.parametrize("text", ["潮\u2028汐", "a\x85b\x0bc\x1cd", "a\nb", "a\r\nb\rc\n", ""])
def test_event_data_is_received_unchanged(text: str) -> None:
    """Only CR, LF or both end a line; Python splits at more characters."""
    stream = (
        format_sse(StreamEvent("note", text)).encode().replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode()
    )
    data = [line.removeprefix("data: ") for line in stream.split("\n") if line.startswith("data: ")]
    assert "\n".join(data) == text.replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.parametrize("ends", ["\n", "\r", "\0"])
def test_name_and_id_of_an_event_are_single_lines(ends: str) -> None:
    for name, id_ in ((f"a{ends}data: b", None), ("a", f"7{ends}event: b")):
        with pytest.raises(ConfigurationError, match="of an Event must be one line"):
            StreamEvent(name, "", id=id_)


async def _always() -> bool:
    return True
