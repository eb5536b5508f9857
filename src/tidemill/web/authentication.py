"""Authenticates each request, checks its role, rate limit and CSRF token, and writes the audit log."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote

import msgspec
from starlette.requests import Request

from tidemill.app import Tidemill
from tidemill.auth.audit_log import AuditOutcome
from tidemill.auth.sessions import csrf_token
from tidemill.auth.tokens import LAST_USED_RESOLUTION_SECONDS
from tidemill.core.redaction import CUT_MARK
from tidemill.errors import TidemillError
from tidemill.http_routes.files import UploadStream
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import ANONYMOUS, Role, Route, User
from tidemill.web import request_security
from tidemill.web.rate_limits import RequestRateLimiter
from tidemill.web.redacted_inspector import RedactedInspector
from tidemill.web.request import RouteRequest
from tidemill.web.request_security import (
    EXTRA_HEADERS_KEY,
    AllowedHosts,
    CookieScope,
    is_cross_site,
    is_link_navigation,
)
from tidemill.web.sign_in import SESSION_COOKIE, SignInService
from tidemill.web.streams import is_handshake

WRITE_DELAY_SECONDS = 60.0


class TokenUsage:
    def __init__(self, app: Tidemill) -> None:
        self._app = app
        self._pending: dict[str, float] = {}
        self._written: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def note(self, token: str) -> None:
        now = self._app.clock.wall()
        if now - self._written.get(token, 0.0) < LAST_USED_RESOLUTION_SECONDS:
            return
        self._pending[token] = now
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_DELAY_SECONDS, self._start_write)

    async def write(self) -> None:
        """Writes the collected times of last use of tokens into the store. If the application has closed its
        store, the times are dropped."""
        pending, self._pending = self._pending, {}
        if self._app.client.current_store() is None:
            return
        for token, wall in pending.items():
            self._written[token] = wall
            await self._app.auth.tokens.mark_used(token, wall)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _start_write(self) -> None:
        self._timer = None
        self._writing = asyncio.create_task(self._try_to_write(), name="tidemill token usage")

    async def _try_to_write(self) -> None:
        try:
            await self.write()
        except TidemillError as error:
            logging.getLogger("tidemill").warning("cannot record when tokens were used: %s", error)


AuthHook = Callable[[Request], Awaitable[User | None]]

CSRF_SCOPE_KEY = "tidemill.csrf"
"""Scope key of the CSRF token that the forms of a page send back."""
_BEARER_PREFIX = "bearer "
_HOOK_CSRF_COOKIE = "csrf"
_UNAUDITED_FIELDS = ("payload", "jobs")
_EMPTY_VALUES: tuple[Any, ...] = (None, "", [], {})
_HOOK_COOKIE_SECONDS = 86400.0
_HOOK_RECHECK_SECONDS = 30.0
"""Seconds between two checks of a stream by an application's hook, because the hook may query a database."""
_RECHECK_CACHE_SECONDS = 0.5
"""Seconds for which all streams of one token share one check."""
_MAX_CACHED_CHECKS = 1000
_MAX_AUDITED_BODY_BYTES = 64 * 1024
"""Larger bodies are cut in the audit log instead of redacted."""


class _AuthenticatedUser(NamedTuple):
    """The user of a request. `csrf` is the CSRF token that a write must send, None if a write needs no CSRF
    token."""

    user: User
    csrf: str | None


