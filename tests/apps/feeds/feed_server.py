"""A web server for feeds on loopback. It keeps its own log, so that a test can see what a site sees.

Every address 127.x.y.z leads to it, so one server stands for many sites."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web

AnswerFunction = Callable[["SeenRequest"], web.StreamResponse | Awaitable[web.StreamResponse]]
RSS_TYPE = "application/rss+xml"


class SeenRequest(NamedTuple):
    """One request as the server saw it. `began` is a wall time."""

    host: str
    path: str
    headers: dict[str, str]
    began: float
    body: bytes = b""


def rss(title: str, *items: str, extra: str = "") -> str:
    entries = "".join(
        f"<item><title>{item}</title><guid>{item}</guid><link>http://example.org/{item}</link>"
        f"<description>text of {item}</description></item>"
        for item in items
    )
    channel = f"<channel><title>{title}</title>{extra}{entries}</channel>"
    return f'<?xml version="1.0"?><rss version="2.0">{channel}</rss>'


def answer_rss(title: str = "潮汐", *items: str, extra: str = "", **headers: str) -> web.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.Response(text=rss(title, *items, extra=extra), content_type=RSS_TYPE, headers=named)


class FeedServer:
    """`answers` maps a path to a function of the request. A path without one answers with a feed of one item,
    with an ETag that it checks. `now` returns the time for the log."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self.answers: dict[str, AnswerFunction] = {}
        self.log: list[SeenRequest] = []
        self.at_once: dict[str, int] = {}
        self.most_at_once: dict[str, int] = {}
        self.wrong_validators = 0
        self.port = 0

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def requests(self, path: str) -> list[SeenRequest]:
        return [seen for seen in self.log if seen.path == path]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        began, body = self._now(), await request.read()
        seen = SeenRequest(request.host, request.path, headers, began, body)
        self.log.append(seen)
        running = self.at_once[request.path] = self.at_once.get(request.path, 0) + 1
        self.most_at_once[request.path] = max(running, self.most_at_once.get(request.path, 0))
        try:
            answer = self.answers.get(request.path, self.answer_with_etag)(seen)
            return answer if isinstance(answer, web.StreamResponse) else await answer
        finally:
            self.at_once[request.path] -= 1

    def answer_with_etag(self, seen: SeenRequest) -> web.Response:
        etag, condition = f'"{seen.path}  W/v1"', seen.headers.get("if-none-match")
        if condition == etag:
            return web.Response(status=304, headers={"etag": etag})
        self.wrong_validators += condition is not None
        return answer_rss(seen.path, f"item{seen.path.replace('/', '-')}", etag=etag)


@asynccontextmanager
async def feed_server(now: Callable[[], float] = time.time) -> AsyncIterator[FeedServer]:
    server, application = FeedServer(now), web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "0.0.0.0", 0)  # noqa: S104 - all of 127.0.0.0/8
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()
