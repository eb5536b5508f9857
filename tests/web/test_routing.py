"""Routes, pages and settings that an application adds work like Tidemill's own."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.docs.page_runner import write_files
from tests.docs.pages import page
from tests.web.asgi_client import ClientResponse, send_handshake, send_request
from tidemill import Tidemill
from tidemill.errors import ConfigurationError
from tidemill.http_routes.registry import RESERVED_PATHS
from tidemill.web import Role, RouteRequest, TextResponse, User, dashboard

PAGE = page("how-to/extend-the-dashboard.md")


class Visitor:
    """A user that the application's hook authenticates."""

    def __init__(self, app: Tidemill, role: Role) -> None:
        async def auth(_: object) -> User:
            return User("ann", role)

        self._served = dashboard(app, auth=auth)

    async def get(self, path: str, language: str = "en") -> ClientResponse:
        headers = {"accept": "text/html", "accept-language": language}
        return await send_request(self._served, "GET", path, headers=headers)

    async def shakes(self, path: str) -> bool:
        answer = await send_handshake(self._served, path, headers={"authorization": "Bearer vouched"})
        return answer.status == 101

    async def post(self, path: str, body: bytes) -> ClientResponse:
        sent = {"content-type": "application/json", "authorization": "Bearer vouched"}
        return await send_request(self._served, "POST", path, headers=sent, body=body)


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tidemill]:
    """The application of the documentation page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_files(PAGE, tmp_path)
    template = re.search(r"```html\n<!-- (pages/\S+) -->\n(.*?)```", PAGE, re.DOTALL)
    assert template
    (tmp_path / "pages").mkdir()
    (tmp_path / template[1]).write_text(template[2])
    found: Tidemill = importlib.import_module("songs").app
    async with found:
        yield found
    del sys.modules["songs"]


async def test_a_page_has_the_layout_and_a_navigation_link(app: Tidemill) -> None:
    shown = await Visitor(app, Role.VIEWER).get("/songs")
    assert shown.status == 200, shown.text
    assert "0 described, 0 to go, 10 at once." in shown.text
    assert re.search(r'href="/songs" aria-current="page">.*Songs', shown.text)
    assert '<form method="post" action="/songs/start"' not in shown.text
    assert "/songs/start" in (await Visitor(app, Role.OPERATOR).get("/songs")).text


async def test_a_route_checks_its_body_and_role(app: Tidemill) -> None:
    operator = Visitor(app, Role.OPERATOR)
    started = await operator.post("/api/songs/start", b'{"songs": ["one", "\xe4\xba\x8c"]}')
    assert (started.status, started.json) == (200, {"jobs": 2})
    assert (await app.inspect.queue("songs")).size == 2
    for body, field in (
        (b'{"songs": []}', "songs"),
        (b'{"songs": [1]}', "songs[0]"),
        (b'{"song": []}', "song"),
    ):
        refused = await operator.post("/api/songs/start", body)
        assert (refused.status, refused.json.get("field")) == (422, field)
    assert (await Visitor(app, Role.VIEWER).post("/api/songs/start", b'{"songs": ["x"]}')).status == 403
    assert (await app.inspect.queue("songs")).size == 2


async def test_a_route_may_format_its_errors(app: Tidemill) -> None:
    operator = Visitor(app, Role.OPERATOR)
    missing = await operator.get("/api/songs/%E9%A3%8E")
    assert (missing.status, missing.json["status"]) == (404, False)
    assert "there is no song '风'" in missing.json["message"]
    often = await operator.get("/api/songs/popular")
    assert (often.status, often.headers["retry-after"]) == (429, "60")
    await operator.post("/api/songs/start", '{"songs": ["风"]}'.encode())
    assert (await operator.get("/api/songs/%E9%A3%8E")).json["status"] is True


async def test_a_stream_works_over_sse_and_websocket(app: Tidemill) -> None:
    visitor = Visitor(app, Role.VIEWER)
    assert (await visitor.get("/api/songs/follow")).streams
    assert await visitor.shakes("/api/songs/follow?last_event_id=7")


async def test_a_setting_is_shown_and_changed(app: Tidemill) -> None:
    admin = Visitor(app, Role.ADMIN)
    assert "batch_size" in (await admin.get("/settings")).text
    own = app.web.settings["batch_size"]
    await own.write(own.value_of("20"))
    assert "20 at once" in (await admin.get("/songs")).text
    for wrong in ("0", "many", 1.5):
        with pytest.raises(ConfigurationError, match="batch_size: "):
            own.value_of(wrong)


async def test_metrics_and_alerts_of_the_application_are_included(app: Tidemill) -> None:
    admin = Visitor(app, Role.ADMIN)
    assert "\nsongs_described 0\n" in (await admin.get("/metrics")).text
    await admin.post("/api/songs/start", b'{"songs": ["one"]}')
    assert "songs stand still" in app.alerts.rules
    assert "POST" in (await admin.get("/api/v1/openapi.json")).text.upper()
    assert "/api/songs/start" in (await admin.get("/api/v1/openapi.json")).json["paths"]


async def test_the_title_of_a_page_is_translated() -> None:
    app = Tidemill("memory://")
    app.web.page("/songs", title={"en": "Songs", "zh": "歌曲"})(_nothing)
    app.web.page("/lieder", title={"de": "Lieder"})(_nothing)
    async with app:
        visitor = Visitor(app, Role.VIEWER)
        for language, title in (("en", "Songs"), ("zh-CN", "歌曲"), ("fr", "Songs")):
            shown = (await visitor.get("/queues", language)).text
            assert re.search(rf'href="/songs">.*{title}</a>', shown), language
            assert re.search(r'href="/lieder">.*Lieder</a>', shown), language
    assert [route.summary for route in app.web.routes] == ["Songs", "Lieder"]
    with pytest.raises(ConfigurationError, match="title: page '/none' has none"):
        app.web.page("/none", title={})(_nothing)


@pytest.mark.parametrize("path", ["/", *RESERVED_PATHS, "/api/v1/songs", "songs", "/songs//x", "/{Song}"])
def test_a_reserved_or_invalid_path_is_refused(path: str) -> None:
    app = Tidemill("memory://")
    with pytest.raises(ConfigurationError, match="path: "):
        app.web.page(path, title="Songs")(_nothing)


def test_a_duplicate_or_a_route_without_a_role_is_refused() -> None:
    app = Tidemill("memory://")
    app.web.page("/songs", title="Songs")(_nothing)
    with pytest.raises(ConfigurationError, match="added twice"):
        app.web.page("/songs", title="Songs")(_nothing)
    with pytest.raises(ConfigurationError, match="role: must be a Role"):
        app.web.route("GET", "/api/x", role="admin", summary="x")(_nothing)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="no folder"):
        app.web.templates("nowhere")


def test_a_built_in_page_cannot_be_replaced() -> None:
    app = Tidemill("memory://")
    app.web.page("/queues", title="Mine")(_nothing)
    with pytest.raises(ConfigurationError, match="GET /queues exists twice"):
        dashboard(app)


async def _nothing(_: RouteRequest) -> TextResponse:
    return TextResponse("")
