"""What holds for every request and every answer, whatever they are about: by which name we are asked, and
what a browser may do with the answer."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemill.seam.refusals import Refused
from tidemill.web.hosts import Hosts
from tidemill.web.problems import problem_of

MORE = "tidemill.headers"
"""Under which, in the scope, whoever handles a request adds headers of the answer."""

_POLICY = (
    b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
_ALWAYS = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not `no-referrer`: a form would then be sent with the Origin `null`.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_ONLY_HTTPS = (b"strict-transport-security", b"max-age=31536000")
"""For a year, and for this name only: what else the domain serves is not ours to decide."""
_UNKEPT = (b"cache-control", b"no-store")
_KEPT = (b"cache-control", b"public, max-age=31536000, immutable")
_MISDIRECTED = Refused(
    HTTPStatus.MISDIRECTED_REQUEST,
    "host: is not a name of this dashboard; ask by its address, or add the name to web.hosts",
    field="host",
)


class Guard:
    """`https`: the public URL is https, so browsers are told to use nothing else."""

    def __init__(self, app: ASGIApp, hosts: Hosts, *, https: bool = False) -> None:
        self._app, self._hosts = app, hosts
        self._always = (*_ALWAYS, _ONLY_HTTPS) if https else _ALWAYS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        more: list[tuple[bytes, bytes]] = []
        scope = {**scope, MORE: more}

        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self._missing(scope, message), *more]}
            await send(message)

        if self._hosts.asked_by(scope) is None:
            await _refusal()(scope, receive, add)
        else:
            await self._app(scope, receive, add)

    def _missing(self, scope: Scope, message: Message) -> list[tuple[bytes, bytes]]:
        """Only what is the same for everybody may be kept by browsers and proxies."""
        there = {name.lower() for name, _ in message["headers"]}
        is_static = scope["path"].startswith(f"{scope.get('root_path', '')}/static/")
        kept = _kept(scope, message["status"]) if is_static else (_UNKEPT,)
        return [(name, value) for name, value in (*self._always, *kept) if name not in there]


def _kept(scope: Scope, status: int) -> tuple[tuple[bytes, bytes], ...]:
    """An address that says what is in the file (`drawing`) is good for ever."""
    is_named = scope["query_string"].startswith(b"v=")
    return (_KEPT,) if is_named and status == HTTPStatus.OK else ()


def _refusal() -> Response:
    body = msgspec.json.encode(problem_of(_MISDIRECTED))
    return Response(body, _MISDIRECTED.status, media_type="application/problem+json")
