"""Each client reports a request when it leaves: after the connection is made, before the first byte."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest

from tests.servers.certificates import Certificate
from tidemill import Limit, Tidemill
from tidemill.hooks.watched_call import BEGIN_CALL, WatchedCall

POOL = Tidemill("memory://").pool("api", Limit.requests(10, per="minute"))
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}"


class Seen:
    """A call that records its reports, in one list with the server's events."""

    def __init__(self, order: list[str]) -> None:
        self.order = order

    async def leaves(self) -> None:
        self.before_send_sync()

    def before_send_sync(self) -> None:
        self.order.append("leaves")

    def left(self, requests: int) -> None:
        self.order.append(f"left {requests}")

    def answered(self, response: Any) -> None:
        self.order.append(f"answered {response.status_code}")


@asynccontextmanager
async def slow_server(
    folder: Path, order: list[str], connected: asyncio.Event, shake: asyncio.Event
) -> AsyncIterator[str]:
    """A TLS server that waits for `shake` before the handshake."""
    loop, context = asyncio.get_running_loop(), Certificate(folder).context()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)

    async def serve() -> None:
        connection, _ = await loop.sock_accept(listening)
        order.append("connected")
        connected.set()
        await shake.wait()
        reader = asyncio.StreamReader()
        transport, protocol = await loop.connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader), connection, ssl=context
        )
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        order.append("keys")
        await reader.readuntil(b"\r\n\r\n")
        order.append("arrived")
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    task = asyncio.create_task(serve())
    try:
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        await task
    finally:
        task.cancel()
        listening.close()


async def by_httpx(library: Any, url: str) -> None:
    async with POOL.watch(library.AsyncClient(verify=False)) as client:
        await client.get(url)


def by_sync_httpx(library: Any, url: str) -> None:
    with POOL.watch(library.Client(verify=False)) as client:
        client.get(url)


async def by_aiohttp(url: str) -> None:
    async with POOL.watch(aiohttp.ClientSession()) as session, session.get(url, ssl=_any()) as response:
        await response.read()


def _any() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


CLIENTS: dict[str, Callable[[str], Any]] = {
    "httpx": lambda url: by_httpx(httpx, url),
    "httpx2": lambda url: by_httpx(httpx2, url),
    "sync httpx": lambda url: asyncio.to_thread(by_sync_httpx, httpx, url),
    "sync httpx2": lambda url: asyncio.to_thread(by_sync_httpx, httpx2, url),
    "aiohttp": by_aiohttp,
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_request_leaves_when_its_connection_is_ready(client: str, tmp_path: Path) -> None:
    order: list[str] = []
    connected, shake = asyncio.Event(), asyncio.Event()

    def begin(_pool: Any) -> WatchedCall:
        order.append("begins")
        return Seen(order)

    BEGIN_CALL.set(begin)
    async with slow_server(tmp_path, order, connected, shake) as url:
        calling = asyncio.ensure_future(CLIENTS[client](url))
        await connected.wait()
        assert "leaves" not in order
        shake.set()
        await calling
    assert order[:2] == ["begins", "connected"]
    assert order.index("leaves") < order.index("arrived") < order.index("left 1")
    assert order.index("left 1") < order.index("answered 200")
