"""One table of routes as an ASGI application."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from itertools import groupby
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.routing import Route as Served
from starlette.staticfiles import StaticFiles

from tidemill.app import Tidemill
from tidemill.seam.answers import Events
from tidemill.seam.refusals import Refused, Told
from tidemill.seam.roles import NOBODY
from tidemill.seam.routes import Route
from tidemill.web.answering import refuse, respond, streamed
from tidemill.web.asked import Asked
from tidemill.web.gate import Auth, Gate
from tidemill.web.guard import Guard
from tidemill.web.inspecting import Shown
from tidemill.web.languages import language_of
from tidemill.web.live import Looks
from tidemill.web.paths import WholeParts, whole
from tidemill.web.problems import phrase, problem_of
from tidemill.web.reading import read_body, read_query
from tidemill.web.rendering import HERE, Renderer
from tidemill.web.sockets import Frames, Sockets, is_handshake
from tidemill.web.streams import Streams
from tidemill.web.table import routes_of
from tidemill.web.watching import live_routes


def dashboard(app: Tidemill, *, auth: Auth | None = None) -> Starlette:
    """The API and the dashboard of an application, to be served by itself or mounted in another ASGI
    application: `Mount("/jobs", dashboard(app))`. `auth` says who asks, in place of the sign-in; Host, Origin
    and roles are checked all the same. The store is opened by the first request, and closed by whoever opened
    the application."""
    return Server(app, auth).starlette


class Server:
    """`routes` are all there are: Tidemill's, the application's, and the streams of live pages."""

    def __init__(self, app: Tidemill, auth: Auth | None = None) -> None:
        self._app, self._inspect = app, Shown(app)
        self.gate, self._renderer = Gate(app, auth, self._inspect), Renderer(app)
        self.looks, self.streams = Looks(app.clock), Streams(app.clock)
        self._told: dict[Any, Told | None] = {}
        routes = routes_of(app)
        self.routes = (*routes, *live_routes(routes, self._renderer, self.looks))
        self.starlette = Starlette(
            routes=[*self._served(self.routes), Mount("/static", StaticFiles(directory=HERE / "static"))],
            exception_handlers={HTTPException: self._unrouted},
            middleware=[
                Middleware(Sockets),
                Middleware(Guard, hosts=self.gate.hosts, https=self.gate.https),
                Middleware(WholeParts),
            ],
        )

    def _served(self, routes: Iterable[Route]) -> list[Served]:
        """A path without parameters goes before one that would take it for a parameter, and one that goes on
        behind a parameter before one that ends there."""
        ordered = sorted(routes, key=lambda route: (route.path.count("{"), -len(route.path), route.path))
        by_path = groupby(ordered, key=lambda route: route.path)
        return [self._path(path, {route.method: route for route in each}) for path, each in by_path]

    def _path(self, path: str, by_method: dict[Any, Route]) -> Served:
        async def endpoint(request: Request) -> Response:
            return await self._answer(
                request, by_method["GET" if request.method == "HEAD" else request.method]
            )

        self._told[endpoint] = next((route.problem for route in by_method.values() if route.problem), None)
        return Served(path, endpoint, methods=list(by_method))

    async def _answer(self, request: Request, route: Route) -> Response:
        try:
            asked = await self._read(request, route)
            answer = await route.handler(asked)
            if isinstance(answer, Events):
                return self._stream(request, route, asked, answer)
            if route.is_for_the_log(asked.body):
                await self.gate.record(request, route, asked, route.made(answer))
            return respond(self._renderer, request, route, asked, answer)
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked gets a problem document
            return self._refuse(request, error, route.problem)

    def _stream(self, request: Request, route: Route, asked: Asked, answer: Events) -> Response:
        if request.method == "HEAD":
            return streamed(None)
        still = partial(self.gate.still_admits, request, route, asked.who)
        stream = self.streams.follow(answer.stream, still, _viewer(asked), self.gate.looks_again)
        return Frames(stream) if is_handshake(request) else streamed(stream)

    async def _read(self, request: Request, route: Route) -> Asked:
        """Who asks is known before a byte of the body is read."""
        who = await self.gate.admit(request, route)
        if is_handshake(request) and not route.streams:
            raise Refused(
                HTTPStatus.BAD_REQUEST, "upgrade: nothing is streamed here; ask without it", field="upgrade"
            )
        return Asked(
            app=self._app,
            inspect=self._inspect,
            looks=self.looks,
            who=who,
            path={name: whole(part) for name, part in request.path_params.items()},
            query=read_query(route, request),
            body=await read_body(route, request),
            language=language_of(request),
            headers=dict(request.headers),
            address=request.client.host if request.client else None,
            prefix=request.scope.get("root_path", ""),
            secure=self.gate.place(request).secure,
            signing=self.gate.signing,
        )

    def close(self) -> None:
        """Nobody is shown anything more."""
        self.streams.close()
        self.looks.close()
        self.gate.uses.close()

    async def _unrouted(self, request: Request, error: Exception) -> Response:
        """No such path, or not by that method."""
        assert isinstance(error, HTTPException)  # noqa: S101 - Starlette calls it with nothing else
        status = HTTPStatus(error.status_code)
        headers = dict(error.headers or {})
        refused = Refused(status, _unrouted(request, status, headers), headers=headers)
        return self._refuse(request, refused, self._told.get(request.scope.get("endpoint")))

    def _refuse(self, request: Request, error: Exception, told: Told | None) -> Response:
        if problem_of(error) is None:
            _log("%s %s could not be answered", request, error)
        language = language_of(request)
        try:
            return refuse(self._renderer, request, error, language=language, told=told)
        except Exception as wrong:
            if told is None:
                raise
            _log("%s %s: its problem= could not say what went wrong", request, wrong)
            return refuse(self._renderer, request, error, language=language)


def _viewer(asked: Asked) -> str:
    """Whose a stream is, for counting. Who needs no sign-in has only an address."""
    if asked.who is NOBODY:
        return f"at {asked.address}"
    return asked.who.token or asked.who.name


def _log(says: str, request: Request, error: Exception) -> None:
    logging.getLogger("tidemill").error(says, request.method, request.url.path, exc_info=error)


def _unrouted(request: Request, status: HTTPStatus, headers: dict[str, str]) -> str:
    """With what there is instead."""
    remedy = f"GET {request.scope.get('root_path', '')}/api/v1/openapi.json lists what there is"
    if methods := headers.get("Allow"):
        remedy = f"it takes {', '.join(sorted(methods.split(', ')))}"
    return f"{request.method} {request.url.path}: {phrase(status).lower()}; {remedy}"
