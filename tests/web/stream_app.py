"""An application with a stream on a real server, and an independent WebSocket client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tidemill import Tidemill
from tidemill.web import EventStream, HTTPError, Problem, Role, RouteRequest, StreamEvent
from tidemill.web.server import listen, serve_dashboard

STREAM_PATH = "/api/songs/follow"


class Since(Struct, forbid_unknown_fields=True):
    album: str | None = None


class StreamApp:
    """An application that streams the events of a queue. `made` counts its events, `ended` its streams."""

    def __init__(self) -> None:
        self.app = Tidemill("memory://")
        self.outbox: asyncio.Queue[StreamEvent | Exception | None] = asyncio.Queue()
        self.requests: list[RouteRequest] = []
        self.made = self.ended = 0
        self.url = ""
        self.gone = asyncio.Event()
        self.sing = self.app.task(name="sing", queue="songs")(self._sing)
        self.app.web.route(
            "GET",
            STREAM_PATH,
            role=Role.OPERATOR,
            summary="Hear.",
            query=Since,
            response=EventStream,
            problem=format_problem,
        )(self._follow)

    async def _sing(self) -> None: ...

    async def _follow(self, request: RouteRequest) -> EventStream:
        self.requests.append(request)
        if request.query.album == "无":
            raise HTTPError(404, "there is no album '无'")
        return EventStream(self.notes())

    async def notes(self) -> AsyncIterator[StreamEvent]:
        try:
            while (event := await self.outbox.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                self.made += 1
                yield event
        finally:
            self.ended += 1
            self.gone.set()

    def open(self, path: str = STREAM_PATH, token: str = "", **headers: str) -> connect:
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return connect(f"ws://{self.url}{path}", additional_headers=shown | more)

    async def refused(self, path: str = STREAM_PATH, token: str = "", **headers: str) -> InvalidStatus:
        with pytest.raises(InvalidStatus) as refused:
            async with self.open(path, token, **headers):
                pass
        return refused.value


def format_problem(problem: Problem) -> dict[str, Any]:
    return {"status": False, "message": problem.detail}


@asynccontextmanager
async def serve_stream_app(songs: StreamApp) -> AsyncIterator[None]:
    with listen("127.0.0.1", 0, port_is_fixed=True) as found:
        songs.url = f"127.0.0.1:{found.getsockname()[1]}"
        async with serve_dashboard(songs.app, found):
            yield


async def receive_event(socket: ClientConnection) -> Any:
    async with asyncio.timeout(10):
        return json.loads(await socket.recv())


async def close_code(socket: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            await receive_event(socket)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code
