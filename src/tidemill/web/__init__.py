"""The HTTP API and the dashboard.

`asgi` builds an ASGI application from the API routes (`api`), the pages (`pages`) and the routes that an
application adds (`app.web`). `live_views` keeps open pages up to date."""

from __future__ import annotations

from tidemill.http_routes.files import File, ObjectStore, Upload, UploadStream
from tidemill.http_routes.problems import HTTPError, Problem, retry_after_header
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
    "retry_after_header",
]
