"""Streams by WebSocket.

A handshake is a GET: it goes the way of every other, by the same gate to the same handler, and whatever
refuses it is the answer to it. Only a stream opens the socket. Each event is then one text frame, a JSON
object of `event`, `id` and `data`; what the other side sends is not looked at. Pings are the server's affair.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemill.seam.answers import Event
from tidemill.web.guard import MORE
from tidemill.web.streams import Stream, Why

SLOW = 30.0
"""Seconds that a frame may wait for a reader who does not read."""
_SOCKET = "tidemill.socket"
_DENIAL = "websocket.http.response"
_LAST = "last_event_id"
_CODES = {Why.OVER: 1000, Why.CLOSED: 1001, Why.UNADMITTED: 1008, Why.FAILED: 1011}


def is_handshake(request: HTTPConnection) -> bool:
    return _SOCKET in request.scope


class Sockets:
    """Before everything else: what comes behind it sees a request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        await receive()  # that somebody connects, which is known already
        socket = Socket(scope, receive, send)
        await self._app(_as_request(scope, socket), _without_body, socket.answer)


class Frames(Response):
    """What a handler answered a handshake with, in the place of a response."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        await scope[_SOCKET].show(self._stream, scope[MORE])


class Socket:
    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._may_answer = _DENIAL in (scope.get("extensions") or {})

    async def answer(self, message: Message) -> None:
        """A response in the place of a stream. Servers that cannot send one refuse in their own words."""
        kind: str = message["type"].removeprefix("http.response.")
        if self._may_answer:
            await self._send({"body": b"", **message, "type": f"{_DENIAL}.{kind}"})
        elif kind == "start":
            await self._send({"type": "websocket.close"})

    async def show(self, stream: Stream, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "websocket.accept", "headers": headers})
        sending = asyncio.create_task(self._frames(stream), name="frames of a stream")
        hearing = asyncio.create_task(self._until_gone(), name="whoever reads frames")
        try:
            await asyncio.wait({sending, hearing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            hearing.cancel()
            await asyncio.gather(sending, hearing, return_exceptions=True)

    async def _frames(self, stream: Stream) -> None:
        async with aclosing(aiter(stream)) as events:
            async for event in events:
                message = {"type": "websocket.send", "text": written(event)}
                if event.name and not await self._sent(message):
                    return
        await self._sent({"type": "websocket.close", "code": _CODES[stream.why]})

    async def _sent(self, message: Message) -> bool:
        try:
            async with asyncio.timeout(SLOW):
                await self._send(message)
        except TimeoutError:
            logging.getLogger("tidemill").info("a reader of a stream did not read for %s seconds", SLOW)
            return False
        except OSError:  # the other side is gone, and the server says so
            return False
        return True

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "websocket.disconnect":
            pass


def written(event: Event) -> str:
    return msgspec.json.encode({"event": event.name, "id": event.id, "data": event.data}).decode()


def _as_request(scope: Scope, socket: Socket) -> Scope:
    """Browsers cannot say in a header what they have seen last, so it may stand in the query."""
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    seen = [value.encode() for name, value in pairs if name == _LAST]
    asked: Scope = {
        "type": "http",
        "method": "GET",
        "scheme": {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"]),
        _SOCKET: socket,
    }
    if seen:
        asked["query_string"] = urlencode([pair for pair in pairs if pair[0] != _LAST]).encode()
        asked["headers"] = [*scope["headers"], (b"last-event-id", seen[-1])]
    return {**scope, **asked}


async def _without_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}