class Authenticator:
    """Checks the user, role, rate limit and CSRF token of each request, and writes the audit log.

    `auth` is the application's own sign-in hook, None for Tidemill's sign-in."""

    def __init__(self, app: Tidemill, auth: AuthHook | None, inspect: RedactedInspector) -> None:
        self._app, self._auth, self._inspect = app, auth, inspect
        self._auth_service = app.auth
        self.hosts = AllowedHosts(app.settings)
        self.sign_in = SignInService(self._auth_service, app.clock) if auth is None else None
        self._rate_limiter, self.token_usage = (
            RequestRateLimiter(app.clock, app.settings.value("web.rate")),
            TokenUsage(app),
        )
        self.recheck_seconds = None if auth is None else _HOOK_RECHECK_SECONDS
        self._recent_checks: dict[str, tuple[float, User | None]] = {}
        self.https = (app.settings.value("web.public_url") or "").startswith("https:")

    async def authorize(self, request: Request, route: Route) -> User:
        if is_cross_site(request, self.hosts, writes=route.writes):
            raise HTTPError(
                HTTPStatus.FORBIDDEN,
                "origin: is another site's; behind a proxy set web.hosts to the name people use",
                field="origin",
            )
        if route.role is Role.PUBLIC:
            self._refuse_sign_in_routes(route)
            return ANONYMOUS
        authenticated = await self._authenticate(request)
        for name, value in self._rate_limiter.take(
            authenticated.user.token or authenticated.user.name
        ).items():
            request.scope[EXTRA_HEADERS_KEY].append((name.encode(), value.encode()))
        if not authenticated.user.role.may(route.role):
            await self._refuse_role(request, route, authenticated.user)
        if authenticated.csrf is not None:
            _require_origin(request)
            request.scope[CSRF_SCOPE_KEY] = authenticated.csrf
            if route.writes:
                await request_security.require_csrf(request, authenticated.csrf)
        return authenticated.user

    async def still_allows(self, request: Request, route: Route, user: User) -> bool:
        """True if `user` may keep following an open stream. The token or session of the request must still
        belong to `user`, with at least the role of `user`."""
        if route.role is Role.PUBLIC:
            return True
        current = await self._current_user(request)
        return current is not None and current.name == user.name and current.role.may(user.role)

    async def _current_user(self, request: Request) -> User | None:
        """Returns the user of the request's token or session, None if the token or session has ended. With
        Tidemill's own sign-in, the result is cached for 0.5 seconds."""
        if self._auth is not None:
            with suppress(HTTPError):
                return await self._user_from_hook(request, self._auth)
            return None
        credentials = "\0".join(request.headers.get(name, "") for name in ("authorization", "cookie"))
        now = self._app.clock.boot()
        checked_at, user = self._recent_checks.get(credentials, (-math.inf, None))
        if now - checked_at < _RECHECK_CACHE_SECONDS:
            return user
        user = None
        with suppress(HTTPError):
            user = (await self._authenticate(request)).user
        if len(self._recent_checks) >= _MAX_CACHED_CHECKS:
            self._recent_checks.clear()
        self._recent_checks[credentials] = now, user
        return user

    def cookie_scope(self, request: Request) -> CookieScope:
        prefix = request.scope.get("root_path", "")
        secure = self.https or request.url.scheme == "https"
        return CookieScope(request.headers.get("host", ""), secure, prefix)

    async def record(
        self, request: Request, route: Route, route_request: RouteRequest, audit_details: Mapping[str, Any]
    ) -> None:
        """Writes a successful change into the audit log. `audit_details` are values of the response to
        record. An error of the store is only logged."""
        if getattr(route_request.body, "confirm", True) is None:
            return
        try:
            await self._auth_service.audit.write(
                route_request.user,
                _audit_action(route),
                {**self._request_details(route_request), **audit_details},
                address=_client_address(request),
            )
        except TidemillError:
            logging.getLogger("tidemill").exception(
                "%s by %s is not in the audit log", _audit_action(route), route_request.user.name
            )

    async def _authenticate(self, request: Request) -> _AuthenticatedUser:
        header = request.headers.get("authorization", "")
        bearer = (
            header[len(_BEARER_PREFIX) :] if header[: len(_BEARER_PREFIX)].lower() == _BEARER_PREFIX else None
        )
        if self._auth is not None:
            return await self._by_hook(request, self._auth, needs_csrf=bearer is None)
        if bearer is not None:
            return await self._by_token(request, bearer.strip())
        secret = self.cookie_scope(request).read(SESSION_COOKIE, request.headers.get("cookie"))
        session = await self._auth_service.sessions.find(secret) if secret else None
        if session is None:
            _refuse_anonymous(request)
        return self._note_usage(_AuthenticatedUser(session.user, session.csrf))

    async def _by_token(self, request: Request, token: str) -> _AuthenticatedUser:
        user = await self._auth_service.tokens.user(token)
        if user is None or self.sign_in is None:
            if self.sign_in is not None:
                await self.sign_in.record_wrong_token(_client_address(request))
            raise HTTPError(
                HTTPStatus.UNAUTHORIZED,
                "authorization: the token is invalid, expired or revoked; create one with `tidemill token "
                "create`",
                field="authorization",
                headers={"www-authenticate": 'Bearer error="invalid_token"'},
            )
        return self._note_usage(_AuthenticatedUser(user, None))

    async def _by_hook(self, request: Request, auth: AuthHook, *, needs_csrf: bool) -> _AuthenticatedUser:
        """Returns the user that the application's hook `auth` finds. `needs_csrf=True`: a write must send a
        CSRF token."""
        user = await self._user_from_hook(request, auth)
        if not needs_csrf:
            return _AuthenticatedUser(user, None)
        cookie_scope = self.cookie_scope(request)
        secret = cookie_scope.read(_HOOK_CSRF_COOKIE, request.headers.get("cookie"))
        if not secret:
            secret = self._app.entropy.secret()
            cookie = cookie_scope.write(_HOOK_CSRF_COOKIE, secret, _HOOK_COOKIE_SECONDS)
            request.scope[EXTRA_HEADERS_KEY].append((b"set-cookie", cookie.encode("latin-1")))
        return _AuthenticatedUser(user, csrf_token(secret))

    async def _user_from_hook(self, request: Request, auth: AuthHook) -> User:
        user = await auth(request)
        if user is None or user.role is Role.PUBLIC:
            raise HTTPError(HTTPStatus.UNAUTHORIZED, "no user is signed in; sign in where this is mounted")
        return user

    def _note_usage(self, authenticated: _AuthenticatedUser) -> _AuthenticatedUser:
        if authenticated.user.token is not None:
            self.token_usage.note(authenticated.user.token)
        return authenticated

    def _refuse_sign_in_routes(self, route: Route) -> None:
        if self.sign_in is None and route.path.startswith("/sign-"):
            raise HTTPError(HTTPStatus.NOT_FOUND, "people sign in where this dashboard is mounted")

    async def _refuse_role(self, request: Request, route: Route, user: User) -> NoReturn:
        if route.writes:
            details = {name: str(value) for name, value in request.path_params.items()}
            await self._auth_service.audit.write(
                user,
                _audit_action(route),
                details,
                address=_client_address(request),
                outcome=AuditOutcome.REFUSED,
                reason=f"needs {route.role}",
            )
        raise HTTPError(
            HTTPStatus.FORBIDDEN,
            f"role: {user.name[:50]!r} is {user.role}, and this needs {route.role}; ask an admin for a token "
            "that may",
            field="role",
        )

    def _request_details(self, route_request: RouteRequest) -> dict[str, Any]:
        """Returns the path parameters and the body for the audit log, with secrets hidden. Payloads are left
        out."""
        redactor = self._inspect.redactor
        if isinstance(route_request.body, UploadStream):
            return {**_upload_details(route_request.body), **route_request.path}
        if not isinstance(route_request.body, msgspec.Struct) or any(
            map(redactor.hides_name, route_request.path.values())
        ):
            return dict(route_request.path)
        body = _without_payloads(msgspec.to_builtins(route_request.body))
        if len(msgspec.json.encode(body)) > _MAX_AUDITED_BODY_BYTES:
            return {"body": CUT_MARK, **route_request.path}
        return {**redactor.value(body), **route_request.path}


