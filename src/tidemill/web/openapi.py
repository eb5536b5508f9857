"""The OpenAPI 3.1 document of a table of routes."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Union, get_args, get_origin

import msgspec

from tidemill.seam.answers import Events
from tidemill.seam.refusals import Problem
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.problems import phrase
from tidemill.web.reading import may_be_empty

JSON, PROBLEM = "application/json", "application/problem+json"
_REFERENCE = "#/components/schemas/{name}"

DESCRIPTION = """Look at queues, jobs, flows, schedules and pools, and steer them.

Times are Unix times in seconds, durations seconds. A field or a parameter nobody knows is refused. Whatever
goes wrong is a problem document (RFC 9457): `detail` says what, and what to do, `field` names the part of the
request it is about. In a path a slash inside a name is written %2F."""

ROLES = """`x-role` is the role a token needs: a viewer reads; an operator does what one opposite act undoes,
such as sending, retrying, cancelling, pausing and closing; an admin changes what holds or cannot be brought
back, such as overrides of settings and limits, deleting, tokens and webhooks."""

_BY_SOCKET = """By WebSocket at the same path, too: each event is one text frame, a JSON object of `event`,
`id` and `data`. The id of the last one that was seen may stand in the query as `last_event_id`."""

_ALWAYS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.MISDIRECTED_REQUEST,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_OF_BODIES = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
_WORDS = {
    HTTPStatus.BAD_REQUEST: "The request cannot be read.",
    HTTPStatus.UNAUTHORIZED: "Nobody is signed in, or the token is not known.",
    HTTPStatus.FORBIDDEN: "The role does not suffice, or the request comes from another site.",
    HTTPStatus.NOT_FOUND: "There is no such thing.",
    HTTPStatus.CONFLICT: "It is in no state for that, or what was confirmed no longer holds.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body or the payload is too large.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body must be JSON, and say so.",
    HTTPStatus.MISDIRECTED_REQUEST: "The Host is not one this server answers for.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "A parameter or a field cannot be what it is.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many requests (`Retry-After` says how long), or a full queue.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The store cannot be reached.",
}


def document(routes: Iterable[Route], *, server: str = "/") -> dict[str, Any]:
    """Of every route below `/api/`, and of those that programs ask beside."""
    listed = sorted((route for route in routes if is_listed(route)), key=lambda r: (r.path, r.method))
    schemas = _Schemas(listed)
    paths: dict[str, dict[str, Any]] = {}
    for route in listed:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidemill",
            "version": version("tidemill"),
            "description": f"{DESCRIPTION}\n\n{ROLES}",
        },
        "servers": [{"url": server}],
        "tags": [{"name": tag} for tag in sorted({tag_of(route) for route in listed})],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {status.name: _problem(status) for status in _WORDS},
            "securitySchemes": _SECURITY,
        },
    }


BESIDE = ("/healthz", "/readyz", "/metrics")

_SECURITY = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token made by `tidemill token create`, or by an admin through the API.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "tidemill-session-8750",
        "description": "The dashboard's, with its port in the name. Writes need the header X-CSRF as well.",
    },
}


def is_listed(route: Route) -> bool:
    return route.path.startswith("/api/") or route.path in BESIDE


def tag_of(route: Route) -> str:
    """The noun: `/api/v1/queues/{queue}/pause` is about queues; an application's own are about it."""
    if route.path in BESIDE:
        return "server"
    parts = route.path.split("/")[2:]
    return parts[1] if parts[0] == "v1" and len(parts) > 1 else parts[0]


class _Schemas:
    """Of all types that routes take and answer, each once, by reference."""

    def __init__(self, routes: Sequence[Route]) -> None:
        named = [kind for route in routes for kind in (route.takes, _data(route.answers)) if kind is not None]
        queries = [field.type for route in routes if route.query for field in _fields(route.query)]
        kinds = [*named, *map(_without_none, queries), Problem]
        found, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
        self._of = dict(zip(map(_key, kinds), found, strict=True))
        self.components: Mapping[str, Any] = components

    def __getitem__(self, kind: Any) -> dict[str, Any]:
        return self._of[_key(kind)]


