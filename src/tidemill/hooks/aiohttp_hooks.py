"""A TraceConfig of aiohttp, and a reader that looks at the body as it is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from aiohttp import ClientError, ClientResponseError, ClientSession, StreamReader, TraceConfig
from aiohttp.base_protocol import BaseProtocol

from tidemill.core.refusals import CLIENT_ERROR
from tidemill.hooks.bodies import Body
from tidemill.hooks.calls import Answer, WatchedCall, begin_call


class PoolTrace(TraceConfig):
    """aiohttp awaits each of these signals, the one for the headers before it writes them."""

    def __init__(self, pool: Any) -> None:
        super().__init__()
        self.pool = pool
        self.on_request_start.append(self._start)
        self.on_request_headers_sent.append(self._headers)
        self.on_request_end.append(self._end)
        self.on_request_exception.append(self._failed)

    async def _start(self, _session: ClientSession, context: SimpleNamespace, _params: Any) -> None:
        context.tidemill_call = begin_call(self.pool)

    async def _headers(self, _session: ClientSession, context: SimpleNamespace, _params: Any) -> None:
        if (call := _call_of(context)) is not None:
            await call.leaves()

    async def _end(self, _session: ClientSession, context: SimpleNamespace, params: Any) -> None:
        if (call := _call_of(context)) is not None:
            call.left(1)
            if params.response.status >= CLIENT_ERROR:
                await _read_error(params.response, call)
            else:
                _watch_body(params.response, call)

    async def _failed(self, _session: ClientSession, context: SimpleNamespace, params: Any) -> None:
        """With `raise_for_status=True` an answer ends here, and its body stays unread."""
        call, error = _call_of(context), params.exception
        if call is not None and isinstance(error, ClientResponseError) and error.status:
            call.answered(Answer(error.status, error.headers or {}))


def _call_of(context: SimpleNamespace) -> WatchedCall | None:
    call: WatchedCall | None = getattr(context, "tidemill_call", None)
    return call


async def _read_error(response: Any, call: WatchedCall) -> None:
    """An error says its reason in its body, which an SDK may throw away unread. `read` keeps it for later
    calls of `read`, `text` and `json`. `content` is replaced by a reader that has the body once more."""
    try:
        body = await response.read()
    except (ClientError, OSError, TimeoutError):  # the handler meets it too, if it reads the body
        call.answered(Answer(response.status, response.headers))
        return
    loop = asyncio.get_running_loop()
    content = StreamReader(BaseProtocol(loop), 2 * len(body) + 1, loop=loop)
    content.feed_data(body)
    content.feed_eof()
    response.content = content
    call.answered(Answer(response.status, response.headers, body or None))


def _watch_body(response: Any, call: WatchedCall) -> None:
    call.answered(Answer(response.status, response.headers))
    response.content = WatchedReader(response, call)


class WatchedReader:
    """Stands before the response's own reader, to which it leaves the work. `response.read()` and the
    iterators read through it too."""

    def __init__(self, response: Any, call: WatchedCall) -> None:
        self._response, self._call, self._reader = response, call, response.content
        self._body = Body(response.headers.get("content-type", ""))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _pieces(self.readline)

    def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        return _pieces(lambda: self.read(n))

    def iter_any(self) -> AsyncIterator[bytes]:
        return _pieces(self.readany)

    async def iter_chunks(self) -> AsyncIterator[tuple[bytes, bool]]:
        while (chunk := await self.readchunk()) != (b"", False):
            yield chunk

    async def read(self, n: int = -1) -> bytes:
        return self._seen(await self._reader.read(n))

    async def readany(self) -> bytes:
        return self._seen(await self._reader.readany())

    async def readline(self, **options: Any) -> bytes:
        return self._seen(await self._reader.readline(**options))

    async def readuntil(self, separator: bytes = b"\n", **options: Any) -> bytes:
        return self._seen(await self._reader.readuntil(separator, **options))

    async def readexactly(self, n: int) -> bytes:
        return self._seen(await self._reader.readexactly(n))

    async def readchunk(self) -> tuple[bytes, bool]:
        piece, ends = await self._reader.readchunk()
        return self._seen(piece), ends

    def read_nowait(self, n: int = -1) -> bytes:
        return self._seen(self._reader.read_nowait(n))

    def _seen(self, piece: bytes) -> bytes:
        self._body.feed(piece)
        if self._reader.at_eof():
            response = self._response
            self._call.answered(Answer(response.status, response.headers, self._body.content()))
        return piece


async def _pieces(read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    while piece := await read():
        yield piece
