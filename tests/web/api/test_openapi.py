"""The document says what is served, and the pages what the document says."""

from __future__ import annotations

import json
import runpy
from typing import Any

import pytest
from openapi_spec_validator import validate

from tests.docs.pages import DOCS, ROOT, page
from tests.web.api.support import Api
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked
from tidemill.web.openapi import document, is_listed
from tidemill.web.table import api_routes

SCRIPT = runpy.run_path(str(ROOT / "scripts/http_page.py"))
LISTED = [route for route in api_routes() if is_listed(route)]


def test_the_document_is_valid() -> None:
    validate(json.loads(SCRIPT["openapi"]()))


def test_the_kept_document_is_what_the_code_says() -> None:
    written = (DOCS / "reference/openapi.json").read_bytes()
    assert written == SCRIPT["openapi"](), "a route has changed: run make api"


def test_the_page_has_every_route_its_role_and_its_sentence() -> None:
    assert page("reference/http-api.md") == SCRIPT["page"](), "a route has changed: run make api"
    for route in LISTED:
        assert f"| `{route.method} {route.path}` | {route.role} | {route.says} |" in page(
            "reference/http-api.md"
        )


def test_every_operation_says_who_may_what_it_takes_and_what_it_answers() -> None:
    paths = document(LISTED)["paths"]
    for route in LISTED:
        said = paths[route.path][route.method.lower()]
        assert said["x-role"] == route.role
        assert said["summary"] == route.says
        assert said["summary"].endswith(".")
        assert ("requestBody" in said) == (route.takes is not None)
        assert str(int(route.status)) in said["responses"]
        assert ("security" in said) == (route.role is Role.ANYBODY)
        assert {one["name"] for one in said["parameters"] if one["in"] == "path"} == set(route.parameters)


def test_reading_is_for_viewers_and_what_cannot_be_undone_for_admins() -> None:
    """The rule of the page. Of reading, only what leads to others' secrets is for admins."""
    for route in LISTED:
        if not route.writes:
            guarded = route.path.startswith(("/api/v1/tokens", "/api/v1/webhooks", "/api/v1/audit"))
            open_ = route.path in ("/healthz", "/readyz")
            assert route.role is (Role.ADMIN if guarded else Role.ANYBODY if open_ else Role.VIEWER), (
                route.path
            )
        elif route.method in ("DELETE", "PATCH") or route.path.endswith(("/empty", "/delete")):
            assert route.role is Role.ADMIN, route.path
        elif route.audited:
            assert route.role in (Role.OPERATOR, Role.ADMIN), route.path


def test_unknown_fields_are_refused_everywhere() -> None:
    schemas = document(LISTED)["components"]["schemas"]
    for route in LISTED:
        if route.takes is not None:
            taken = getattr(route.takes, "__origin__", route.takes)
            assert schemas[taken.__name__]["additionalProperties"] is False, route.path


@pytest.mark.parametrize("url", ["memory://"])
async def test_a_server_has_it_with_the_applications_own_routes(api: Api) -> None:
    async def songs(_: Asked) -> list[str]:
        return []

    api.app.web._add(
        Route(
            method="GET",
            path="/api/music/songs",
            role=Role.VIEWER,
            handler=songs,
            says="Songs.",
            answers=list[str],
        )
    )
    served: dict[str, Any] = await api.get("/openapi.json")
    assert served["paths"]["/api/music/songs"]["get"]["tags"] == ["music"]
    assert set(served["paths"]) == {route.path for route in LISTED} | {"/api/music/songs"}


@pytest.mark.parametrize("name", ["NewJob", "NewPause", "QueueOverride", "NewSchedule"])
def test_examples_are_in_it(name: str) -> None:
    written = json.loads((DOCS / "reference/openapi.json").read_bytes())
    bodies = [
        body["schema"]
        for path in written["paths"].values()
        for said in path.values()
        for body in said.get("requestBody", {}).get("content", {}).values()
    ]
    examples = [body["examples"] for body in bodies if name in json.dumps(body) and "examples" in body]
    assert examples
