"""Parses a request's path, query, form and JSON body into the types that its route declares."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from msgspec.inspect import type_info
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidemill.core.validation import format_bytes, is_storable
from tidemill.http_routes.files import Upload
from tidemill.http_routes.problems import HTTPError, problem_from_error
from tidemill.http_routes.routes import Role, Route
from tidemill.tasks.annotations import find_choices
from tidemill.web.uploads import open_upload

MAX_BODY_BYTES = 10 * 1024 * 1024
MAX_PUBLIC_BODY_BYTES = 16 * 1024
"""Body limit of requests without a sign-in."""
MAX_NESTING = 500
"""Nesting limit of a JSON body. Python versions differ in their decoding limit, and pages recurse into
payloads."""
_STRING_PATTERN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""Also matches an unterminated string: a search for its end from every quote would take quadratic time."""
_BRACKET_PATTERN = re.compile(rb"[][{}]")
_BODY_SCOPE_KEY = "tidemill.sent"
FORM_TYPE, JSON_TYPE = "application/x-www-form-urlencoded", "application/json"


def read_query(route: Route, request: Request) -> Any:
    if route.query is None:
        return None
    return _convert_pairs(request.query_params.multi_items(), route.query, "query")


async def read_body(route: Route, request: Request) -> Any:
    if route.body is None:
        return None
    if isinstance(route.body, Upload):
        return open_upload(route.body, request, content_type(request))
    max_bytes = MAX_PUBLIC_BODY_BYTES if route.role is Role.PUBLIC else MAX_BODY_BYTES
    body, kind = await raw_body(request, max_bytes), content_type(request)
    if not body.strip() and route.method == "POST" and route.path.startswith("/api/"):
        return _empty_body(route)
    if kind == FORM_TYPE and not route.path.startswith("/api/"):
        return _convert_pairs(_form_pairs(body), route.body, "form")
    if kind != JSON_TYPE:
        expected = JSON_TYPE if route.path.startswith("/api/") else FORM_TYPE
        raise HTTPError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"content-type: must be {expected}, is {kind or 'missing'}",
            field="content-type",
        )
    if not body.strip():
        raise _missing_body_error()
    if _nesting_depth(body) > MAX_NESTING:
        raise HTTPError(
            HTTPStatus.BAD_REQUEST, f"the body is nested more than {MAX_NESTING} levels deep; flatten it"
        )
    try:
        return msgspec.json.decode(body, type=route.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid_request(error, "body", route.body) from None


def _nesting_depth(body: bytes) -> int:
    """Returns how deep lists and objects are nested in a JSON body. Returns 0, without counting, if the depth
    cannot exceed the limit."""
    if body.count(b"[") + body.count(b"{") <= MAX_NESTING:
        return 0
    depth = deepest = 0
    for bracket in _BRACKET_PATTERN.findall(_STRING_PATTERN.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def accepts_empty_body(body: Any) -> bool:
    """True if every field of the type `body` has a default, so that a client may send no body."""
    try:
        msgspec.convert({}, body)
    except msgspec.ValidationError:
        return False
    return True


def _empty_body(route: Route) -> Any:
    """Returns the route's body with all defaults, for a POST with an empty body. Raises HTTPError if a field
    has no default."""
    if not accepts_empty_body(route.body):
        raise _missing_body_error()
    return msgspec.convert({}, route.body)


def _missing_body_error() -> HTTPError:
    return HTTPError(HTTPStatus.BAD_REQUEST, "the body is empty; send a JSON object")


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def raw_body(request: Request, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Returns the whole body, also on a second call. Raises HTTPError if the body is larger than
    `max_bytes`."""
    if _BODY_SCOPE_KEY not in request.scope:
        request.scope[_BODY_SCOPE_KEY] = await _read_limited(request, max_bytes)
    body: bytes = request.scope[_BODY_SCOPE_KEY]
    return body


async def _read_limited(request: Request, max_bytes: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise HTTPError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body is over {format_bytes(max_bytes)}; send less at once",
            )
        parts.append(part)
    return b"".join(parts)


_LINE_END_PATTERN = re.compile("\r\n?")


def _form_pairs(body: bytes) -> list[tuple[str, str]]:
    """Returns the (name, value) pairs of a form body. Line breaks, which browsers send as CRLF, become LF."""
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=False)
        return [(name, _LINE_END_PATTERN.sub("\n", value)) for name, value in pairs]
    except (UnicodeDecodeError, ValueError) as error:
        raise _invalid_request(error, "form") from None


def _convert_pairs(pairs: list[tuple[str, str]], struct_type: Any, source: str) -> Any:
    """Returns a `struct_type` with the values of name-value pairs. An empty text counts as missing. `source`
    is "query" or "form"; an unknown name is refused in a query and ignored in a form."""
    lists = {field.encode_name for field in msgspec.structs.fields(struct_type) if _is_list(field.type)}
    known = {field.encode_name for field in msgspec.structs.fields(struct_type)}
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name not in known:
            if source == "query":
                raise HTTPError(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    f"{name[:50]}: there is no such parameter; there are {', '.join(sorted(known))}",
                    field=name[:50],
                )
            continue
        if value == "":
            continue
        if not is_storable(value):
            raise HTTPError(
                HTTPStatus.UNPROCESSABLE_ENTITY, f"{name}: must be text without NUL characters", field=name
            )
        if name in lists:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    try:
        return msgspec.convert(values, struct_type, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid_request(error, source, struct_type) from None


def _is_list(kind: Any) -> bool:
    return any(
        getattr(part, "__origin__", None) in (list, tuple) for part in (kind, *getattr(kind, "__args__", ()))
    )


_FIELD_ERROR_PATTERN = re.compile(r"Object (contains unknown|missing required) field `([^`]*)`")
_FIELD_ERROR_MESSAGES = {
    "contains unknown": "there is no such field; leave it out, or look for a typing error",
    "missing required": "must be given",
}


def _invalid_request(error: Exception, source: str, struct_type: Any = None) -> HTTPError:
    """Returns the HTTP error for a request that msgspec cannot decode. The error names the wrong field.
    `source` is the part of the request, such as "body"."""
    sentence, _, location = str(error).partition(" - at `")
    field = location.strip("`").removeprefix("$").removeprefix(".") or None
    if field_error := _FIELD_ERROR_PATTERN.fullmatch(sentence):
        field = ".".join(filter(None, (field, field_error[2])))
        sentence = _FIELD_ERROR_MESSAGES[field_error[1]]
    elif field and sentence.startswith("Invalid enum value"):
        name = field.rpartition(".")[2].partition("[")[0]
        sentence = f"{sentence}; it may be {', '.join(find_choices(type_info(struct_type), name))}"
    status = (
        HTTPStatus.UNPROCESSABLE_ENTITY
        if isinstance(error, msgspec.ValidationError)
        else HTTPStatus.BAD_REQUEST
    )
    named = (
        f"{field}: {sentence[:1].lower()}{sentence[1:]}"
        if field
        else f"the {source} cannot be read: {sentence}"
    )
    return HTTPError(status, named, field=field)


_SLASH_MARK = "\0"
"""Replaces an encoded slash inside a path part. No name may contain it (`core.validation`), and a path with
it is refused."""


class EncodedSlashMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (sent := scope.get("raw_path")):
            try:
                scope = {**scope, "path": _decode_path(sent.partition(b"?")[0])}
            except ValueError:
                return await _INVALID_PATH(scope, receive, send)
        return await self._app(scope, receive, send)


def decode_path_part(part: str) -> str:
    """Returns a path parameter with its slashes restored. `EncodedSlashMiddleware` has replaced each %2F in
    the path by a NUL character."""
    return part.replace(_SLASH_MARK, "/")


def _decode_path(raw_path: bytes) -> str:
    parts = [unquote_to_bytes(part).decode() for part in raw_path.split(b"/")]
    if any(_SLASH_MARK in part for part in parts):
        raise ValueError("NUL")
    return "/".join(part.replace("/", _SLASH_MARK) for part in parts)


_INVALID_PATH = Response(
    msgspec.json.encode(
        problem_from_error(
            HTTPError(
                HTTPStatus.BAD_REQUEST,
                "path: must be UTF-8 without NUL characters; write other characters as %XX",
                field="path",
            )
        )
    ),
    HTTPStatus.BAD_REQUEST,
    media_type="application/problem+json",
)
