"""The OpenAPI document matches the routes, and the reference page matches the document."""

from __future__ import annotations

import json
import runpy
from typing import Any

import pytest
from openapi_spec_validator import validate

from tests.docs.pages import DOCS, ROOT, page
from tests.web.api.api_client import ApiClient
from tidemill.http_routes.routes import Role, Route
from tidemill.web.api.openapi import is_documented, openapi_document
from tidemill.web.asgi import api_routes
from tidemill.web.request import RouteRequest

SCRIPT = runpy.run_path(str(ROOT / "scripts/http_page.py"))
LISTED = [route for route in api_routes() if is_documented(route)]


def test_the_document_is_valid() -> None:
    validate(json.loads(SCRIPT["openapi"]()))


def test_the_stored_document_matches_the_code() -> None:
    written = (DOCS / "reference/openapi.json").read_bytes()
    assert written == SCRIPT["openapi"](), "a route has changed: run make api"


def test_the_page_has_every_route_with_role_and_summary() -> None:
    assert page("reference/http-api.md") == SCRIPT["page"](), "a route has changed: run make api"
    for route in LISTED:
        assert f"| `{route.method} {route.path}` | {route.role} | {route.summary} |" in page(
            "reference/http-api.md"
        )


def test_every_operation_has_role_body_and_response() -> None:
    paths = openapi_document(LISTED)["paths"]
    for route in LISTED:
        operation = paths[route.path][route.method.lower()]
        assert operation["x-role"] == route.role
        assert operation["summary"] == route.summary
        assert operation["summary"].endswith(".")
        assert ("requestBody" in operation) == (route.body is not None)
        assert str(int(route.status)) in operation["responses"]
        assert ("security" in operation) == (route.role is Role.PUBLIC)
        assert {one["name"] for one in operation["parameters"] if one["in"] == "path"} == set(
            route.parameters
        )


def test_viewers_read_and_admins_delete() -> None:
    """Viewers may read everything except routes that could reveal secrets of others."""
    for route in LISTED:
        if not route.writes:
            guarded = route.path.startswith(("/api/v1/tokens", "/api/v1/webhooks", "/api/v1/audit"))
            open_ = route.path in ("/healthz", "/readyz")
            assert route.role is (Role.ADMIN if guarded else Role.PUBLIC if open_ else Role.VIEWER), (
                route.path
            )
        elif route.method in ("DELETE", "PATCH") or route.path.endswith(("/empty", "/delete")):
            assert route.role is Role.ADMIN, route.path
        elif route.audited:
            assert route.role in (Role.OPERATOR, Role.ADMIN), route.path


def test_unknown_fields_are_refused_everywhere() -> None:
    schemas = openapi_document(LISTED)["components"]["schemas"]
    for route in LISTED:
        if route.body is not None:
            taken = getattr(route.body, "__origin__", route.body)
            assert schemas[taken.__name__]["additionalProperties"] is False, route.path


@pytest.mark.parametrize("url", ["memory://"])
async def test_the_served_document_has_application_routes(api: ApiClient) -> None:
    async def songs(_: RouteRequest) -> list[str]:
        return []

    api.app.web._add(
        Route(
            method="GET",
            path="/api/music/songs",
            role=Role.VIEWER,
            handler=songs,
            summary="Songs.",
            response=list[str],
        )
    )
    served: dict[str, Any] = await api.get("/openapi.json")
    assert served["paths"]["/api/music/songs"]["get"]["tags"] == ["music"]
    assert set(served["paths"]) == {route.path for route in LISTED} | {"/api/music/songs"}


@pytest.mark.parametrize("name", ["EnqueueBody", "PauseBody", "QueueSettingsBody", "NewScheduleBody"])
def test_the_document_has_examples(name: str) -> None:
    written = json.loads((DOCS / "reference/openapi.json").read_bytes())
    bodies = [
        body["schema"]
        for path in written["paths"].values()
        for operation in path.values()
        for body in operation.get("requestBody", {}).get("content", {}).values()
    ]
    examples = [body["examples"] for body in bodies if name in json.dumps(body) and "examples" in body]
    assert examples
