"""Route definitions: roles and users, the response types a handler may return, and Route itself."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import msgspec

from tidemill.errors import ConfigurationError
from tidemill.http_routes.files import Upload
from tidemill.http_routes.problems import ProblemFormatter


class Role(StrEnum):
    """Roles in rising order: each role may do everything that the roles before it may.

    `PUBLIC` needs no sign-in: health checks, the sign-in page and its style sheet."""

    PUBLIC = "public"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def may(self, needed: Role) -> bool:
        return _ROLE_ORDER.index(self) >= _ROLE_ORDER.index(needed)


_ROLE_ORDER = tuple(Role)


class User(msgspec.Struct, frozen=True):
    """The authenticated user of a request. The audit log and overrides record `name`.

    `token` is the id of the user's token; None if an application's own hook authenticated the user."""

    name: str
    role: Role
    token: str | None = None


ANONYMOUS = User("nobody", Role.PUBLIC)


_LINE_ENDS = re.compile(r"[\r\n\0]")


@dataclass(frozen=True)
class PageResponse:
    """A page that a handler returns: a template and its context. `live` names blocks of the template. While a
    viewer has the page open, the server calls the handler again and sends the blocks that changed."""

    template: str
    context: Mapping[str, Any] = field(default_factory=dict)
    live: tuple[str, ...] = ()
    status: int = 200


@dataclass(frozen=True)
class Redirect:
    """A redirect that a handler returns after an action. `path` is a path of the dashboard. The next page
    shows the text `notice` once."""

    path: str
    notice: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TextResponse:
    body: str | bytes
    media_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamEvent:
    """One event of a stream. A client that reconnects sends the `id` of the last event it received. Only
    `data` may contain line breaks."""

    name: str
    data: str
    id: str | None = None

    def __post_init__(self) -> None:
        for field_name, value in (("name", self.name), ("id", self.id or "")):
            if _LINE_ENDS.search(value):
                raise ConfigurationError(
                    f"{field_name}: of an Event must be one line, is {value[:50]!r}; lines are for data"
                )


@dataclass(frozen=True)
class EventStream:
    """A stream of events that a handler returns. The server sends the events until the stream ends or the
    viewer disconnects.

    A route with `response=EventStream` serves them as server-sent events and over WebSocket."""

    stream: AsyncIterator[StreamEvent]


Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[[Any], Awaitable[Any]]
"""An async function of one `tidemill.web.RouteRequest`."""

_PATH_PATTERN = re.compile(r"(/([\w.-]+|\{[a-z_]+(:path)?\}))+|/")


def _no_audit_details(_answer: Any) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Route:
    """One method and path, with its handler.

    - `role`: the lowest role that may use the route
    - `body`: the type of the request body: JSON in the API, a form on pages; or an `Upload`, for a file
    - `query`: the struct of the query parameters
    - `response`: the type of the response; `EventStream` for a stream, `File` for a file
    - `status`: the HTTP status of a successful response
    - `audited`: True if the audit log records a write, or a function that takes the body and returns True or
      False. Use False for a write that changes nothing (a plan) or writes its own audit entry (a sign-in)
    - `headers`: the request headers that the handler reads, each with its description
    - `audit_details`: a function that takes the response and returns values for the audit log, never a secret
    - `problem`: a function that turns a problem document into the error format of the application's own
      API"""

    method: Method
    path: str
    role: Role
    handler: Handler
    summary: str
    body: Any = None
    query: Any = None
    response: Any = None
    status: int = 200
    audited: bool | Callable[[Any], bool] = True
    headers: Mapping[str, str] = field(default_factory=dict)
    audit_details: Callable[[Any], Mapping[str, Any]] = _no_audit_details
    problem: ProblemFormatter | None = None

    def __post_init__(self) -> None:
        if _PATH_PATTERN.fullmatch(self.path) is None:
            raise ConfigurationError(
                f"path: must be like /songs/{{song}}, is {self.path!r}; a parameter is lower-case letters"
            )
        if not isinstance(self.role, Role):
            raise ConfigurationError(
                f"role: must be a Role of {self.method} {self.path}, is {self.role!r}; there are "
                f"{', '.join(Role)}"
            )
        if isinstance(self.body, Upload) and (not self.writes or self.role is Role.PUBLIC):
            raise ConfigurationError(
                f"body: of {self.method} {self.path} must not be an Upload; give it POST or PUT, and a role "
                "above public, because large bodies are not read for strangers"
            )

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(re.findall(r"\{([a-z_]+)(?::path)?\}", self.path))

    def is_audited(self, body: Any) -> bool:
        """True if the audit log records a request with this body. Reads are never recorded."""
        return self.writes and (self.audited(body) if callable(self.audited) else self.audited)

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @property
    def streams(self) -> bool:
        """True if the route returns an event stream, which clients may also follow over WebSocket."""
        return self.method == "GET" and self.response is EventStream
