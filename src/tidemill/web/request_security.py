"""Checks Host, Origin, cookies and CSRF token of requests, and adds security headers to responses."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec
from starlette.requests import Request, cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemill.http_routes.problems import HTTPError, problem_from_error
from tidemill.settings import Settings
from tidemill.web.request_parser import FORM_TYPE, content_type, raw_body

_LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
_NETLOC_PATTERN = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[\w.-]+))(?::(?P<port>\d{1,5}))?")


class Netloc(NamedTuple):
    host: str
    port: int | None


def parse_netloc(text: str) -> Netloc | None:
    found = _NETLOC_PATTERN.fullmatch(text.lower())
    if found is None:
        return None
    return Netloc(found["six"] or found["name"], int(found["port"]) if found["port"] else None)


class AllowedHosts:
    """The hosts that a request may name: the server's own addresses, and the configured names, such as the
    name of a reverse proxy."""

    def __init__(self, settings: Settings) -> None:
        public = urlsplit(settings.value("web.public_url") or "").netloc
        self._configured = frozenset(name.lower() for name in (*settings.value("web.hosts"), public) if name)
        self._own = _LOOPBACK_HOSTS | {settings.value("web.host").lower()}

    def is_configured(self, netloc: Netloc) -> bool:
        """True if `web.hosts` or `web.public_url` names this host and port. A name that is configured without
        a port allows only the default port."""
        return f"{netloc.host}:{netloc.port}" in self._configured or (
            netloc.port is None and netloc.host in self._configured
        )

    def requested_host(self, scope: Scope) -> Netloc | None:
        """Returns the host and port in the Host header, None if the host is not allowed. The port may differ
        from the server's own port."""
        sent = [value for name, value in scope["headers"] if name == b"host"]
        netloc = parse_netloc(sent[0].decode("latin-1")) if len(sent) == 1 else None
        if netloc is None:
            return None
        own = {*self._own, (scope.get("server") or ("",))[0]}
        return netloc if netloc.host in own | self._configured or self.is_configured(netloc) else None


def same_port(netloc: Netloc, other: Netloc, schemes: Iterable[str]) -> bool:
    """True if both ports are equal for at least one of `schemes`. A missing port is the default port of the
    scheme, 80 or 443."""
    usual = {"http": 80, "https": 443}
    return any((netloc.port or usual[scheme]) == (other.port or usual[scheme]) for scheme in schemes)


_SAME_SITE_VALUES = ("same-origin", "none")


def is_cross_site(request: Request, hosts: AllowedHosts, *, writes: bool) -> bool:
    """True if a page of another site caused the request, and the server must refuse it.

    Links from another site are allowed, unless the request changes data (`writes=True`). Embedding as an
    image, script or frame is always refused."""
    origins = request.headers.getlist("origin")
    if origins and not (len(origins) == 1 and _is_same_origin(request, hosts, origins[0])):
        return True
    site = request.headers.get("sec-fetch-site")
    if site is None or site in _SAME_SITE_VALUES:
        return False
    return writes or not is_link_navigation(request)


