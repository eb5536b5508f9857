"""Builds the OpenAPI 3.1 document of all routes and serves it."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from inspect import cleandoc
from typing import Any, Union, get_args, get_origin

import msgspec

from tidemill.http_routes.files import File, Upload
from tidemill.http_routes.problems import Problem, reason_phrase
from tidemill.http_routes.routes import EventStream, Role, Route
from tidemill.web.request import RouteRequest
from tidemill.web.request_parser import accepts_empty_body

JSON_TYPE, PROBLEM_TYPE = "application/json", "application/problem+json"
_SCHEMA_REFERENCE = "#/components/schemas/{name}"

API_DESCRIPTION = """Read and manage queues, jobs, flows, schedules and pools.

Times are Unix times in seconds, durations are seconds. Unknown fields and parameters are refused. Errors are
problem documents (RFC 9457): `detail` has the error and its remedy, `field` the part of the request that is
wrong. Write a slash inside a name as %2F in a path."""

ROLES_DESCRIPTION = """`x-role` is the role that a token needs. A viewer reads. An operator does what can
be undone: enqueue, retry, cancel, pause, close. An admin does the rest: overrides, deleting, tokens and
webhooks."""

_WEBSOCKET_DESCRIPTION = """Also over WebSocket at the same path: each event is one text frame, a JSON
object with `event`, `id` and `data`. The query parameter `last_event_id` may have the id of the last
received event."""

_COMMON_STATUSES = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.MISDIRECTED_REQUEST,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_BODY_STATUSES = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
_STATUS_DESCRIPTIONS = {
    HTTPStatus.BAD_REQUEST: "The request cannot be parsed.",
    HTTPStatus.UNAUTHORIZED: "The token or session is missing or invalid.",
    HTTPStatus.FORBIDDEN: "The role is not sufficient, or the request comes from another site.",
    HTTPStatus.NOT_FOUND: "Not found.",
    HTTPStatus.CONFLICT: "The state does not allow it, or the confirmed number no longer matches.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body or the payload is too large.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body must be JSON, with that content type.",
    HTTPStatus.MISDIRECTED_REQUEST: "The Host header is not an allowed host.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "A parameter or a field is invalid.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many requests (`Retry-After` says how long), or a full queue.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The store cannot be reached.",
}


def openapi_document(routes: Iterable[Route], *, server: str = "/") -> dict[str, Any]:
    """Returns the OpenAPI document of all routes below `/api/`, and of `/healthz`, `/readyz` and `/metrics`.
    `server` is the base URL of the paths."""
    listed = sorted((route for route in routes if is_documented(route)), key=lambda r: (r.path, r.method))
    schemas = _OpenAPISchemas(listed)
    paths: dict[str, dict[str, Any]] = {}
    for route in listed:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidemill",
            "version": version("tidemill"),
            "description": f"{API_DESCRIPTION}\n\n{ROLES_DESCRIPTION}",
        },
        "servers": [{"url": server}],
        "tags": [{"name": tag} for tag in sorted({route_tag(route) for route in listed})],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {
                _response_name(status): _problem_response(status) for status in _STATUS_DESCRIPTIONS
            },
            "securitySchemes": _SECURITY_SCHEMES,
        },
    }


UNVERSIONED_PATHS = ("/healthz", "/readyz", "/metrics")

_SECURITY_SCHEMES = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token created by `tidemill token create`, or by an admin through the API.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "tidemill-session-8750",
        "description": "The dashboard's session cookie, named by its port. Writes also need X-CSRF.",
    },
}


def is_documented(route: Route) -> bool:
    return route.path.startswith("/api/") or route.path in UNVERSIONED_PATHS


def route_tag(route: Route) -> str:
    """Returns the tag that groups routes in the OpenAPI document. `/api/v1/queues/{queue}/pause` has the tag
    `queues`; an application's route `/api/music/start` has the tag `music`."""
    if route.path in UNVERSIONED_PATHS:
        return "server"
    parts = route.path.split("/")[2:]
    return parts[1] if parts[0] == "v1" and len(parts) > 1 else parts[0]


class _OpenAPISchemas:
    """The JSON schemas of all request and response types. Each struct is defined once in `components`; other
    schemas refer to it."""

    def __init__(self, routes: Sequence[Route]) -> None:
        named = [
            kind
            for route in routes
            for kind in (route.body, route.response)
            if kind is not None and not _is_streamed(kind)
        ]
        queries = [field.type for route in routes if route.query for field in _query_fields(route.query)]
        kinds = [*named, *map(_without_none, queries), Problem]
        schemas, components = msgspec.json.schema_components(kinds, ref_template=_SCHEMA_REFERENCE)
        self._schemas = dict(zip(map(_type_key, kinds), schemas, strict=True))
        self.components: Mapping[str, Any] = {
            name: _with_clean_description(schema) for name, schema in components.items()
        }

    def __getitem__(self, kind: Any) -> dict[str, Any]:
        return self._schemas[_type_key(kind)]


