"""Hooks for aiohttp: a TraceConfig that sees requests, and a stream reader that reads usage from the response
body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from aiohttp import ClientError, ClientResponseError, ClientSession, StreamReader, TraceConfig
from aiohttp.base_protocol import BaseProtocol

from tidemill.core.feedback import MIN_REFUSAL_STATUS
from tidemill.hooks.watched_call import BodyUsageReader, WatchedCall, WatchedResponse, begin_call


class AiohttpTrace(TraceConfig):
    """An aiohttp TraceConfig that reports the requests and responses of one session to `pool`. A request is
    reported before it leaves."""

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
            if params.response.status >= MIN_REFUSAL_STATUS:
                await _read_error(params.response, call)
            else:
                _watch_body(params.response, call)

    async def _failed(self, _session: ClientSession, context: SimpleNamespace, params: Any) -> None:
        """Reports the status and headers of an error response. It is needed for `raise_for_status=True`,
        because aiohttp then raises before the body is read."""
        call, error = _call_of(context), params.exception
        if call is not None and isinstance(error, ClientResponseError) and error.status:
            call.answered(WatchedResponse(error.status, error.headers or {}))


def _call_of(context: SimpleNamespace) -> WatchedCall | None:
    call: WatchedCall | None = getattr(context, "tidemill_call", None)
    return call


async def _read_error(response: Any, call: WatchedCall) -> None:
    """Reads and reports the body of an error response. The program can still read the body afterwards."""
    try:
        body = await response.read()
    except (ClientError, OSError, TimeoutError):  # the handler gets the same error when it reads the body
        call.answered(WatchedResponse(response.status, response.headers))
        return
    response.content = _reader_of(body)  # for a program that streams the body; `read` has stored it
    call.answered(WatchedResponse(response.status, response.headers, body or None))


def _reader_of(body: bytes) -> StreamReader:
    loop = asyncio.get_running_loop()
    reader = StreamReader(BaseProtocol(loop), 2 * len(body) + 1, loop=loop)
    reader.feed_data(body)
    reader.feed_eof()
    return reader


def _watch_body(response: Any, call: WatchedCall) -> None:
    call.answered(WatchedResponse(response.status, response.headers))
    response.content = WatchedStreamReader(response, call)


class WatchedStreamReader:
    """Replaces the stream reader of a response. It passes every piece of the body on to the program and reads
    the usage from it."""

    def __init__(self, response: Any, call: WatchedCall) -> None:
        self._response, self._call, self._reader = response, call, response.content
        self._body = BodyUsageReader(response.headers.get("content-type", ""))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _iter_pieces(self.readline)

    def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        return _iter_pieces(lambda: self.read(n))

    def iter_any(self) -> AsyncIterator[bytes]:
        return _iter_pieces(self.readany)

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
        piece, is_end = await self._reader.readchunk()
        return self._seen(piece), is_end

    def read_nowait(self, n: int = -1) -> bytes:
        return self._seen(self._reader.read_nowait(n))

    def _seen(self, piece: bytes) -> bytes:
        self._body.feed(piece)
        if self._reader.at_eof():
            response = self._response
            self._call.answered(WatchedResponse(response.status, response.headers, self._body.finish()))
        return piece


async def _iter_pieces(read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    while piece := await read():
        yield piece
