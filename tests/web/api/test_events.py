"""The stream of what changes, as a program reads it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from tests.web.api.support import Api, shop
from tests.web.asgi import HOST


class Heard(NamedTuple):
    name: str
    id: str
    value: Any


class Stream:
    """Lines are read as an EventSource does."""

    def __init__(self) -> None:
        self.parts: asyncio.Queue[str] = asyncio.Queue()

    async def next(self) -> Heard:
        """The next event that is not about trouble."""
        while True:
            async with asyncio.timeout(10):
                fields = dict(
                    line.split(": ", 1) for line in (await self.parts.get()).splitlines() if ": " in line
                )
            if fields.get("event", "trouble") != "trouble":
                return Heard(fields["event"], fields["id"], json.loads(fields["data"]))


@asynccontextmanager
async def listening(api: Api, query: str, last: str = "") -> AsyncIterator[Stream]:
    stream, gone = Stream(), asyncio.Event()
    headers = {"host": HOST, "authorization": "Bearer of a name", "last-event-id": last}
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/v1/events",
        "raw_path": b"/api/v1/events",
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items() if value],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8750),
        "scheme": "http",
    }
    asked = iter([{"type": "http.request"}])

    async def receive() -> dict[str, Any]:
        for message in asked:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if body := message.get("body"):
            stream.parts.put_nowait(body.decode())

    running = asyncio.create_task(api.server.starlette(scope, receive, send))
    try:
        yield stream
    finally:
        gone.set()
        await running


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with shop("memory://") as app:
        yield Api(app)


async def test_a_job_is_followed_and_whoever_comes_back_hears_only_what_is_new(api: Api) -> None:
    id_ = await api.sent(delay=60)
    async with listening(api, f"job={id_}&queue=mail") as stream:
        first = {heard.name: heard for heard in (await stream.next(), await stream.next())}
        assert first["job"].value == await api.get(f"/jobs/{id_}")
        assert first["queue"].value["counts"]["scheduled"] == 1
        await api.ok("POST", f"/jobs/{id_}/run")
        then = {heard.name: heard for heard in (await stream.next(), await stream.next())}
        assert then["job"].value["state"] == "ready"
    async with listening(api, f"job={id_}") as stream:
        last = (await stream.next()).id
    async with listening(api, f"job={id_}", last) as back, listening(api, f"job={id_}") as fresh:
        assert (await fresh.next()).id == last
        assert back.parts.empty()
        await api.ok("POST", f"/jobs/{id_}/cancel", {})
        heard = await back.next()
        assert (heard.name, heard.value["state"]) == ("job", "cancelled")
    assert len(api.server.looks) == 0


async def test_without_a_name_it_is_everything_at_a_glance(api: Api) -> None:
    async with listening(api, "") as stream:
        heard = await stream.next()
    assert heard.name == "overview"
    assert [queue["name"] for queue in heard.value["queues"]] == ["feeds", "mail", "texts"]


async def test_what_is_not_there_is_told_before_the_stream_begins(api: Api) -> None:
    assert (await api.refused("GET", "/events?job=nix"))[0] == 404
    assert (await api.refused("GET", "/events?flow=nix"))[0] == 404
    assert (await api.refused("GET", "/events?queue=nix"))[0] == 404
    assert len(api.server.looks) == 0
