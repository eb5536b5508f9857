"""Who may pass.

Every request goes by here once, in this order: whose page it comes from (`origins`), who asks (a token that
is shown, a session, or whatever an application's own hook says), how much they have asked for (`rates`),
whether their role is enough, and whether a write was meant (`csrf`). By which name we were asked was looked
at before (`guard`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote

import msgspec
from starlette.requests import Request

from tidemill.access.audit import Outcome
from tidemill.access.sessions import csrf_of
from tidemill.app import Tidemill
from tidemill.core.secrecy import CUT
from tidemill.errors import TidemillError
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import NOBODY, Role, Who
from tidemill.seam.routes import Route
from tidemill.web import csrf
from tidemill.web.asked import Asked
from tidemill.web.cookies import Place
from tidemill.web.guard import MORE
from tidemill.web.hosts import Hosts
from tidemill.web.inspecting import Shown
from tidemill.web.origins import is_foreign, is_from_link
from tidemill.web.rates import Rates
from tidemill.web.signing import SESSION, Signing
from tidemill.web.sockets import is_handshake
from tidemill.web.uses import Uses

Auth = Callable[[Request], Awaitable[Who | None]]

CSRF = "tidemill.csrf"
"""Under which, in the scope, pages find the value that their forms have to bring along."""
_BEARER = "bearer "
_HOOK_COOKIE = "csrf"
_UNTOLD = ("payload", "jobs")
_NOTHING: tuple[Any, ...] = (None, "", [], {})
_LONG = 86400.0
_HOOK_LOOKS_AGAIN = 30.0
"""Seconds after which an application's own hook is asked again about a stream: it may ask a database."""
_CHECK_HOLDS = 0.5
"""Seconds for which all streams of one token share the answer of the store."""
_MOST_CHECKS = 1000
_LARGEST_ENTRY = 64 * 1024
"""Bytes of a body that are redacted for the audit log."""


class _Found(NamedTuple):
    """`csrf` is what a write has to bring along, None when it needs none."""

    who: Who
    csrf: str | None


