"""Half a request holds a connection for so long, and never the files that jobs need."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import pytest
import pytest_asyncio

from tests.web.signed import token_of
from tests.web.songs import Songs, at_work
from tidemill.seam.answers import Event
from tidemill.seam.roles import Role
from tidemill.web import connections
from tidemill.web.connections import MOST_CONNECTIONS, connection_limit

HALF = b"GET / HTTP/1.1\r\nHost: x\r\nX: "
FORM = (
    b"POST /sign-in HTTP/1.1\r\nHost: %s\r\nContent-Length: 9\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\nto"
)
LIMIT = 12
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest_asyncio.fixture
async def songs(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Songs]:
    monkeypatch.setattr(connections, "connection_limit", lambda _: LIMIT)
    songs = Songs()
    async with songs.app, at_work(songs):
        yield songs


async def _open(songs: Songs, sent: bytes) -> Connection:
    host, _, port = songs.url.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with suppress(ConnectionError):
        writer.write(sent)
        await writer.drain()
    return reader, writer


async def _answer(songs: Songs, path: str = "/healthz") -> bytes:
    head = f"GET {path} HTTP/1.1\r\nHost: {songs.url}\r\nConnection: close\r\n\r\n".encode()
    reader, writer = await _open(songs, head)
    async with asyncio.timeout(10):
        said = await reader.read()
    writer.close()
    return said


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
async def test_half_a_request_is_ended(songs: Songs, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.2)
    await _is_ended(await _open(songs, sent.replace(b"%s", songs.url.encode())))
    assert b"200 OK" in await _answer(songs)


async def test_half_requests_make_room_for_whole_ones(songs: Songs) -> None:
    held = [await _open(songs, HALF) for _ in range(LIMIT * 4)]
    for _ in range(5):
        assert b"200 OK" in await _answer(songs)
    async with asyncio.timeout(10):
        for connection in held[: LIMIT * 3 - 1]:
            await _is_ended(connection)
    for _, writer in held:
        writer.close()


async def test_a_request_that_has_come_is_not_ended_for_others(songs: Songs) -> None:
    token = await token_of(songs.app, Role.ADMIN)
    head = f"GET /api/songs/follow HTTP/1.1\r\nHost: {songs.url}\r\nAuthorization: Bearer {token}\r\n\r\n"
    async with AsyncExitStack() as stack:
        reader, writer = await _open(songs, head.encode())
        stack.callback(writer.close)
        songs.told.put_nowait(Event("note", "la"))
        await reader.readuntil(b"data: la")
        socket = await stack.enter_async_context(songs.open(token=token))
        for _ in range(LIMIT * 2):
            stack.callback((await _open(songs, HALF))[1].close)
        assert b"200 OK" in await _answer(songs)
        for _ in range(20):  # the two streams share them
            songs.told.put_nowait(Event("note", "li"))
        async with asyncio.timeout(10):
            await reader.readuntil(b"data: li")
            await socket.recv()


async def test_a_client_may_keep_its_connection(songs: Songs) -> None:
    head = f"GET /healthz HTTP/1.1\r\nHost: {songs.url}\r\n\r\n".encode()
    reader, writer = await _open(songs, head)
    for _ in range(3):
        async with asyncio.timeout(10):
            await reader.readuntil(b"\r\n\r\nok\n")
        writer.write(head)
    writer.close()


@pytest.mark.parametrize(("files", "most"), [(64, 32), (256, 128), (512, 256), (1024, 768), (4096, 2000)])
def test_files_are_kept_for_jobs(files: int, most: int) -> None:
    assert connection_limit(files) == most
    assert connection_limit(math.inf) == MOST_CONNECTIONS
