"""Writes docs/reference/openapi.json and the routes on docs/reference/http-api.md from the table of routes.

Run it after changing a route; tests/web/api/test_openapi.py fails until then."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import msgspec

from tidemill.http_routes.routes import Route
from tidemill.web.api.openapi import is_documented, openapi_document, route_tag
from tidemill.web.asgi import api_routes

REFERENCE = Path(__file__).parents[1] / "docs/reference"

ROUTES = "<!-- The rest is written by scripts/http_page.py. -->"


def page() -> str:
    """Returns the page: the hand-written part unchanged, and the generated routes."""
    written = (REFERENCE / "http-api.md").read_text(encoding="utf-8").partition(ROUTES)[0]
    routes = sorted(
        (route for route in api_routes() if is_documented(route)), key=lambda r: (route_tag(r), r.path)
    )
    return "\n".join([f"{written}{ROUTES}\n", *_sections(routes)])


def _sections(routes: list[Route]) -> Iterator[str]:
    for tag, of_tag in groupby(routes, key=route_tag):
        yield f"## {tag.replace('-', ' ').capitalize()}\n"
        yield "| route | role | what it does |\n|---|---|---|"
        for route in of_tag:
            yield f"| `{route.method} {route.path}` | {route.role} | {route.summary} |"
        yield ""


def openapi() -> bytes:
    return msgspec.json.format(msgspec.json.encode(openapi_document(api_routes())), indent=1) + b"\n"


if __name__ == "__main__":
    (REFERENCE / "openapi.json").write_bytes(openapi())
    (REFERENCE / "http-api.md").write_text(page(), encoding="utf-8")
