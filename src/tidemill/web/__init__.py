"""The HTTP API and the dashboard.

`asgi` builds an ASGI application from the API routes (`api`), the pages (`pages`) and the routes that an
application adds (`app.web`). It authenticates each request, parses it into the types of its route, calls the
handler and sends the response. An error becomes a problem document, or an error page in a browser.
`live_views` keeps open pages up to date."""

from __future__ import annotations

from tidemill.http_routes.files import File, ObjectStore, Upload, UploadStream
from tidemill.http_routes.problems import HTTPError, Problem
from tidemill.http_routes.routes import (
    EventStream,
    PageResponse,
    Redirect,
    Role,
    StreamEvent,
    TextResponse,
    User,
)
from tidemill.web.asgi import dashboard
from tidemill.web.request import RouteRequest

__all__ = [
    "EventStream",
    "File",
    "HTTPError",
    "ObjectStore",
    "PageResponse",
    "Problem",
    "Redirect",
    "Role",
    "RouteRequest",
    "StreamEvent",
    "TextResponse",
    "Upload",
    "UploadStream",
    "User",
    "dashboard",
]
