"""Incomplete requests time out, and connections never use the files that jobs need."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import pytest
import pytest_asyncio

from tests.web.signed_in_client import create_token
from tests.web.stream_app import StreamApp, serve_stream_app
from tidemill.http_routes.routes import Role, StreamEvent
from tidemill.web import connection_limits
from tidemill.web.connection_limits import MAX_CONNECTIONS, connection_limit

HALF = b"GET / HTTP/1.1\r\nHost: x\r\nX: "
FORM = (
    b"POST /sign-in HTTP/1.1\r\nHost: %s\r\nContent-Length: 9\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\nto"
)
LIMIT = 12
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest_asyncio.fixture
async def songs(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StreamApp]:
    monkeypatch.setattr(connection_limits, "connection_limit", lambda _: LIMIT)
    songs = StreamApp()
    async with songs.app, serve_stream_app(songs):
        yield songs


async def _open(songs: StreamApp, sent: bytes) -> Connection:
    host, _, port = songs.url.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with suppress(ConnectionError):
        writer.write(sent)
        await writer.drain()
    return reader, writer


async def _answer(songs: StreamApp, path: str = "/healthz") -> bytes:
    head = f"GET {path} HTTP/1.1\r\nHost: {songs.url}\r\nConnection: close\r\n\r\n".encode()
    reader, writer = await _open(songs, head)
    async with asyncio.timeout(10):
        response = await reader.read()
    writer.close()
    return response


async def _is_ended(connection: Connection) -> None:
    with suppress(ConnectionError):
        async with asyncio.timeout(10):
            await connection[0].read()
    connection[1].close()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        HALF,
        FORM,
        b"GET /healthz HTTP/1.1\r\nHost: %s\r\nContent-Length: 9\r\n\r\nab",
    ],
    ids=["nothing", "half a head", "half a body", "half a body that nobody reads"],
)
async def test_an_incomplete_request_times_out(
    songs: StreamApp, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "MAX_HEAD_SECONDS", 0.2)
    monkeypatch.setattr(connection_limits, "MAX_BODY_SECONDS", 0.2)
    await _is_ended(await _open(songs, sent.replace(b"%s", songs.url.encode())))
    assert b"200 OK" in await _answer(songs)


async def test_incomplete_requests_are_evicted_first(songs: StreamApp) -> None:
    held = [await _open(songs, HALF) for _ in range(LIMIT * 4)]
    for _ in range(5):
        assert b"200 OK" in await _answer(songs)
    async with asyncio.timeout(10):
        for connection in held[: LIMIT * 3 - 1]:
            await _is_ended(connection)
    for _, writer in held:
        writer.close()


async def test_a_complete_request_is_not_evicted(songs: StreamApp) -> None:
    token = await create_token(songs.app, Role.ADMIN)
    head = f"GET /api/songs/follow HTTP/1.1\r\nHost: {songs.url}\r\nAuthorization: Bearer {token}\r\n\r\n"
    async with AsyncExitStack() as stack:
        reader, writer = await _open(songs, head.encode())
        stack.callback(writer.close)
        songs.outbox.put_nowait(StreamEvent("note", "la"))
        await reader.readuntil(b"data: la")
        socket = await stack.enter_async_context(songs.open(token=token))
        for _ in range(LIMIT * 2):
            stack.callback((await _open(songs, HALF))[1].close)
        assert b"200 OK" in await _answer(songs)
        for _ in range(20):  # the two streams share them
            songs.outbox.put_nowait(StreamEvent("note", "li"))
        async with asyncio.timeout(10):
            await reader.readuntil(b"data: li")
            await socket.recv()


async def test_a_client_may_keep_its_connection(songs: StreamApp) -> None:
    head = f"GET /healthz HTTP/1.1\r\nHost: {songs.url}\r\n\r\n".encode()
    reader, writer = await _open(songs, head)
    for _ in range(3):
        async with asyncio.timeout(10):
            await reader.readuntil(b"\r\n\r\nok\n")
        writer.write(head)
    writer.close()


@pytest.mark.parametrize(("files", "most"), [(64, 32), (256, 128), (512, 256), (1024, 768), (4096, 2000)])
def test_files_are_reserved_for_jobs(files: int, most: int) -> None:
    assert connection_limit(files) == most
    assert connection_limit(math.inf) == MAX_CONNECTIONS