def _with_clean_description(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema with the indentation removed from its description. Before Python 3.13, a docstring
    contains the indentation of the source code."""
    return schema | {"description": cleandoc(schema["description"])} if "description" in schema else schema


def _type_key(kind: Any) -> str:
    return f"{kind!r} {getattr(kind, '__metadata__', '')}"


def _is_streamed(kind: Any) -> bool:
    """True if a body or a response is a stream of bytes or events, which has no JSON schema."""
    return kind in (EventStream, File) or isinstance(kind, Upload)


def _operation(route: Route, schemas: _OpenAPISchemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [route_tag(route)],
        "x-role": route.role.value,
        "parameters": [
            *_path_parameters(route),
            *_query_parameters(route, schemas),
            *_header_parameters(route),
        ],
        "responses": _responses(route, schemas),
    }
    if route.streams:
        operation["description"] = _WEBSOCKET_DESCRIPTION
    if route.role is Role.PUBLIC:
        operation["security"] = []
    if isinstance(route.body, Upload):
        kinds = route.body.media_types or ("*/*",)
        operation["requestBody"] = {"required": True, "content": dict.fromkeys(kinds, _BINARY_SCHEMA)}
    elif route.body is not None:
        required = route.method != "POST" or not accepts_empty_body(route.body)
        operation["requestBody"] = {
            "required": required,
            "content": {JSON_TYPE: {"schema": schemas[route.body]}},
        }
    return operation


_BINARY_SCHEMA = {"schema": {"type": "string", "format": "binary"}}


def _operation_id(route: Route) -> str:
    words = route.path.removeprefix("/api/v1").replace("{", "").replace("}", "").replace("-", "_")
    return "_".join([route.method.lower(), *filter(None, words.split("/"))])


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    text = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": text} for name in route.parameters]


def _query_parameters(route: Route, schemas: _OpenAPISchemas) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    return [
        {
            "name": field.encode_name,
            "in": "query",
            "required": field.required,
            "schema": schemas[_without_none(field.type)] | _field_default(field),
        }
        for field in _query_fields(route.query)
    ]


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    text = {"type": "string"}
    return [
        {"name": name, "in": "header", "required": False, "schema": text, "description": summary}
        for name, summary in route.headers.items()
    ]


def _field_default(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    if field.default is msgspec.NODEFAULT or field.default is None:
        return {}
    return {"default": msgspec.to_builtins(field.default)}


def _query_fields(query: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(query)


def _without_none(kind: Any) -> Any:
    """Returns the type without None. A query parameter can be missing, but it is never null."""
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    parts = [part for part in get_args(kind) if part is not type(None)]
    return Union[tuple(parts)]  # noqa: UP007 - the parts are known at run time only


def _responses(route: Route, schemas: _OpenAPISchemas) -> dict[str, Any]:
    responses: dict[str, Any] = {str(int(route.status)): _success_response(route, schemas)}
    if route.response is File:
        responses |= {str(int(status)): {"description": text} for status, text in _FILE_STATUSES.items()}
    if route.role is not Role.PUBLIC:
        responses |= {
            str(int(status)): _failure_response(route, status) for status in _failure_statuses(route)
        }
    return responses | {"default": _failure_response(route, None)}


_FILE_STATUSES = {
    HTTPStatus.PARTIAL_CONTENT: "The bytes that `Range` requests.",
    HTTPStatus.NOT_MODIFIED: "The client has the current version.",
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE: "The file has no byte of the requested range.",
}


def _failure_response(route: Route, status: HTTPStatus | None) -> dict[str, Any]:
    if route.problem is not None:
        return {"description": _status_description(status), "content": {JSON_TYPE: {"schema": {}}}}
    return _problem_response(None) if status is None else _response_reference(status)


def _status_description(status: HTTPStatus | None) -> str:
    return "Any other error." if status is None else _STATUS_DESCRIPTIONS[status]


def _failure_statuses(route: Route) -> list[HTTPStatus]:
    statuses = list(_COMMON_STATUSES)
    if route.parameters or route.query is not None or route.response is File:
        statuses.append(HTTPStatus.NOT_FOUND)
    if route.query is not None or route.body is not None:
        statuses.append(HTTPStatus.UNPROCESSABLE_ENTITY)
    if route.writes:
        statuses.append(HTTPStatus.CONFLICT)
    return sorted([*statuses, *(_BODY_STATUSES if route.body is not None else ())])


def _success_response(route: Route, schemas: _OpenAPISchemas) -> dict[str, Any]:
    status = HTTPStatus(route.status)
    if route.response is EventStream:
        return {
            "description": reason_phrase(status),
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    if route.response is File:
        return {"description": reason_phrase(status), "content": {"*/*": _BINARY_SCHEMA}}
    if route.response is not None:
        return {
            "description": reason_phrase(status),
            "content": {JSON_TYPE: {"schema": schemas[route.response]}},
        }
    if status is HTTPStatus.NO_CONTENT:
        return {"description": reason_phrase(status)}
    return {"description": reason_phrase(status), "content": {"text/plain": _TEXT_SCHEMA}}


_TEXT_SCHEMA = {"schema": {"type": "string"}}


def _response_reference(status: HTTPStatus) -> dict[str, Any]:
    return {"$ref": f"#/components/responses/{_response_name(status)}"}


def _response_name(status: HTTPStatus) -> str:
    """Returns the name of an error response, such as `CONTENT_TOO_LARGE` for 413. The name is the same in all
    Python versions."""
    return reason_phrase(status).upper().replace(" ", "_")


def _problem_response(status: HTTPStatus | None) -> dict[str, Any]:
    reference = {"$ref": _SCHEMA_REFERENCE.format(name="Problem")}
    return {"description": _status_description(status), "content": {PROBLEM_TYPE: {"schema": reference}}}


async def get_openapi(request: RouteRequest) -> dict[str, Any]:
    from tidemill.web.asgi import api_routes  # imported late, because asgi imports this module

    return openapi_document((*api_routes(), *request.app.web.routes), server=request.prefix or "/")


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/openapi.json",
        role=Role.VIEWER,
        handler=get_openapi,
        summary="This API as an OpenAPI 3.1 document.",
        response=dict[str, Any],
    ),
)
