"""Sign-in by token or by link, sign-out, and the creation of sign-in links."""

from __future__ import annotations

from contextlib import suppress

from tidemill.app import Tidemill
from tidemill.auth import Auth
from tidemill.auth.audit_log import AuditOutcome
from tidemill.auth.tokens import TokenView
from tidemill.clock import Clock
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import ANONYMOUS, Role, User
from tidemill.web.rate_limits import SignInThrottle
from tidemill.web.request_security import CookieScope

SESSION_COOKIE = "session"
SIGN_IN_BY_TOKEN, SIGN_IN_BY_LINK, SIGN_OUT, REQUEST_WITH_TOKEN = (
    "sign-in by token",
    "sign-in by link",
    "sign-out",
    "request with a token",
)
_FAILURE_REASONS = {
    SIGN_IN_BY_TOKEN: "the token is invalid, expired or revoked",
    REQUEST_WITH_TOKEN: "the token is invalid, expired or revoked",
    SIGN_IN_BY_LINK: "the link is invalid, used or expired",
}


class SignInService:
    """Signs users in and out, and records this in the audit log. After too many failed sign-ins, signing in
    raises HTTPError."""

    def __init__(self, auth: Auth, clock: Clock) -> None:
        self._auth_service = auth
        # Separate throttles: a program with a revoked token must not lock out people at the same address.
        self._sign_in_throttle, self._request_throttle = SignInThrottle(clock), SignInThrottle(clock)

    async def by_token(self, token: str, cookie_scope: CookieScope, address: str | None) -> str | None:
        user = await self._auth_service.tokens.user(token.strip())
        return await self._create_session(user, SIGN_IN_BY_TOKEN, cookie_scope, address)

    async def by_link(self, secret: str, cookie_scope: CookieScope, address: str | None) -> str | None:
        """Signs in by the secret of a sign-in link. Returns the Set-Cookie header, or None if the link is not
        valid. The session gets its own token, which an admin can revoke."""
        link = await self._auth_service.links.use(secret)
        user = None
        if link is not None:
            expires_in = self._auth_service.sessions.expires_in
            token: TokenView = await self._auth_service.tokens.create_without_secret(
                link.name, link.role, expires_in=expires_in
            )
            user = User(token.name, token.role, token.id)
        return await self._create_session(user, SIGN_IN_BY_LINK, cookie_scope, address)

    async def sign_out(
        self, user: User, cookie_scope: CookieScope, cookie: str | None, address: str | None
    ) -> str:
        if secret := cookie_scope.read(SESSION_COOKIE, cookie):
            await self._auth_service.sessions.end(secret)
        await self._auth_service.audit.write(user, SIGN_OUT, address=address)
        return cookie_scope.erase(SESSION_COOKIE)

    async def record_wrong_token(self, address: str | None) -> None:
        """Records an API request with a wrong token in the audit log. After too many failures nothing is
        recorded."""
        with suppress(HTTPError):
            self._request_throttle.failed(address)
            await self._record_failure(REQUEST_WITH_TOKEN, address)

    async def _create_session(
        self, user: User | None, action: str, cookie_scope: CookieScope, address: str | None
    ) -> str | None:
        if user is None or user.token is None:
            self._sign_in_throttle.failed(address)
            await self._record_failure(action, address)
            return None
        new_session = await self._auth_service.sessions.create(user.token)
        await self._auth_service.audit.write(user, action, address=address)
        return cookie_scope.write(SESSION_COOKIE, new_session.secret, new_session.expires_in)

    async def _record_failure(self, action: str, address: str | None) -> None:
        await self._auth_service.audit.write(
            ANONYMOUS, action, address=address, outcome=AuditOutcome.REFUSED, reason=_FAILURE_REASONS[action]
        )


async def create_sign_in_link(app: Tidemill, address: str, name: str, role: Role = Role.ADMIN) -> str:
    """Creates a link for one sign-in as the user `name`, and returns its URL. The link is valid for 15
    minutes. `address` is the URL of the dashboard."""
    return f"{address.rstrip('/')}/sign-in/{await app.auth.links.create(name, role)}"