class Gate:
    """It raises `Refused`, or says who asks."""

    def __init__(self, app: Tidemill, auth: Auth | None, inspect: Shown) -> None:
        self._app, self._auth, self._inspect = app, auth, inspect
        self._access = app.access
        self.hosts = Hosts(app.settings)
        self.signing = Signing(self._access, app.clock) if auth is None else None
        self._rates, self.uses = Rates(app.clock, app.settings.value("web.rate")), Uses(app)
        self.looks_again = None if auth is None else _HOOK_LOOKS_AGAIN
        self._checked: dict[str, tuple[float, Who | None]] = {}
        self.https = (app.settings.value("web.public_url") or "").startswith("https:")

    async def admit(self, request: Request, route: Route) -> Who:
        if is_foreign(request, self.hosts, writes=route.writes):
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "origin: is another site's; behind a proxy set web.hosts to the name people use",
                field="origin",
            )
        if route.role is Role.ANYBODY:
            self._refuse_unused(route)
            return NOBODY
        found = await self._find(request)
        for name, value in self._rates.take(found.who.token or found.who.name).items():
            request.scope[MORE].append((name.encode(), value.encode()))
        if not found.who.role.may(route.role):
            await self._refuse_role(request, route, found.who)
        if found.csrf is not None:
            _require_origin(request)
            request.scope[CSRF] = found.csrf
            if route.writes:
                await csrf.require(request, found.csrf)
        return found.who

    async def still_admits(self, request: Request, route: Route, who: Who) -> bool:
        """Whether a stream that was begun for `who` may go on: what it tells was made for that role."""
        if route.role is Role.ANYBODY:
            return True
        found = await self._asks_now(request)
        return found is not None and found.name == who.name and found.role.may(who.role)

    async def _asks_now(self, request: Request) -> Who | None:
        """The user of the request's token or session; None when it has ended."""
        if self._auth is not None:
            with suppress(Refused):
                return await self._vouched(request, self._auth)
            return None
        shown = "\0".join(request.headers.get(name, "") for name in ("authorization", "cookie"))
        now = self._app.clock.boot()
        at, who = self._checked.get(shown, (-math.inf, None))
        if now - at < _CHECK_HOLDS:
            return who
        who = None
        with suppress(Refused):
            who = (await self._find(request)).who
        if len(self._checked) >= _MOST_CHECKS:
            self._checked.clear()
        self._checked[shown] = now, who
        return who

    def place(self, request: Request) -> Place:
        prefix = request.scope.get("root_path", "")
        secure = self.https or request.url.scheme == "https"
        return Place(request.headers.get("host", ""), secure, prefix)

    async def record(self, request: Request, route: Route, asked: Asked, made: Mapping[str, Any]) -> None:
        """A write that succeeded. It has happened: where it cannot be written down that is told, and who
        asked is answered all the same. One that only counted, because nobody confirmed it, is none."""
        if getattr(asked.body, "confirm", True) is None:
            return
        try:
            await self._access.audit.write(
                asked.who, _action(route), {**self._about(asked), **made}, address=_address(request)
            )
        except TidemillError:
            logging.getLogger("tidemill").exception(
                "%s by %s is not in the audit log", _action(route), asked.who.name
            )

    async def _find(self, request: Request) -> _Found:
        shown = request.headers.get("authorization", "")
        bearer = shown[len(_BEARER) :] if shown[: len(_BEARER)].lower() == _BEARER else None
        if self._auth is not None:
            return await self._by_hook(request, self._auth, needs_csrf=bearer is None)
        if bearer is not None:
            return await self._by_token(request, bearer.strip())
        secret = self.place(request).read(SESSION, request.headers.get("cookie"))
        session = await self._access.sessions.find(secret) if secret else None
        if session is None:
            _refuse_nobody(request)
        return self._used(_Found(session.who, session.csrf))

    async def _by_token(self, request: Request, token: str) -> _Found:
        who = await self._access.tokens.who(token)
        if who is None or self.signing is None:
            if self.signing is not None:
                await self.signing.tell_wrong_token(_address(request))
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                "authorization: the token is wrong, over or revoked; make one with `tidemill token create`",
                field="authorization",
                headers={"www-authenticate": 'Bearer error="invalid_token"'},
            )
        return self._used(_Found(who, None))

    async def _by_hook(self, request: Request, auth: Auth, *, needs_csrf: bool) -> _Found:
        """Theirs may know people by a cookie, so a write has to be meant here too. The value is made from a
        cookie of our own, which comes with the first page."""
        who = await self._vouched(request, auth)
        if not needs_csrf:
            return _Found(who, None)
        place = self.place(request)
        secret = place.read(_HOOK_COOKIE, request.headers.get("cookie"))
        if not secret:
            secret = self._app.entropy.secret()
            cookie = place.write(_HOOK_COOKIE, secret, _LONG)
            request.scope[MORE].append((b"set-cookie", cookie.encode("latin-1")))
        return _Found(who, csrf_of(secret))

    async def _vouched(self, request: Request, auth: Auth) -> Who:
        who = await auth(request)
        if who is None or who.role is Role.ANYBODY:
            raise Refused(HTTPStatus.UNAUTHORIZED, "nobody is signed in; sign in where this is mounted")
        return who

    def _used(self, found: _Found) -> _Found:
        if found.who.token is not None:
            self.uses.note(found.who.token)
        return found

    def _refuse_unused(self, route: Route) -> None:
        if self.signing is None and route.path.startswith("/sign-"):
            raise Refused(HTTPStatus.NOT_FOUND, "people sign in where this dashboard is mounted")

    async def _refuse_role(self, request: Request, route: Route, who: Who) -> NoReturn:
        if route.writes:
            about = {name: str(value) for name, value in request.path_params.items()}
            await self._access.audit.write(
                who,
                _action(route),
                about,
                address=_address(request),
                outcome=Outcome.REFUSED,
                why=f"needs {route.role}",
            )
        raise Refused(
            HTTPStatus.FORBIDDEN,
            f"role: {who.name[:50]!r} is {who.role}, and this needs {route.role}; ask an admin for a token "
            "that may",
            field="role",
        )

    def _about(self, asked: Asked) -> dict[str, Any]:
        """What was named in the path, and what the body says. Payloads are left out: the jobs have them, and
        only their tasks know what in them is secret. A setting may be one by its own name."""
        redactor = self._inspect.redactor
        if not isinstance(asked.body, msgspec.Struct) or any(map(redactor.hides, asked.path.values())):
            return dict(asked.path)
        said = _without_payloads(msgspec.to_builtins(asked.body))
        if len(msgspec.json.encode(said)) > _LARGEST_ENTRY:
            return {"body": CUT, **asked.path}
        return {**redactor.value(said), **asked.path}


def _without_payloads(body: dict[str, Any]) -> dict[str, Any]:
    """Also without those further down, as in the job of a schedule."""
    said = {name: value for name, value in body.items() if name not in _UNTOLD and value not in _NOTHING}
    return {
        name: _without_payloads(value) if isinstance(value, dict) else value for name, value in said.items()
    }


def _action(route: Route) -> str:
    return f"{route.method} {route.path}"


def _address(request: Request) -> str | None:
    return request.client.host if request.client else None


def _require_origin(request: Request) -> None:
    """Pages of anybody may open a socket, and the browser sends the cookie with it; but it says whose page
    it was. Who comes with a cookie and does not say is no browser."""
    if is_handshake(request) and "origin" not in request.headers:
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "origin: is missing; browsers send it, and a program shows a token in `Authorization: Bearer`",
            field="origin",
        )


def _refuse_nobody(request: Request) -> NoReturn:
    """Pages lead to the sign-in, and back. Who followed a link from elsewhere comes without the cookie, and
    brings it when the page loads itself again."""
    is_page = request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
    prefix = request.scope.get("root_path", "")
    if is_page and not request.url.path.startswith(f"{prefix}/api/"):
        if is_from_link(request):
            raise Refused(HTTPStatus.UNAUTHORIZED, "one moment", headers={"refresh": "0"})
        here = request.scope.get("raw_path", b"/").decode("latin-1").partition("?")[0].removeprefix(prefix)
        query = f"?{request.url.query}" if request.url.query else ""
        asked = quote(f"{here}{query}", safe="/")
        raise Refused(
            HTTPStatus.SEE_OTHER, "sign in first", headers={"location": f"{prefix}/sign-in?next={asked}"}
        )
    raise Refused(
        HTTPStatus.UNAUTHORIZED,
        "authorization: is missing; send `Authorization: Bearer` with a token, or sign in",
        field="authorization",
        headers={"www-authenticate": "Bearer"},
    )