def is_link_navigation(request: Request) -> bool:
    """True if the user followed a link on another site. The browser then sends no cookie that is
    `SameSite=Strict`."""
    headers = request.headers
    return (
        headers.get("sec-fetch-site") in ("cross-site", "same-site")
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def _is_same_origin(request: Request, hosts: AllowedHosts, origin: str) -> bool:
    """True if the page at `origin` belongs to this dashboard. For an https request it must use https."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    came_from, requested_host = parse_netloc(parts.netloc), hosts.requested_host(request.scope)
    if came_from is None or requested_host is None or parts.scheme not in ("http", "https"):
        return False
    if request.url.scheme == "https" and parts.scheme == "http":
        return False
    is_requested = came_from.host == requested_host.host and same_port(
        came_from, requested_host, ("http", "https")
    )
    return is_requested or hosts.is_configured(came_from)


@dataclass(frozen=True)
class CookieScope:
    """The address at which a browser reaches the dashboard. The names and paths of cookies depend on this
    address.

    - `prefix`: the path at which the dashboard is mounted
    - `secure`: True if the browser uses https"""

    host: str
    secure: bool
    prefix: str

    def name(self, what: str) -> str:
        netloc = parse_netloc(self.host)
        port = (netloc and netloc.port) or (443 if self.secure else 80)
        # Browsers send a cookie to every port of a host: without the port, two dashboards share a session.
        return f"tidemill-{what}-{port}"

    def read(self, what: str, header: str | None) -> str | None:
        return cookie_parser(header or "").get(self.name(what))

    def write(self, what: str, value: str, max_age: float) -> str:
        parts = [
            f"{self.name(what)}={value}",
            f"Path={self.prefix or '/'}",
            f"Max-Age={int(max_age)}",
            "HttpOnly",
            "SameSite=Strict",
        ]
        return "; ".join([*parts, "Secure"] if self.secure else parts)

    def erase(self, what: str) -> str:
        return self.write(what, "", 0)


CSRF_FIELD, CSRF_HEADER = "csrf", "x-csrf"


async def require_csrf(request: Request, expected: str) -> None:
    token = request.headers.get(CSRF_HEADER) or await _csrf_in_form(request)
    if not hmac.compare_digest(token.encode(), expected.encode()):
        raise HTTPError(
            HTTPStatus.FORBIDDEN,
            f"{CSRF_FIELD}: is missing or of another session; load the page again",
            field=CSRF_FIELD,
        )


async def _csrf_in_form(request: Request) -> str:
    if content_type(request) != FORM_TYPE:
        return ""
    pairs = parse_qs((await raw_body(request)).decode(errors="replace"))
    return pairs.get(CSRF_FIELD, [""])[-1]


EXTRA_HEADERS_KEY = "tidemill.headers"
"""Scope key of the list of headers that a handler adds to the response."""

_CONTENT_SECURITY_POLICY = (
    b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
_SECURITY_HEADERS = (
    (b"content-security-policy", _CONTENT_SECURITY_POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # `no-referrer` would make browsers send forms with the Origin `null`.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_STRICT_TRANSPORT_SECURITY = (b"strict-transport-security", b"max-age=31536000")
"""One year, for this host only; other hosts of the domain may not support https."""
_NO_STORE = (b"cache-control", b"no-store")
_CACHE_FOREVER = (b"cache-control", b"public, max-age=31536000, immutable")
_MISDIRECTED_REQUEST = HTTPError(
    HTTPStatus.MISDIRECTED_REQUEST,
    "host: is not a name of this dashboard; ask by its address, or add the name to web.hosts",
    field="host",
)


class SecurityMiddleware:
    """Refuses requests for a host that is not allowed, and adds security headers to responses. `https=True`:
    also adds Strict-Transport-Security."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts, *, https: bool = False) -> None:
        self._app, self._hosts = app, hosts
        self._always = (*_SECURITY_HEADERS, _STRICT_TRANSPORT_SECURITY) if https else _SECURITY_HEADERS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        extra_headers: list[tuple[bytes, bytes]] = []
        scope = {**scope, EXTRA_HEADERS_KEY: extra_headers}

        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {
                    **message,
                    "headers": [*message["headers"], *self._missing(scope, message), *extra_headers],
                }
            await send(message)

        if self._hosts.requested_host(scope) is None:
            await _misdirected_response()(scope, receive, add)
        else:
            await self._app(scope, receive, add)

    def _missing(self, scope: Scope, message: Message) -> list[tuple[bytes, bytes]]:
        """Returns the security and cache headers that the response does not have yet. Only static files may
        be cached."""
        present = {name.lower() for name, _ in message["headers"]}
        is_static = scope["path"].startswith(f"{scope.get('root_path', '')}/static/")
        caching = _static_cache_header(scope, message["status"]) if is_static else (_NO_STORE,)
        return [(name, value) for name, value in (*self._always, *caching) if name not in present]


def _static_cache_header(scope: Scope, status: int) -> tuple[tuple[bytes, bytes], ...]:
    """Returns the header that lets a browser cache a static file forever. Returns no header if the address of
    the file has no digest."""
    is_named = scope["query_string"].startswith(b"v=")
    return (_CACHE_FOREVER,) if is_named and status == HTTPStatus.OK else ()


def _misdirected_response() -> Response:
    body = msgspec.json.encode(problem_from_error(_MISDIRECTED_REQUEST))
    return Response(body, _MISDIRECTED_REQUEST.status, media_type="application/problem+json")
