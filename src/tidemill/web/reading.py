"""A request's query and body, as the types its route names."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec.inspect import type_info
from starlette.requests import Request

from tidemill.core.names import is_storable
from tidemill.core.numbers import format_bytes
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.tasks.shapes import choices

MOST_BYTES = 10 * 1024 * 1024
OF_ANYBODY = 16 * 1024
"""As much is read of what somebody sends who has not signed in."""
MAX_NESTING = 500
"""Levels of a JSON body. Python versions differ in how deep they can decode, and pages walk a payload."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""Also one that never ends: looking for its end from each of its quotes would take quadratic time."""
_BRACKET = re.compile(rb"[][{}]")
_SENT = "tidemill.sent"
FORM, JSON = "application/x-www-form-urlencoded", "application/json"


def read_query(route: Route, request: Request) -> Any:
    if route.query is None:
        return None
    return _convert(request.query_params.multi_items(), route.query, "query")


async def read_body(route: Route, request: Request) -> Any:
    if route.takes is None:
        return None
    most = OF_ANYBODY if route.role is Role.ANYBODY else MOST_BYTES
    body, kind = await sent(request, most), kind_of(request)
    if not body.strip() and route.method == "POST" and route.path.startswith("/api/"):
        return _empty(route)
    if kind == FORM and not route.path.startswith("/api/"):
        return _convert(_pairs(body), route.takes, "form")
    if kind != JSON:
        wanted = JSON if route.path.startswith("/api/") else FORM
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"content-type: must be {wanted}, is {kind or 'missing'}",
            field="content-type",
        )
    if not body.strip():
        raise _no_body()
    if _depth(body) > MAX_NESTING:
        raise Refused(
            HTTPStatus.BAD_REQUEST, f"the body is nested more than {MAX_NESTING} levels deep; flatten it"
        )
    try:
        return msgspec.json.decode(body, type=route.takes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(error, "body", route.takes) from None


def _depth(body: bytes) -> int:
    """The deepest level of nested lists and objects. Few bodies have brackets enough to be looked at."""
    if body.count(b"[") + body.count(b"{") <= MAX_NESTING:
        return 0
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def may_be_empty(takes: Any) -> bool:
    """Whether every field of the body has a default."""
    try:
        msgspec.convert({}, takes)
    except msgspec.ValidationError:
        return False
    return True


def _empty(route: Route) -> Any:
    """An empty POST is `{}`, with any content type: `curl -X POST` sends none, `curl -d ''` a form's."""
    if not may_be_empty(route.takes):
        raise _no_body()
    return msgspec.convert({}, route.takes)


def _no_body() -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, "the body is empty; send a JSON object")


def kind_of(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def sent(request: Request, most: int = MOST_BYTES) -> bytes:
    """The whole body. It is kept: whether a form was meant is asked before what it says."""
    if _SENT not in request.scope:
        request.scope[_SENT] = await _bounded(request, most)
    body: bytes = request.scope[_SENT]
    return body


async def _bounded(request: Request, most: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body is over {format_bytes(most)}; send less at once",
            )
        parts.append(part)
    return b"".join(parts)


_LINE_END = re.compile("\r\n?")


def _pairs(sent: bytes) -> list[tuple[str, str]]:
    """Browsers end every line of a form's texts with two characters, whatever they were shown."""
    try:
        pairs = parse_qsl(sent.decode(), keep_blank_values=True, strict_parsing=False)
        return [(name, _LINE_END.sub("\n", value)) for name, value in pairs]
    except (UnicodeDecodeError, ValueError) as error:
        raise _unreadable(error, "form") from None


def _convert(pairs: list[tuple[str, str]], wanted: Any, what: str) -> Any:
    """A name that comes several times is a list; an empty text was left blank."""
    lists = {field.encode_name for field in msgspec.structs.fields(wanted) if _is_list(field.type)}
    known = {field.encode_name for field in msgspec.structs.fields(wanted)}
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name not in known:
            if what == "query":
                raise Refused(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    f"{name[:50]}: there is no such parameter; there are {', '.join(sorted(known))}",
                    field=name[:50],
                )
            continue
        if value == "":
            continue
        if not is_storable(value):
            raise Refused(
                HTTPStatus.UNPROCESSABLE_ENTITY, f"{name}: must be text without NUL characters", field=name
            )
        if name in lists:
            found.setdefault(name, []).append(value)
        else:
            found[name] = value
    try:
        return msgspec.convert(found, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise _unreadable(error, what, wanted) from None


def _is_list(kind: Any) -> bool:
    return any(
        getattr(part, "__origin__", None) in (list, tuple) for part in (kind, *getattr(kind, "__args__", ()))
    )


_NO_FIELD = re.compile(r"Object (contains unknown|missing required) field `([^`]*)`")
_SAYS = {
    "contains unknown": "there is no such field; leave it out, or look for a typing error",
    "missing required": "must be given",
}


def _unreadable(error: Exception, what: str, wanted: Any = None) -> Refused:
    """msgspec says `… - at `$.songs[0].title``, and names a field that is missing, or too much, in the
    sentence. What it could have been of a few, it does not say."""
    sentence, _, place = str(error).partition(" - at `")
    field = place.strip("`").removeprefix("$").removeprefix(".") or None
    if found := _NO_FIELD.fullmatch(sentence):
        field = ".".join(filter(None, (field, found[2])))
        sentence = _SAYS[found[1]]
    elif field and sentence.startswith("Invalid enum value"):
        name = field.rpartition(".")[2].partition("[")[0]
        sentence = f"{sentence}; it may be {', '.join(choices(type_info(wanted), name))}"
    status = (
        HTTPStatus.UNPROCESSABLE_ENTITY
        if isinstance(error, msgspec.ValidationError)
        else HTTPStatus.BAD_REQUEST
    )
    named = (
        f"{field}: {sentence[:1].lower()}{sentence[1:]}"
        if field
        else f"the {what} cannot be read: {sentence}"
    )
    return Refused(status, named, field=field)
