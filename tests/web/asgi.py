"""Requests to an ASGI application in this process: thousands of them take seconds."""

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
class Answer:
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


async def ask(
    app: ASGI,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    prefix: str = "",
    address: str = "127.0.0.1",
) -> Answer:
    """`path` as it is sent, with its escapes. Whoever is answered with a stream goes away when it begins."""
    said, gone = _Said(), asyncio.Event()
    asked = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in asked:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        said.take(message)
        if said.streams:
            gone.set()

    scope = _scope(method, path, {"host": HOST, **(headers or {})}, prefix, address)
    await app(scope, receive, send)
    return Answer(said.status, said.headers, b"".join(said.parts))


async def shake(app: ASGI, path: str, *, headers: Mapping[str, str] | None = None) -> Answer:
    """A WebSocket handshake: 101 when it is accepted; whoever asked goes away then."""
    said, gone = _Said(), asyncio.Event()
    asked = iter([{"type": "websocket.connect"}])

    async def receive() -> dict[str, Any]:
        for message in asked:
            return message
        await gone.wait()
        return {"type": "websocket.disconnect", "code": 1001}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "websocket.accept":
            said.take({"type": "http.response.start", "status": 101, "headers": message["headers"]})
            gone.set()
        elif message["type"].startswith("websocket.http."):
            said.take({**message, "type": message["type"].removeprefix("websocket.")})

    scope = _scope("GET", path, {"host": HOST, **(headers or {})}, "", "127.0.0.1")
    del scope["method"]
    extensions: dict[str, Any] = {"websocket.http.response": {}}
    socket = scope | {"type": "websocket", "scheme": "ws", "subprotocols": [], "extensions": extensions}
    await app(socket, receive, send)
    return Answer(said.status, said.headers, b"".join(said.parts))


class _Said:
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
