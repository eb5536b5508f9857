"""Browser sessions and one-time sign-in links."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidemill.auth.record_store import OpenStore, RecordStore
from tidemill.auth.tokens import (
    LINK_KIND,
    SESSION_KIND,
    Credential,
    Tokens,
    new_credential,
    parse_credential,
    secret_digest,
)
from tidemill.clock import Clock, Entropy
from tidemill.core.documents import DocumentKind
from tidemill.http_routes.routes import Role, User

LINK_SECONDS = 900.0
"""A link expires after 15 minutes."""


class SignInLink(msgspec.Struct, frozen=True, kw_only=True):
    """A stored sign-in link. Only the digest of its secret is kept."""

    name: str
    role: Role
    digest: str


class SignInLinks:
    """Creates and consumes one-time sign-in links."""

    def __init__(self, store: OpenStore, clock: Clock, entropy: Entropy) -> None:
        self._clock, self._entropy = clock, entropy
        self._records = RecordStore(store, "link", SignInLink)

    async def create(self, name: str, role: Role) -> str:
        """Creates a sign-in link for the user `name`, valid for 15 minutes. Returns the secret part of its
        URL."""
        credential = new_credential(LINK_KIND, self._entropy)
        link = SignInLink(name=name, role=role, digest=credential.digest)
        await self._records.create(credential.id, link, "unused", LINK_SECONDS)
        return credential.text

    async def use(self, text: str) -> SignInLink | None:
        """Consumes a sign-in link and returns it. Returns None if the link is wrong, expired or already used.
        `text` is the secret part of its URL."""
        credential = parse_credential(LINK_KIND, text)
        stored = None if credential is None else await self._records.get(credential.id)
        if credential is None or stored is None or not credential.matches(stored.value.digest):
            return None
        if stored.until is None or stored.until <= self._clock.wall():
            return None
        # Of two concurrent callers only one deletes the link.
        return stored.value if await self._records.delete(stored) else None


class SignInSession(msgspec.Struct, frozen=True, kw_only=True):
    """A stored session of a browser. It ends at sign-out, after a fixed time, or when its token expires or is
    revoked."""

    token: str
    digest: str


class NewSession(NamedTuple):
    """A session that was just created. `secret` is the cookie value."""

    secret: str
    expires_in: float


class SessionUser(NamedTuple):
    """The user of a session, with the CSRF token for its forms."""

    user: User
    csrf: str


class SignInSessions:
    """Starts, finds and ends browser sessions."""

    def __init__(
        self, store: OpenStore, clock: Clock, entropy: Entropy, tokens: Tokens, expires_in: float
    ) -> None:
        self._store, self._clock, self._entropy, self._tokens = store, clock, entropy, tokens
        self.expires_in = expires_in
        self._records = RecordStore(store, "session", SignInSession)

    async def create(self, token: str) -> NewSession:
        """Starts a session for the token with the id `token`."""
        # The session id starts with the token id, so that one query loads both.
        credential = new_credential(SESSION_KIND, self._entropy)
        session = SignInSession(token=token, digest=credential.digest)
        await self._records.create(f"{token}-{credential.id}", session, "open", self.expires_in)
        return NewSession(f"{token}-{credential.text}", self.expires_in)

    async def find(self, secret: str) -> SessionUser | None:
        """Returns the user of the session with this secret, which is the cookie value. Returns None if the
        secret is wrong, or the session or its token has ended."""
        token, credential = _split_session_secret(secret)
        if credential is None:
            return None
        keys = [self._records.key(f"{token}-{credential.id}"), self._tokens.records.key(token)]
        session, named = await (await self._store()).documents(DocumentKind.RECORD, keys)
        stored = self._records.read(session)
        if stored is None or not credential.matches(stored.value.digest):
            return None
        if stored.until is None or stored.until <= self._clock.wall():
            return None
        user = self._tokens.active_user(self._tokens.records.read(named))
        return None if user is None else SessionUser(user, csrf_token(secret))

    async def end(self, secret: str) -> None:
        """Ends the session with this secret. Does nothing if the secret is wrong."""
        token, credential = _split_session_secret(secret)
        stored = None if credential is None else await self._records.get(f"{token}-{credential.id}")
        if credential is not None and stored is not None and credential.matches(stored.value.digest):
            await self._records.delete(stored)


def csrf_token(secret: str) -> str:
    """Returns the CSRF token for a session secret. Forms send the CSRF token in addition to the cookie."""
    return secret_digest(secret, "csrf")[:32]


def _split_session_secret(secret: str) -> tuple[str, Credential | None]:
    token, _, rest = secret.partition("-")
    return token, parse_credential(SESSION_KIND, rest) if len(token) < len(rest) else None
