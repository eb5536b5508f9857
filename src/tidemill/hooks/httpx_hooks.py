"""Event hooks of httpx and httpx2, and the trace of the connection below them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from tidemill.core.refusals import CLIENT_ERROR
from tidemill.hooks.bodies import Body
from tidemill.hooks.calls import Answer, WatchedCall, begin_call

_CALL = "tidemill_call"
"""The extension of a request that holds its call."""
_LEAVES = (".send_request_headers.started", ".send_request_body.complete")
"""Both: a provider counts a request when its headers arrive, or when all of it has."""


class HttpxHooks:
    """For one client. `request` and `response` are its event hooks."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool

    def request(self, request: Any) -> None:
        if (call := begin_call(self.pool)) is not None:
            _attach(request, call, _sync_trace(call, request.extensions.get("trace")))

    def response(self, response: Any) -> None:
        call: WatchedCall | None = response.request.extensions.get(_CALL)
        if call is None:
            return
        call.left(1)
        if response.status_code >= CLIENT_ERROR:
            response.read()  # an error says its reason in its body, which an SDK may throw away unread
            call.answered(response)
            return
        _watch_body(response, call)


class AsyncHttpxHooks(HttpxHooks):
    async def request(self, request: Any) -> None:  # type: ignore[override]
        if (call := begin_call(self.pool)) is not None:
            _attach(request, call, _async_trace(call, request.extensions.get("trace")))

    async def response(self, response: Any) -> None:  # type: ignore[override]
        call: WatchedCall | None = response.request.extensions.get(_CALL)
        if call is None:
            return
        call.left(1)
        if response.status_code >= CLIENT_ERROR:
            await response.aread()
            call.answered(response)
            return
        _watch_async_body(response, call)


def _attach(request: Any, call: WatchedCall, trace: Callable[..., Any]) -> None:
    request.extensions = {**request.extensions, "trace": trace, _CALL: call}


def _is_departure(event: str, info: Any) -> bool:
    if not event.endswith(_LEAVES):
        return False
    # A proxy is asked for a tunnel first, with the extensions of the request that will go through it.
    request = info.get("request") if hasattr(info, "get") else None
    return getattr(request, "method", b"") != b"CONNECT"


def _sync_trace(call: WatchedCall, other: Any) -> Callable[[str, Any], None]:
    def trace(event: str, info: Any) -> None:
        if other is not None:
            other(event, info)
        if _is_departure(event, info):
            call.leaves_sync()

    return trace


def _async_trace(call: WatchedCall, other: Any) -> Callable[[str, Any], Any]:
    async def trace(event: str, info: Any) -> None:
        if other is not None:
            await other(event, info)
        if _is_departure(event, info):
            await call.leaves()

    return trace


def _watch_body(response: Any, call: WatchedCall) -> None:
    """The response's own methods are covered on the object: they hand out the body decoded, and every
    other way to read it goes through them."""
    body, tell = _reporter(response, call)
    iter_bytes, close = response.iter_bytes, response.close

    def watched_bytes(chunk_size: int | None = None) -> Iterator[bytes]:
        for piece in iter_bytes(chunk_size):
            body.feed(piece)
            yield piece
        tell()

    def watched_close() -> None:
        close()
        tell()

    vars(response).update(iter_bytes=watched_bytes, close=watched_close)


def _watch_async_body(response: Any, call: WatchedCall) -> None:
    body, tell = _reporter(response, call)
    aiter_bytes, aclose = response.aiter_bytes, response.aclose

    async def watched_bytes(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        async for piece in aiter_bytes(chunk_size):
            body.feed(piece)
            yield piece
        tell()

    async def watched_close() -> None:
        await aclose()
        tell()

    vars(response).update(aiter_bytes=watched_bytes, aclose=watched_close)


def _reporter(response: Any, call: WatchedCall) -> tuple[Body, Callable[[], None]]:
    """Tells the headers at once, and the usage when the body has been read or given up."""
    status, headers = response.status_code, response.headers
    body = Body(headers.get("content-type", ""))
    call.answered(Answer(status, headers))

    def tell() -> None:
        call.answered(Answer(status, headers, body.content()))

    return body, tell
