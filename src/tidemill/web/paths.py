"""Parts of a path that have a slash in them.

The job of a step is called `dub:7/extract/0`, and a queue may be called anything. Whoever sends such a name
writes the slash as %2F, which servers turn into a slash again before anybody has looked at the parts. Here
the parts are taken from the path as it was sent, and stay apart.
"""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidemill.seam.refusals import Refused
from tidemill.web.problems import problem_of

_SLASH = "\0"
"""Stands for a slash inside a part: no name may have it (`core.names`), and a path that does is refused."""


class WholeParts:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (sent := scope.get("raw_path")):
            try:
                scope = {**scope, "path": _path(sent.partition(b"?")[0])}
            except ValueError:
                return await _UNREADABLE(scope, receive, send)
        return await self._app(scope, receive, send)


def whole(part: str) -> str:
    """A parameter of a path, as it was meant."""
    return part.replace(_SLASH, "/")


def _path(sent: bytes) -> str:
    parts = [unquote_to_bytes(part).decode() for part in sent.split(b"/")]
    if any(_SLASH in part for part in parts):
        raise ValueError("NUL")
    return "/".join(part.replace("/", _SLASH) for part in parts)


_UNREADABLE = Response(
    msgspec.json.encode(
        problem_of(
            Refused(
                HTTPStatus.BAD_REQUEST,
                "path: must be UTF-8 without NUL characters; write other characters as %XX",
                field="path",
            )
        )
    ),
    HTTPStatus.BAD_REQUEST,
    media_type="application/problem+json",
)
