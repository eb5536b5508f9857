"""Sends requests to an ASGI application in this process; thousands take seconds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

ASGI = Callable[[Any, Any, Any], Awaitable[None]]

HOST = "127.0.0.1:8750"
STREAM = "text/event-stream"


@dataclass(frozen=True)
class ClientResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def streams(self) -> bool:
        return self.headers.get("content-type", "").startswith(STREAM)


async def send_request(
    app: ASGI,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    prefix: str = "",
    address: str = "127.0.0.1",
) -> ClientResponse:
    """Sends a request. `path` is encoded. The client disconnects when a stream begins."""
    received, gone = _ReceivedMessages(), asyncio.Event()
    incoming = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in incoming:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        received.take(message)
        if received.streams:
            gone.set()

    scope = _scope(method, path, {"host": HOST, **(headers or {})}, prefix, address)
    await app(scope, receive, send)
    return ClientResponse(received.status, received.headers, b"".join(received.parts))


async def send_handshake(app: ASGI, path: str, *, headers: Mapping[str, str] | None = None) -> ClientResponse:
    """Sends a WebSocket handshake; 101 if it is accepted, after which the client disconnects."""
    received, gone = _ReceivedMessages(), asyncio.Event()
    incoming = iter([{"type": "websocket.connect"}])

    async def receive() -> dict[str, Any]:
        for message in incoming:
            return message
        await gone.wait()
        return {"type": "websocket.disconnect", "code": 1001}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "websocket.accept":
            received.take({"type": "http.response.start", "status": 101, "headers": message["headers"]})
            gone.set()
        elif message["type"].startswith("websocket.http."):
            received.take({**message, "type": message["type"].removeprefix("websocket.")})

    scope = _scope("GET", path, {"host": HOST, **(headers or {})}, "", "127.0.0.1")
    del scope["method"]
    extensions: dict[str, Any] = {"websocket.http.response": {}}
    socket = scope | {"type": "websocket", "scheme": "ws", "subprotocols": [], "extensions": extensions}
    await app(socket, receive, send)
    return ClientResponse(received.status, received.headers, b"".join(received.parts))


class _ReceivedMessages:
    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.parts: list[bytes] = []

    def take(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            for name, value in message["headers"]:
                known = self.headers.get(name.decode())
                self.headers[name.decode()] = f"{known}\n{value.decode()}" if known else value.decode()
        else:
            self.parts.append(message.get("body", b""))

    @property
    def streams(self) -> bool:
        return self.headers.get("content-type", "").startswith(STREAM)


def _scope(method: str, path: str, headers: Mapping[str, str], prefix: str, address: str) -> dict[str, Any]:
    bare, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(f"{prefix}{bare}"),
        "raw_path": f"{prefix}{bare}".encode(),
        "root_path": prefix,
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": (address, 50000),
        "server": ("127.0.0.1", 8750),
        "state": {},
    }
