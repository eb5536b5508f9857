"""Hooks for httpx and httpx2: event hooks for requests and responses, and a trace that sees when a request is
sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from tidemill.core.feedback import MIN_REFUSAL_STATUS
from tidemill.hooks.watched_call import BodyUsageReader, WatchedCall, WatchedResponse, begin_call

_CALL_EXTENSION = "tidemill_call"
"""The request extension that holds its WatchedCall."""
_SEND_EVENTS = (".send_request_headers.started", ".send_request_body.complete")
"""Both events: some providers count a request when its headers arrive, others when its body is complete."""


class HttpxHooks:
    """The event hooks of one sync client. httpx calls `request` before and `response` after each request."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool

    def request(self, request: Any) -> None:
        if (call := begin_call(self.pool)) is not None:
            _attach(request, call, _sync_trace(call, request.extensions.get("trace")))

    def response(self, response: Any) -> None:
        call: WatchedCall | None = response.request.extensions.get(_CALL_EXTENSION)
        if call is None:
            return
        call.left(1)
        if response.status_code >= MIN_REFUSAL_STATUS:
            response.read()  # the reason is in the body, and an SDK may discard it
            call.answered(response)
            return
        _watch_body(response, call)


class AsyncHttpxHooks(HttpxHooks):
    async def request(self, request: Any) -> None:  # type: ignore[override]
        if (call := begin_call(self.pool)) is not None:
            _attach(request, call, _async_trace(call, request.extensions.get("trace")))

    async def response(self, response: Any) -> None:  # type: ignore[override]
        call: WatchedCall | None = response.request.extensions.get(_CALL_EXTENSION)
        if call is None:
            return
        call.left(1)
        if response.status_code >= MIN_REFUSAL_STATUS:
            await response.aread()
            call.answered(response)
            return
        _watch_async_body(response, call)


def _attach(request: Any, call: WatchedCall, trace: Callable[..., Any]) -> None:
    request.extensions = {**request.extensions, "trace": trace, _CALL_EXTENSION: call}


def _is_send_event(event: str, info: Any) -> bool:
    if not event.endswith(_SEND_EVENTS):
        return False
    # The CONNECT request to a proxy has the extensions of the request that follows through the tunnel.
    request = info.get("request") if hasattr(info, "get") else None
    return getattr(request, "method", b"") != b"CONNECT"


def _sync_trace(call: WatchedCall, other: Any) -> Callable[[str, Any], None]:
    def trace(event: str, info: Any) -> None:
        if other is not None:
            other(event, info)
        if _is_send_event(event, info):
            call.before_send_sync()

    return trace


def _async_trace(call: WatchedCall, other: Any) -> Callable[[str, Any], Any]:
    async def trace(event: str, info: Any) -> None:
        if other is not None:
            await other(event, info)
        if _is_send_event(event, info):
            await call.leaves()

    return trace


def _watch_body(response: Any, call: WatchedCall) -> None:
    """Replaces `iter_bytes` and `close` of this response, so that usage is read while the program reads the
    body."""
    body, tell = _body_reporter(response, call)
    iter_bytes, close = response.iter_bytes, response.close

    def watched_bytes(chunk_size: int | None = None) -> Iterator[bytes]:
        for piece in iter_bytes(chunk_size):
            body.feed(piece)
            yield piece
        tell()

    def watched_close() -> None:
        close()
        tell()

    # All other ways to read the body call `iter_bytes`.
    vars(response).update(iter_bytes=watched_bytes, close=watched_close)


def _watch_async_body(response: Any, call: WatchedCall) -> None:
    body, tell = _body_reporter(response, call)
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


def _body_reporter(response: Any, call: WatchedCall) -> tuple[BodyUsageReader, Callable[[], None]]:
    """Reports the status and headers of a response. Returns a reader that takes the pieces of the body, and a
    function that reports the usage. Call the function when the body was read or closed."""
    status, headers = response.status_code, response.headers
    body = BodyUsageReader(headers.get("content-type", ""))
    call.answered(WatchedResponse(status, headers))

    def tell() -> None:
        call.answered(WatchedResponse(status, headers, body.finish()))

    return body, tell
