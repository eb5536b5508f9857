"""The ASGI application: collects every route, calls its handler and turns the result into a response."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from importlib import import_module
from itertools import groupby
from pkgutil import iter_modules
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.routing import Route as StarletteRoute
from starlette.staticfiles import StaticFiles

from tidemill.app import Tidemill
from tidemill.errors import ConfigurationError
from tidemill.http_routes.files import File
from tidemill.http_routes.problems import HTTPError, ProblemFormatter, problem_from_error, reason_phrase
from tidemill.http_routes.routes import ANONYMOUS, EventStream, PageResponse, Role, Route, User
from tidemill.web import api, pages
from tidemill.web.authentication import Authenticator, AuthHook
from tidemill.web.file_response import build_file_response
from tidemill.web.i18n import request_language
from tidemill.web.live_views import LiveViews
from tidemill.web.redacted_inspector import RedactedInspector
from tidemill.web.renderer import WEB_FOLDER, Renderer
from tidemill.web.request import RouteRequest
from tidemill.web.request_parser import EncodedSlashMiddleware, decode_path_part, read_body, read_query
from tidemill.web.request_security import SecurityMiddleware
from tidemill.web.response_builder import build_response, event_stream_response, problem_response
from tidemill.web.streams import StreamRegistry, WebSocketMiddleware, WebSocketResponse, is_handshake


def collect_routes(app: Tidemill) -> tuple[Route, ...]:
    """Returns Tidemill's routes and then the application's own. Raises ConfigurationError for a duplicate."""
    routes = (*api_routes(), *page_routes(), *app.web.routes)
    _refuse_duplicates(routes)
    return routes


def api_routes() -> tuple[Route, ...]:
    return tuple(_package_routes(api))


def page_routes() -> tuple[Route, ...]:
    return tuple(_package_routes(pages))


def _package_routes(package: object) -> Iterator[Route]:
    """Yields the `ROUTES` of every module of the package."""
    path, name = package.__path__, package.__name__  # type: ignore[attr-defined]
    for module in sorted(info.name for info in iter_modules(path)):
        yield from getattr(import_module(f"{name}.{module}"), "ROUTES", ())


def _refuse_duplicates(routes: Sequence[Route]) -> None:
    seen: set[tuple[str, str]] = set()
    for route in routes:
        if (route.method, route.path) in seen:
            raise ConfigurationError(f"{route.method} {route.path} exists twice; remove one of them")
        seen.add((route.method, route.path))


LIVE_PREFIX = "/live"


def live_routes(routes: Iterable[Route], renderer: Renderer, live_views: LiveViews) -> list[Route]:
    """Returns one stream route for each page that needs a sign-in. The stream sends the live blocks of the
    page, which are the template blocks that change while the page is open."""
    pages = (route for route in routes if not route.writes and not route.path.startswith("/api/"))
    # Without a sign-in, a client could open many streams and use up the server.
    return [_live_route(route, renderer, live_views) for route in pages if route.role is not Role.PUBLIC]


def _live_route(route: Route, renderer: Renderer, live_views: LiveViews) -> Route:
    async def stream_page(request: RouteRequest) -> EventStream:
        """Streams the template blocks that change while the page is open. Viewers with the same role and
        language share one rendering."""
        anonymous = replace(request, user=User("", request.user.role), headers={}, address=None)

        async def render() -> dict[str, str]:
            page = await route.handler(anonymous)
            return renderer.blocks(request.prefix, anonymous, page) if isinstance(page, PageResponse) else {}

        view_key = (
            route.path,
            *request.path.values(),
            _query_text(request.query),
            request.user.role,
            request.language,
            request.prefix,
        )
        return EventStream(live_views.watch(view_key, render, request.headers.get("last-event-id")))

    return Route(
        method="GET",
        path=f"{LIVE_PREFIX}{route.path.rstrip('/') or '/overview'}",
        role=route.role,
        handler=stream_page,
        summary=f"Live blocks of {route.path}.",
        query=route.query,
    )


def _query_text(query: Any) -> str:
    return msgspec.json.encode(query).decode()


def dashboard(app: Tidemill, *, auth: AuthHook | None = None) -> Starlette:
    """Returns an ASGI application with the API and the dashboard of `app`.

    Serve it alone, or mount it in another application: `Mount("/jobs", dashboard(app))`. `auth` is an async
    function that returns the user of a request; it replaces Tidemill's sign-in. The first request opens the
    store; the dashboard never closes it."""
    return Dashboard(app, auth).starlette


class Dashboard:
    """Builds the ASGI application, which is the attribute `starlette`. `routes` has Tidemill's routes, the
    application's routes, and the streams of live pages."""

    def __init__(self, app: Tidemill, auth: AuthHook | None = None) -> None:
        self._app, self._inspect = app, RedactedInspector(app)
        self.authenticator, self._renderer = Authenticator(app, auth, self._inspect), Renderer(app)
        self.live_views, self.streams = LiveViews(app.clock), StreamRegistry(app.clock)
        self._problem_formatters: dict[Any, ProblemFormatter | None] = {}
        routes = collect_routes(app)
        self.routes = (*routes, *live_routes(routes, self._renderer, self.live_views))
        self.starlette = Starlette(
            routes=[
                *self._starlette_routes(self.routes),
                Mount("/static", StaticFiles(directory=WEB_FOLDER / "static")),
            ],
            exception_handlers={HTTPException: self._unrouted},
            middleware=[
                Middleware(WebSocketMiddleware),
                Middleware(
                    SecurityMiddleware, hosts=self.authenticator.hosts, https=self.authenticator.https
                ),
                Middleware(EncodedSlashMiddleware),
            ],
        )

    def _starlette_routes(self, routes: Iterable[Route]) -> list[StarletteRoute]:
        """Returns the Starlette routes, the most specific path first, because Starlette uses the first route
        that matches."""
        ordered = sorted(routes, key=lambda route: (route.path.count("{"), -len(route.path), route.path))
        by_path = groupby(ordered, key=lambda route: route.path)
        return [self._path_route(path, {route.method: route for route in group}) for path, group in by_path]

    def _path_route(self, path: str, by_method: dict[Any, Route]) -> StarletteRoute:
        async def endpoint(request: Request) -> Response:
            return await self._respond(
                request, by_method["GET" if request.method == "HEAD" else request.method]
            )

        self._problem_formatters[endpoint] = next(
            (route.problem for route in by_method.values() if route.problem), None
        )
        return StarletteRoute(path, endpoint, methods=list(by_method))

    async def _respond(self, request: Request, route: Route) -> Response:
        try:
            route_request = await self._parse(request, route)
            result = await route.handler(route_request)
            if isinstance(result, EventStream):
                return self._stream_response(request, route, route_request, result)
            if route.is_audited(route_request.body):
                await self.authenticator.record(request, route, route_request, route.audit_details(result))
            if isinstance(result, File):
                return await build_file_response(request, result)
            return build_response(self._renderer, request, route, route_request, result)
        except Exception as error:  # noqa: BLE001 - every error becomes a problem document
            return self._refuse(request, error, route.problem)

    def _stream_response(
        self, request: Request, route: Route, route_request: RouteRequest, result: EventStream
    ) -> Response:
        if request.method == "HEAD":
            return event_stream_response(None)
        still_allowed = partial(self.authenticator.still_allows, request, route, route_request.user)
        stream = self.streams.follow(
            result.stream, still_allowed, _stream_viewer(route_request), self.authenticator.recheck_seconds
        )
        return WebSocketResponse(stream) if is_handshake(request) else event_stream_response(stream)

    async def _parse(self, request: Request, route: Route) -> RouteRequest:
        """Returns the parsed request with its user. The user is authenticated before any byte of the body is
        read."""
        user = await self.authenticator.authorize(request, route)
        if is_handshake(request) and not route.streams:
            raise HTTPError(
                HTTPStatus.BAD_REQUEST, "upgrade: nothing is streamed here; ask without it", field="upgrade"
            )
        return RouteRequest(
            app=self._app,
            inspect=self._inspect,
            live_views=self.live_views,
            user=user,
            path={name: decode_path_part(part) for name, part in request.path_params.items()},
            query=read_query(route, request),
            body=await read_body(route, request),
            language=request_language(request),
            headers=dict(request.headers),
            address=request.client.host if request.client else None,
            prefix=request.scope.get("root_path", ""),
            secure=self.authenticator.cookie_scope(request).secure,
            sign_in=self.authenticator.sign_in,
        )

    def close(self) -> None:
        """Ends all streams and live views."""
        self.streams.close()
        self.live_views.close()
        self.authenticator.token_usage.close()

    async def _unrouted(self, request: Request, error: Exception) -> Response:
        """Answers a request with an unknown path or a method that the path does not support."""
        assert isinstance(error, HTTPException)  # noqa: S101 - Starlette calls it with nothing else
        status = HTTPStatus(error.status_code)
        headers = dict(error.headers or {})
        error_response = HTTPError(status, _unrouted_detail(request, status, headers), headers=headers)
        return self._refuse(
            request, error_response, self._problem_formatters.get(request.scope.get("endpoint"))
        )

    def _refuse(
        self, request: Request, error: Exception, format_problem: ProblemFormatter | None
    ) -> Response:
        if problem_from_error(error) is None:
            _log_failure("%s %s failed", request, error)
        language = request_language(request)
        try:
            return problem_response(
                self._renderer, request, error, language=language, format_problem=format_problem
            )
        except Exception as formatter_error:
            if format_problem is None:
                raise
            _log_failure("%s %s: its problem= formatter failed", request, formatter_error)
            return problem_response(self._renderer, request, error, language=language)


def _stream_viewer(route_request: RouteRequest) -> str:
    """Returns a text that identifies the viewer when open streams are counted. The text is the token id or
    the user name, or the address of an anonymous client."""
    if route_request.user is ANONYMOUS:
        return f"at {route_request.address}"
    return route_request.user.token or route_request.user.name


def _log_failure(message: str, request: Request, error: Exception) -> None:
    """Logs an error with the request's path. A path parameter named `secret` is masked."""
    path = request.url.path
    if secret := request.path_params.get("secret"):
        path = path.replace(secret, "***")
    logging.getLogger("tidemill").error(message, request.method, path, exc_info=error)


def _unrouted_detail(request: Request, status: HTTPStatus, headers: dict[str, str]) -> str:
    """Returns the error message for a request without a route. The message names the methods that the path
    supports, or the document that lists all paths."""
    remedy = f"GET {request.scope.get('root_path', '')}/api/v1/openapi.json lists what there is"
    if methods := headers.get("Allow"):
        remedy = f"it takes {', '.join(sorted(methods.split(', ')))}"
    return f"{request.method} {request.url.path}: {reason_phrase(status).lower()}; {remedy}"
