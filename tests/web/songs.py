"""An application with a stream, on a real server, and a client of WebSockets that is not ours."""

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
from tidemill.web import Asked, Event, Events, Problem, Refused, Role
from tidemill.web.server import listen, served

FOLLOW = "/api/songs/follow"


class Since(Struct, forbid_unknown_fields=True):
    album: str | None = None


class Songs:
    """An application that tells what it is told to tell. `made` counts its events, `ended` its streams."""

    def __init__(self) -> None:
        self.app = Tidemill("memory://")
        self.told: asyncio.Queue[Event | Exception | None] = asyncio.Queue()
        self.asked: list[Asked] = []
        self.made = self.ended = 0
        self.url = ""
        self.gone = asyncio.Event()
        self.sing = self.app.task(name="sing", queue="songs")(self._sing)
        self.app.web.route(
            "GET", FOLLOW, role=Role.OPERATOR, says="Hear.", query=Since, answers=Events, problem=told
        )(self._follow)

    async def _sing(self) -> None: ...

    async def _follow(self, asked: Asked) -> Events:
        self.asked.append(asked)
        if asked.query.album == "无":
            raise Refused(404, "there is no album '无'")
        return Events(self.notes())

    async def notes(self) -> AsyncIterator[Event]:
        try:
            while (event := await self.told.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                self.made += 1
                yield event
        finally:
            self.ended += 1
            self.gone.set()

    def open(self, path: str = FOLLOW, token: str = "", **headers: str) -> connect:
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return connect(f"ws://{self.url}{path}", additional_headers=shown | more)

    async def refused(self, path: str = FOLLOW, token: str = "", **headers: str) -> InvalidStatus:
        with pytest.raises(InvalidStatus) as refused:
            async with self.open(path, token, **headers):
                pass
        return refused.value


def told(problem: Problem) -> dict[str, Any]:
    return {"status": False, "message": problem.detail}


@asynccontextmanager
async def at_work(songs: Songs) -> AsyncIterator[None]:
    with listen("127.0.0.1", 0, chosen=True) as found:
        songs.url = f"127.0.0.1:{found.getsockname()[1]}"
        async with served(songs.app, found):
            yield


async def heard(socket: ClientConnection) -> Any:
    async with asyncio.timeout(10):
        return json.loads(await socket.recv())


async def code_of(socket: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            await heard(socket)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code
