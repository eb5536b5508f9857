"""The event stream of changes, as a program reads it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from tests.web.api.api_client import ApiClient, shop_app
from tests.web.asgi_client import HOST


class Heard(NamedTuple):
    name: str
    id: str
    value: Any


class Stream:
    """Reads lines as an EventSource does."""

    def __init__(self) -> None:
        self.parts: asyncio.Queue[str] = asyncio.Queue()

    async def next(self) -> Heard:
        """Returns the next event that is not a problem."""
        while True:
            async with asyncio.timeout(10):
                fields = dict(
                    line.split(": ", 1) for line in (await self.parts.get()).splitlines() if ": " in line
                )
            if fields.get("event", "problem") != "problem":
                return Heard(fields["event"], fields["id"], json.loads(fields["data"]))


@asynccontextmanager
async def listening(api: ApiClient, query: str, last: str = "") -> AsyncIterator[Stream]:
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
    messages = iter([{"type": "http.request"}])

    async def receive() -> dict[str, Any]:
        for message in messages:
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
async def api() -> AsyncIterator[ApiClient]:
    async with shop_app("memory://") as app:
        yield ApiClient(app)


async def test_a_client_that_reconnects_receives_only_changes(api: ApiClient) -> None:
    id_ = await api.sent(delay=60)
    async with listening(api, f"job={id_}&queue=mail") as stream:
        first = {event.name: event for event in (await stream.next(), await stream.next())}
        assert first["job"].value == await api.get(f"/jobs/{id_}")
        assert first["queue"].value["counts"]["scheduled"] == 1
        await api.ok("POST", f"/jobs/{id_}/run")
        then = {event.name: event for event in (await stream.next(), await stream.next())}
        assert then["job"].value["state"] == "ready"
    async with listening(api, f"job={id_}") as stream:
        last = (await stream.next()).id
    async with listening(api, f"job={id_}", last) as back, listening(api, f"job={id_}") as fresh:
        assert (await fresh.next()).id == last
        assert back.parts.empty()
        await api.ok("POST", f"/jobs/{id_}/cancel", {})
        event = await back.next()
        assert (event.name, event.value["state"]) == ("job", "cancelled")
    assert len(api.server.live_views) == 0


async def test_without_a_name_it_streams_the_overview(api: ApiClient) -> None:
    async with listening(api, "") as stream:
        event = await stream.next()
    assert event.name == "overview"
    assert [queue["name"] for queue in event.value["queues"]] == ["feeds", "mail", "texts"]


async def test_an_unknown_name_is_refused_before_the_stream_begins(api: ApiClient) -> None:
    assert (await api.refused("GET", "/events?job=nix"))[0] == 404
    assert (await api.refused("GET", "/events?flow=nix"))[0] == 404
    assert (await api.refused("GET", "/events?queue=nix"))[0] == 404
    assert len(api.server.live_views) == 0
