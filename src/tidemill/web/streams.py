"""Event streams over server-sent events and WebSocket: how many may be open, why a stream ends, and how
WebSocket frames are sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from enum import StrEnum
from http import HTTPStatus
from urllib.parse import parse_qsl, urlencode
from weakref import WeakSet

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemill.clock import Clock
from tidemill.errors import TidemillError
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import StreamEvent
from tidemill.web.request_security import EXTRA_HEADERS_KEY

RECHECK_SECONDS = 1.0
"""Seconds between two checks whether the viewer still has access, also while there are no events: a revoked
token ends its streams within two seconds."""
RETRY_AFTER_SECONDS = 30
"""Seconds in the Retry-After header for a viewer with too many streams."""
MAX_STREAMS_PER_VIEWER, MAX_STREAMS = 50, 500
"""Streams of one viewer, and of all viewers; each uses a file, and a process often may have 1024."""

AccessCheck = Callable[[], Awaitable[bool]]


class StreamEnd(StrEnum):
    FINISHED = "finished"
    CLOSED = "closed"
    FORBIDDEN = "forbidden"
    FAILED = "failed"


class StreamRegistry:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: WeakSet[ViewerStream] = (
            WeakSet()
        )  # a stream without a reader is garbage collected and no longer counts
        self._closed = False

    def follow(
        self,
        source: AsyncIterator[StreamEvent],
        may_watch: AccessCheck,
        viewer: str,
        every: float | None = None,
    ) -> ViewerStream:
        """Returns a stream of the events of `source` for one viewer. Raises HTTPError if the viewer or the
        server has too many open streams.

        - `may_watch`: checks whether the viewer still has access, every `every` seconds (1 by default)
        - `viewer`: identifies the viewer when streams are counted"""
        self._refuse_more(viewer)
        seconds = RECHECK_SECONDS if every is None else every
        stream = ViewerStream(source, may_watch, self._clock, viewer, seconds)
        self._open.add(stream)
        if self._closed:
            stream.end(StreamEnd.CLOSED)
        return stream

    def close(self) -> None:
        """Ends all streams. A stream that opens later ends at once."""
        self._closed = True
        for stream in [*self._open]:
            stream.end(StreamEnd.CLOSED)

    def _refuse_more(self, viewer: str) -> None:
        open_viewers = [stream.viewer for stream in self._open if not stream.ended]
        if open_viewers.count(viewer) >= MAX_STREAMS_PER_VIEWER:
            status, limit = HTTPStatus.TOO_MANY_REQUESTS, f"{MAX_STREAMS_PER_VIEWER} streams of yours"
        elif len(open_viewers) >= MAX_STREAMS:
            status, limit = HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_STREAMS} streams"
        else:
            return
        raise HTTPError(
            status,
            f"{limit} are open, and more are not served; end one, or ask again later",
            headers={"retry-after": str(RETRY_AFTER_SECONDS)},
        )


class ViewerStream:
    """The events for one viewer, as an async iterator. A slow viewer slows the source down. `end_reason` says
    why the stream ended."""

    def __init__(
        self,
        source: AsyncIterator[StreamEvent],
        may_watch: AccessCheck,
        clock: Clock,
        viewer: str,
        every: float,
    ) -> None:
        self._source, self._may_watch, self._clock, self.viewer = source, may_watch, clock, viewer
        self._every = every
        self._events: asyncio.Queue[StreamEvent | None] = asyncio.Queue(1)
        self.end_reason = StreamEnd.FINISHED
        self.ended = False

    def end(self, end_reason: StreamEnd) -> None:
        """Ends the stream; events that were not sent yet are dropped."""
        self.end_reason = end_reason
        with suppress(asyncio.QueueEmpty):
            self._events.get_nowait()
        self._events.put_nowait(None)

    async def __aiter__(self) -> AsyncGenerator[StreamEvent]:
        reading = asyncio.create_task(self._read(), name="tidemill stream read")
        try:
            async for event in self._checked_events():
                yield event
        finally:
            self.ended = True
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _checked_events(self) -> AsyncIterator[StreamEvent]:
        checked = self._clock.boot()
        while self.end_reason is StreamEnd.FINISHED:
            event = await self._next(checked + self._every - self._clock.boot())
            if self._clock.boot() - checked >= self._every:
                checked = self._clock.boot()
                if not await self._still_allowed():
                    return
            if event is None:
                return
            if event is not _NO_EVENT:
                yield event

    async def _still_allowed(self) -> bool:
        try:
            if await self._may_watch():
                return True
        except Exception as error:  # noqa: BLE001 - without a successful check the stream must end
            _log_stream_failure(error)
            self.end(StreamEnd.FAILED)
        else:
            self.end(StreamEnd.FORBIDDEN)
        return False

    async def _next(self, seconds: float) -> StreamEvent | None:
        """Returns the next event. Returns `_NO_EVENT` if there is none within `seconds`, and None at the end
        of the stream."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self._events.get()
        return _NO_EVENT

    async def _read(self) -> None:
        """Queues events until the source ends or fails. Events from before a failure are still sent."""
        end_reason = StreamEnd.FINISHED
        try:
            async for event in self._source:
                await self._events.put(event)
        except Exception as error:  # noqa: BLE001 - any error ends the stream
            _log_stream_failure(error)
            end_reason = StreamEnd.FAILED
        finally:
            if isinstance(self._source, AsyncGenerator):
                await self._source.aclose()
        await self._events.put(None)
        if self.end_reason is StreamEnd.FINISHED:
            self.end_reason = end_reason