def _key(kind: Any) -> str:
    return f"{kind!r} {getattr(kind, '__metadata__', '')}"


def _data(answers: Any) -> Any:
    return None if answers is Events else answers


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    said: dict[str, Any] = {
        "operationId": _name(route),
        "summary": route.says,
        "tags": [tag_of(route)],
        "x-role": route.role.value,
        "parameters": [*_of_path(route), *_of_query(route, schemas), *_of_headers(route)],
        "responses": _responses(route, schemas),
    }
    if route.streams:
        said["description"] = _BY_SOCKET
    if route.role is Role.ANYBODY:
        said["security"] = []
    if route.takes is not None:
        required = route.method != "POST" or not may_be_empty(route.takes)
        said["requestBody"] = {"required": required, "content": {JSON: {"schema": schemas[route.takes]}}}
    return said


def _name(route: Route) -> str:
    words = route.path.removeprefix("/api/v1").replace("{", "").replace("}", "").replace("-", "_")
    return "_".join([route.method.lower(), *filter(None, words.split("/"))])


def _of_path(route: Route) -> list[dict[str, Any]]:
    text = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": text} for name in route.parameters]


def _of_query(route: Route, schemas: _Schemas) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    return [
        {
            "name": field.encode_name,
            "in": "query",
            "required": field.required,
            "schema": schemas[_without_none(field.type)] | _default(field),
        }
        for field in _fields(route.query)
    ]


def _of_headers(route: Route) -> list[dict[str, Any]]:
    text = {"type": "string"}
    return [
        {"name": name, "in": "header", "required": False, "schema": text, "description": says}
        for name, says in route.headers.items()
    ]


def _default(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    if field.default is msgspec.NODEFAULT or field.default is None:
        return {}
    return {"default": msgspec.to_builtins(field.default)}


def _fields(query: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(query)


def _without_none(kind: Any) -> Any:
    """A parameter is left out, and never null."""
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    left = [part for part in get_args(kind) if part is not type(None)]
    return Union[tuple(left)]  # noqa: UP007 - of parts that are known when it runs


def _responses(route: Route, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {str(int(route.status)): _success(route, schemas)}
    if route.role is not Role.ANYBODY:
        found |= {str(int(status)): _told(route, status) for status in _problems(route)}
    return found | {"default": _told(route, None)}


def _told(route: Route, status: HTTPStatus | None) -> dict[str, Any]:
    if route.problem is not None:
        return {"description": _words(status), "content": {JSON: {"schema": {}}}}
    return _problem(None) if status is None else _by_name(status)


def _words(status: HTTPStatus | None) -> str:
    return "Anything else that went wrong." if status is None else _WORDS[status]


def _problems(route: Route) -> list[HTTPStatus]:
    some = list(_ALWAYS)
    if route.parameters or route.query is not None:
        some.append(HTTPStatus.NOT_FOUND)
    if route.query is not None or route.takes is not None:
        some.append(HTTPStatus.UNPROCESSABLE_ENTITY)
    if route.writes:
        some.append(HTTPStatus.CONFLICT)
    return sorted([*some, *(_OF_BODIES if route.takes is not None else ())])


def _success(route: Route, schemas: _Schemas) -> dict[str, Any]:
    status = HTTPStatus(route.status)
    if route.answers is Events:
        return {
            "description": phrase(status),
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    if route.answers is not None:
        return {"description": phrase(status), "content": {JSON: {"schema": schemas[route.answers]}}}
    if status is HTTPStatus.NO_CONTENT:
        return {"description": phrase(status)}
    return {"description": phrase(status), "content": {"text/plain": _TEXT}}


_TEXT = {"schema": {"type": "string"}}


def _by_name(status: HTTPStatus) -> dict[str, Any]:
    return {"$ref": f"#/components/responses/{status.name}"}


def _problem(status: HTTPStatus | None) -> dict[str, Any]:
    reference = {"$ref": _REFERENCE.format(name="Problem")}
    return {"description": _words(status), "content": {PROBLEM: {"schema": reference}}}