def _upload_details(upload: UploadStream) -> dict[str, Any]:
    named = {} if upload.filename is None else {"filename": upload.filename}
    return {**named, "media_type": upload.media_type, "bytes": upload.received}


def _without_payloads(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the body without payloads, jobs and empty values. Nested objects are searched too, such as the
    job of a schedule."""
    visible = {
        name: value
        for name, value in body.items()
        if name not in _UNAUDITED_FIELDS and value not in _EMPTY_VALUES
    }
    return {
        name: _without_payloads(value) if isinstance(value, dict) else value
        for name, value in visible.items()
    }


def _audit_action(route: Route) -> str:
    return f"{route.method} {route.path}"


def _client_address(request: Request) -> str | None:
    return request.client.host if request.client else None


def _require_origin(request: Request) -> None:
    """Raises HTTPError if a WebSocket handshake has no Origin header. Only for requests that are
    authenticated by cookie: any web page can open a WebSocket, and the browser adds the cookie."""
    if is_handshake(request) and "origin" not in request.headers:
        raise HTTPError(
            HTTPStatus.FORBIDDEN,
            "origin: is missing; browsers send it, and a program shows a token in `Authorization: Bearer`",
            field="origin",
        )


def _refuse_anonymous(request: Request) -> NoReturn:
    """Raises HTTPError for a request without a user. A browser that opens a page is sent to the sign-in; any
    other request gets status 401."""
    is_page = request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
    prefix = request.scope.get("root_path", "")
    if is_page and not request.url.path.startswith(f"{prefix}/api/"):
        if is_link_navigation(request):  # the session cookie is SameSite=Strict; the reload sends it
            raise HTTPError(HTTPStatus.UNAUTHORIZED, "one moment", headers={"refresh": "0"})
        path = request.scope.get("raw_path", b"/").decode("latin-1").partition("?")[0].removeprefix(prefix)
        query = f"?{request.url.query}" if request.url.query else ""
        next_page = quote(f"{path}{query}", safe="/")
        raise HTTPError(
            HTTPStatus.SEE_OTHER,
            "sign in first",
            headers={"location": f"{prefix}/sign-in?next={next_page}"},
        )
    raise HTTPError(
        HTTPStatus.UNAUTHORIZED,
        "authorization: is missing; send `Authorization: Bearer` with a token, or sign in",
        field="authorization",
        headers={"www-authenticate": "Bearer"},
    )