def _log_stream_failure(error: Exception) -> None:
    """Logs the error that ended a stream. A Tidemill error gets one line, any other error a traceback."""
    known = isinstance(error, TidemillError)
    logging.getLogger("tidemill").error("a stream failed: %s", error, exc_info=None if known else error)


_NO_EVENT = StreamEvent("", "")


SEND_TIMEOUT_SECONDS = 30.0
"""Seconds that a frame may wait for a slow reader."""
_SOCKET_SCOPE_KEY = "tidemill.socket"
_DENIAL_EXTENSION = "websocket.http.response"
_LAST_EVENT_PARAMETER = "last_event_id"
_CLOSE_CODES = {
    StreamEnd.FINISHED: 1000,
    StreamEnd.CLOSED: 1001,
    StreamEnd.FORBIDDEN: 1008,
    StreamEnd.FAILED: 1011,
}


def is_handshake(request: HTTPConnection) -> bool:
    return _SOCKET_SCOPE_KEY in request.scope


class WebSocketMiddleware:
    """ASGI middleware that turns a WebSocket handshake into an HTTP request for the wrapped application.
    Routes need no code for WebSockets."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        await receive()  # the connect message
        socket = WebSocketConnection(scope, receive, send)
        await self._app(_handshake_as_request(scope, socket), _receive_empty_body, socket.refuse)


class WebSocketResponse(Response):
    """A response that accepts a WebSocket handshake and sends the stream, one event per frame."""

    def __init__(self, stream: ViewerStream) -> None:
        super().__init__()
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        await scope[_SOCKET_SCOPE_KEY].send_stream(self._stream, scope[EXTRA_HEADERS_KEY])


class WebSocketConnection:
    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._can_send_response = _DENIAL_EXTENSION in (scope.get("extensions") or {})

    async def refuse(self, message: Message) -> None:
        """Refuses the handshake with an HTTP response, or closes the connection if the web server cannot
        respond. `message` is one ASGI message of this response."""
        kind: str = message["type"].removeprefix("http.response.")
        if self._can_send_response:
            await self._send({"body": b"", **message, "type": f"{_DENIAL_EXTENSION}.{kind}"})
        elif kind == "start":
            await self._send({"type": "websocket.close"})

    async def send_stream(self, stream: ViewerStream, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "websocket.accept", "headers": headers})
        sending = asyncio.create_task(self._frames(stream), name="tidemill websocket send")
        disconnect_task = asyncio.create_task(self._until_disconnect(), name="tidemill websocket receive")
        try:
            await asyncio.wait({sending, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            disconnect_task.cancel()
            await asyncio.gather(sending, disconnect_task, return_exceptions=True)

    async def _frames(self, stream: ViewerStream) -> None:
        async with aclosing(aiter(stream)) as events:
            async for event in events:
                message = {"type": "websocket.send", "text": format_frame(event)}
                if event.name and not await self._send_in_time(message):
                    return
        await self._send_in_time({"type": "websocket.close", "code": _CLOSE_CODES[stream.end_reason]})

    async def _send_in_time(self, message: Message) -> bool:
        try:
            async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
                await self._send(message)
        except TimeoutError:
            logging.getLogger("tidemill").info(
                "a stream client did not read for %s seconds", SEND_TIMEOUT_SECONDS
            )
            return False
        except OSError:  # the client has disconnected
            return False
        return True

    async def _until_disconnect(self) -> None:
        while (await self._receive())["type"] != "websocket.disconnect":
            pass


def format_frame(event: StreamEvent) -> str:
    return msgspec.json.encode({"event": event.name, "id": event.id, "data": event.data}).decode()


def _handshake_as_request(scope: Scope, socket: WebSocketConnection) -> Scope:
    """Returns the ASGI scope of a GET request for a WebSocket handshake. The scope contains `socket`. The
    query parameter `last_event_id` becomes the header Last-Event-ID."""
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    last_ids = [value.encode() for name, value in pairs if name == _LAST_EVENT_PARAMETER]
    http_scope: Scope = {
        "type": "http",
        "method": "GET",
        "scheme": {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"]),
        _SOCKET_SCOPE_KEY: socket,
    }
    if last_ids:
        http_scope["query_string"] = urlencode(
            [pair for pair in pairs if pair[0] != _LAST_EVENT_PARAMETER]
        ).encode()
        http_scope["headers"] = [*scope["headers"], (b"last-event-id", last_ids[-1])]
    return {**scope, **http_scope}


async def _receive_empty_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}
