"""Every route of the application by every role, origin and host (I29). The token of a feed is a credential in
the path: a wrong one is 404."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.podcasts.podcast_texts import QUEUES
from tests.apps.podcasts.service_kit import PUBLIC_URL, Studio, studio_in
from tests.web.asgi_client import ClientResponse, send_request
from tests.web.test_access_matrix import CALLERS, FOREIGN, OWN, Case, cases
from tidemill.http_routes.routes import Role, Route

CAPABILITY = "/podcasts/f/{secret}/{file}"


async def ask(studio: Studio, case: Case, token: str) -> ClientResponse:
    values = {"podcast": "1", "feed": "1", "secret": token, "file": "feed.xml"}
    path = case.route.path.format(**values)
    api = path.startswith("/api/")
    kind = "application/json" if api else "application/x-www-form-urlencoded"
    headers = {"content-type": kind, "origin": case.origin, "host": case.host}
    if CALLERS[case.caller] is not Role.PUBLIC:
        headers["authorization"] = f"Bearer {await studio.token(case.caller)}"
    elif case.caller == "wrong":
        headers["authorization"] = "Bearer tm_1_1"
    body = b"{}" if api else b""
    return await send_request(studio.served, case.route.method, path, headers=headers, body=body)


@pytest.mark.parametrize("is_right", [True, False], ids=["right token", "wrong token"])
async def test_every_route_by_every_role_and_origin(
    is_right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_WEB_RATE", "1000000")
    monkeypatch.setenv("TIDEMILL_WEB_PUBLIC_URL", PUBLIC_URL)
    async with studio_in(tmp_path) as studio:
        await studio.podcasts.episodes.create(QUEUES.new())
        _, url = await studio.feeds.create("phone")
        token = url.split("/")[-2] if is_right else "of-no-feed"
        routes = tuple(
            sorted(
                studio.app.web.routes, key=lambda route: "delete" in f"{route.method} {route.path}".lower()
            )
        )
        wrong = []
        for case in cases(routes):
            answer = await ask(studio, case, token)
            expected = case.expects(answer)
            if case.route.path == CAPABILITY and (case.origin, case.host) == (OWN, "127.0.0.1:8750"):
                expected = answer.status == (200 if is_right else 404)
            if not expected:
                wrong.append(f"{case}: {answer.status} {answer.body[:100]!r}")
        assert wrong == []


async def test_only_the_feed_is_public(tmp_path: Path) -> None:
    async with studio_in(tmp_path) as studio:
        public = [route.path for route in studio.app.web.routes if route.role is Role.PUBLIC]
        assert public == [CAPABILITY]


def test_the_matrix_can_fail() -> None:
    async def handler(_: object) -> None: ...

    route = Route(method="GET", path=CAPABILITY, role=Role.VIEWER, handler=handler, summary="Feed.")
    case = Case(route, "nobody", OWN, "127.0.0.1:8750")
    assert not case.expects(ClientResponse(200, {}, b""))
    assert not Case(route, "admin", FOREIGN, "127.0.0.1:8750").expects(ClientResponse(200, {}, b""))
