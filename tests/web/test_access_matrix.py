"""Every route by every role, origin and method.

The test reads the served routes, so it covers new routes as well."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest
import pytest_asyncio

from tests.web.asgi_client import HOST, ClientResponse, send_handshake, send_request
from tests.web.populated_store import PopulatedStore
from tidemill.auth.sessions import csrf_token
from tidemill.errors import ConfigurationError
from tidemill.http_routes.files import File, Upload
from tidemill.http_routes.routes import EventStream, Role, Route, StreamEvent, TextResponse
from tidemill.web.asgi import Dashboard
from tidemill.web.request import RouteRequest

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
OWN, FOREIGN = f"http://{HOST}", "https://elsewhere.example"
CALLERS = {
    "nobody": Role.PUBLIC,
    "wrong": Role.PUBLIC,
    "viewer": Role.VIEWER,
    "operator": Role.OPERATOR,
    "admin": Role.ADMIN,
}


class Case(NamedTuple):
    route: Route
    caller: str
    origin: str
    host: str

    def expects(self, answer: ClientResponse) -> bool:
        if self.host != HOST:
            return answer.status == 421
        if self.origin != OWN:
            return answer.status == 403
        if not CALLERS[self.caller].may(self.route.role):
            return answer.status == (401 if CALLERS[self.caller] is Role.PUBLIC else 403)
        refused = {405, 421} if self.route.role is Role.PUBLIC else {401, 403, 405, 421}
        return answer.status not in refused and answer.status < 500

    def __str__(self) -> str:
        return f"{self.route.method} {self.route.path} by {self.caller} of {self.origin} at {self.host}"


class Place:
    """The dashboard of a populated store, with one user per role."""

    def __init__(self, world: PopulatedStore, server: Dashboard, file: Path) -> None:
        self.world, self._server, self._file = world, server, file
        self.callers: dict[str, dict[str, str]] = {}

    async def populate(self) -> Self:
        await self.world.populate()
        made = {str(role): await self.world.token(role) for role in Role if role is not Role.PUBLIC}
        self.callers = {"nobody": {}, "wrong": {"authorization": "Bearer tm_1_1"}, **made}
        return self

    @property
    def routes(self) -> tuple[Route, ...]:
        return self._server.routes

    async def ask(self, method: str, route: Route, caller: str, **headers: str) -> ClientResponse:
        path = self.world.paths(route.path)[0]
        kind = "application/json" if path.startswith("/api/") else "application/x-www-form-urlencoded"
        body = b"{}" if path.startswith("/api/") else b""
        headers = {"content-type": kind, **self.callers[caller], **headers}
        return await send_request(self._server.starlette, method, path, headers=headers, body=body)

    async def shake(self, route: Route, caller: str, **headers: str) -> ClientResponse:
        path = self.world.paths(route.path)[0]
        return await send_handshake(self._server.starlette, path, headers={**self.callers[caller], **headers})

    async def ask_for(self, path: str, **headers: str) -> ClientResponse:
        return await send_request(self._server.starlette, "GET", path, headers=headers)

    async def session(self, caller: str) -> dict[str, str]:
        """Returns the session cookie of that caller."""
        token = self.callers[caller]["authorization"].removeprefix("Bearer ")
        headers = {"content-type": "application/x-www-form-urlencoded", "origin": OWN}
        answer = await send_request(
            self._server.starlette, "POST", "/sign-in", headers=headers, body=f"token={token}".encode()
        )
        assert answer.status == 303
        return {"cookie": answer.headers["set-cookie"].partition(";")[0]}

    def contents(self) -> list[str]:
        """Returns every row of every table."""
        with closing(sqlite3.connect(self._file)) as store:
            return [*store.iterdump()]


@pytest_asyncio.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setenv("TIDEMILL_WEB_RATE", "1000000")
    world = PopulatedStore(f"sqlite:///{tmp_path / 'world.db'}")
    world.app.web.route("POST", "/api/songs/sing", role=Role.OPERATOR, summary="Sing.")(_sing)
    world.app.web.route(
        "GET", "/api/songs/follow", role=Role.OPERATOR, summary="Hear.", response=EventStream
    )(_follow)
    (tmp_path / "song.mp3").write_bytes(b"la")

    @world.app.web.route("GET", "/api/songs/file", role=Role.OPERATOR, summary="Get.", response=File)
    async def get_file(_: RouteRequest) -> File:
        return File("song.mp3", folder=tmp_path)

    world.app.web.route(
        "PUT", "/api/songs/file", role=Role.OPERATOR, summary="Put.", body=Upload(max_bytes=100)
    )(_put_file)
    world.app.web.page("/songs", title="Songs", role=Role.ADMIN)(_songs)
    async with world.app:
        yield await Place(world, Dashboard(world.app), tmp_path / "world.db").populate()


async def _sing(_: RouteRequest) -> dict[str, str]:
    return {"sung": "la"}


async def _follow(_: RouteRequest) -> EventStream:
    async def notes() -> AsyncIterator[StreamEvent]:
        yield StreamEvent("note", "la")

    return EventStream(notes())


async def _put_file(request: RouteRequest) -> dict[str, int]:
    return {"bytes": sum([len(chunk) async for chunk in request.body])}


async def _songs(_: RouteRequest) -> TextResponse:
    return TextResponse("la")


def cases(routes: tuple[Route, ...]) -> Iterator[Case]:
    yield from (Case(*each) for each in product(routes, CALLERS, (OWN, FOREIGN), (HOST, "elsewhere.example")))


async def test_every_route_by_every_role_and_origin(place: Place) -> None:
    wrong = []
    for case in cases(place.routes):
        answer = await place.ask(
            case.route.method, case.route, case.caller, origin=case.origin, host=case.host
        )
        if not case.expects(answer):
            wrong.append(f"{case}: {answer.status} {answer.body[:100]!r}")
    assert wrong == []


async def test_a_handshake_is_accepted_for_streams_only(place: Place) -> None:
    wrong = []
    for case in cases(place.routes):
        if not case.route.writes:
            answer = await place.shake(case.route, case.caller, origin=case.origin, host=case.host)
            refused = answer.status in (401, 403, 421)
            opened = 101 if case.route.streams else 400
            if not case.expects(answer) or not (refused or answer.status == opened):
                wrong.append(f"{case}: {answer.status} {answer.body[:100]!r}")
    assert wrong == []
    assert {route.path for route in place.routes if route.streams} == {"/api/v1/events", "/api/songs/follow"}


async def test_a_handshake_with_a_cookie_needs_an_origin(place: Place) -> None:
    place.callers["session"] = await place.session("admin")
    for route in place.routes:
        if route.streams:
            answer = await place.shake(route, "session")
            assert (answer.status, answer.json["field"]) == (403, "origin"), route.path
            assert (await place.shake(route, "session", origin="null")).status == 403
            assert (await place.shake(route, "session", origin=OWN)).status == 101
            assert (await place.shake(route, "admin")).status == 101


async def test_a_handshake_to_an_unknown_path_is_refused(place: Place) -> None:
    route = Route(method="GET", path="/nowhere", role=Role.VIEWER, handler=_songs, summary="Nothing.")
    assert (await place.shake(route, "admin")).status == 404


async def test_public_routes(place: Place) -> None:
    """Health checks and the sign-in are public."""
    known = {"/healthz", "/readyz", "/sign-in", "/sign-in/{secret}"}
    assert {route.path for route in place.routes if route.role is Role.PUBLIC} == known


async def test_reading_changes_nothing(place: Place) -> None:
    before = place.contents()
    for route in place.routes:
        if not route.writes:
            for method in ("GET", "HEAD"):
                answer = await place.ask(method, route, "admin")
                assert answer.status == 200, f"{route.path}: {answer.status} {answer.body[:300]!r}"
                assert place.contents() == before, route.path


async def test_other_methods_are_refused(place: Place) -> None:
    declared: dict[str, set[str]] = {}
    for route in place.routes:
        declared.setdefault(route.path, set()).add(route.method)
    for route in place.routes:
        known = declared[route.path] | ({"HEAD"} if "GET" in declared[route.path] else set())
        for method in METHODS:
            if method not in known:
                answer = await place.ask(method, route, "admin")
                assert answer.status == 405, f"{method} {route.path}: {answer.status}"
                assert {*answer.headers["allow"].split(", ")} == known


async def test_a_write_by_cookie_needs_the_csrf_token(place: Place) -> None:
    """Browsers send the cookie with requests of any page, so a write also needs the CSRF token."""
    place.callers["session"] = await place.session("admin")
    writes = [route for route in place.routes if route.writes and route.role is not Role.PUBLIC]
    for route in sorted(writes, key=lambda route: route.path == "/sign-out"):
        answer = await place.ask(route.method, route, "session")
        assert (answer.status, answer.json["field"]) == (403, "csrf"), route.path
        meant = csrf_token(place.callers["session"]["cookie"].partition("=")[2])
        answer = await place.ask(route.method, route, "session", **{"x-csrf": meant})
        assert answer.status not in (401, 403, 500), route.path


async def test_a_page_redirects_to_the_sign_in_and_back(place: Place) -> None:
    for route in place.routes:
        if not route.writes and route.role is not Role.PUBLIC:
            answer = await place.ask("GET", route, "nobody", accept="text/html")
            is_page = not route.path.startswith("/api/")
            assert answer.status == (303 if is_page else 401), route.path
            assert answer.headers.get("location", "").startswith("/sign-in?next=/") is is_page


async def test_static_files_are_public_on_allowed_hosts(place: Place) -> None:
    for path in ("/static/css/base.css", "/static/vendor/htmx.min.js", "/nowhere", "/static/nothing.css"):
        found = await place.ask_for(path)
        assert found.status == (404 if "noth" in path or "nowhere" in path else 200)
        assert found.headers["content-security-policy"].startswith("default-src 'self';")
        assert (await place.ask_for(path, host="elsewhere.example")).status == 421


@pytest.mark.parametrize("role", [None, "", "viewer", "public", 0])
def test_a_route_needs_a_role(role: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^role: must be a Role of GET /songs"):
        Route(method="GET", path="/songs", role=role, handler=_songs, summary="Songs.")
    with pytest.raises(TypeError, match="role"):
        Route(method="GET", path="/songs", handler=_songs, summary="Songs.")  # type: ignore[call-arg]
