"""HTTP servers on loopback that send exactly the bytes of a test, and a meter of the event loop's lag."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, Self

from tidemill_apps.feeds.fetcher import Fetcher, FetchLimits

USER_AGENT = "Tidemill-Test/1.0 (+https://example.com/contact)"


class RawRequest(NamedTuple):
    """A request as the server received it. Names of headers are in lower case."""

    path: str
    headers: dict[str, str]


RawAnswer = Callable[[RawRequest, asyncio.StreamWriter], Awaitable[None]]


def raw_answer(status: str, body: bytes = b"", **headers: str) -> RawAnswer:
    """Returns an answer of fixed bytes. An underscore in the name of a header is a hyphen."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if "Content_Length" not in headers:
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1")

    async def answer(_: RawRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(head + body)
        await writer.drain()

    return answer


class RawServer:
    """A server on loopback. `answers` has an answer for each path; the connection is closed after it."""

    def __init__(self) -> None:
        self.answers: dict[str, RawAnswer] = {}
        self.requests: list[RawRequest] = []
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    def redirect(self, path: str, status: int, location: str) -> None:
        self.answers[path] = raw_answer(f"{status} Moved", location=location)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            request_line, *lines = head.rstrip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            request = RawRequest(request_line.split(" ")[1], headers)
            self.requests.append(request)
            await self.answers[request.path](request, writer)
        writer.close()


class CanaryListener(RawServer):
    """A listener that must not be called. `called` counts its connections."""

    def __init__(self) -> None:
        super().__init__()
        self.called = 0

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.called += 1
        writer.close()


class LoopLag:
    """Measures how long the event loop was busy without a pause, as CPU time and as wall time.

    The CPU time counts only this process, so that other programs on the machine do not change it."""

    cpu_seconds = 0.0
    wall_seconds = 0.0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._measure())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _measure(self) -> None:
        period = 0.005
        while True:
            cpu, wall = time.thread_time(), time.monotonic()
            await asyncio.sleep(period)
            self.cpu_seconds = max(self.cpu_seconds, time.thread_time() - cpu)
            self.wall_seconds = max(self.wall_seconds, time.monotonic() - wall - period)


def loopback_fetcher(*servers: RawServer, **limits: object) -> Fetcher:
    """A fetcher that may fetch from these servers, and from no other server on loopback."""
    allowed = tuple(f"127.0.0.1:{server.port}" for server in servers)
    return Fetcher(FetchLimits(user_agent=USER_AGENT, allowed_addresses=allowed, **limits))  # type: ignore[arg-type]


async def no_wait(url: str) -> None:
    """Lets the fetcher follow each redirect at once."""
