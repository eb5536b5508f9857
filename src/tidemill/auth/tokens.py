"""API tokens: creates, verifies, lists and revokes them; the store keeps only a digest of each secret."""

from __future__ import annotations

import hashlib
import hmac
import re
from enum import StrEnum
from typing import NamedTuple

import msgspec

from tidemill.auth.record_store import AuthRecord, OpenStore, RecordStore
from tidemill.clock import Clock, Entropy
from tidemill.core.validation import problem_with_name
from tidemill.errors import ConfigurationError, TokenNotFound
from tidemill.http_routes.routes import Role, User

TOKEN_KIND, LINK_KIND, SESSION_KIND = "tm", "tml", "tms"
_ID_CHARS = 12
_CREDENTIAL_PATTERN = re.compile(r"(tm[ls]?)_([a-z2-7]{12})_([a-z2-7]{32})")
MAX_CREDENTIAL_CHARS = 50
"""Longer texts are rejected without parsing."""


class Credential(NamedTuple):
    """A parsed credential: a token, a sign-in link or a session. `kind` tells which, so that a sign-in link
    cannot be used as a token."""

    kind: str
    id: str
    secret: str

    @property
    def text(self) -> str:
        return f"{self.kind}_{self.id}_{self.secret}"

    @property
    def digest(self) -> str:
        return secret_digest(self.secret)

    def matches(self, digest: str) -> bool:
        """True if `digest` is the digest of this credential's secret. The comparison takes constant time."""
        return hmac.compare_digest(self.digest, digest)


def new_credential(kind: str, entropy: Entropy) -> Credential:
    return Credential(kind, entropy.secret()[:_ID_CHARS], entropy.secret())


def parse_credential(kind: str, text: str) -> Credential | None:
    """Returns the credential in `text`, or None if `text` is not a credential of this kind. `kind` is `tm`
    for a token, `tml` for a sign-in link and `tms` for a session."""
    found = _CREDENTIAL_PATTERN.fullmatch(text) if len(text) <= MAX_CREDENTIAL_CHARS else None
    return Credential(*found.groups()) if found and found[1] == kind else None


def secret_digest(secret: str, what: str = "secret") -> str:
    return hashlib.sha256(f"{what}:{secret}".encode()).hexdigest()


LISTED_AFTER_END_SECONDS = 7 * 86400.0
"""How long an expired or revoked token is still listed."""
LAST_USED_RESOLUTION_SECONDS = 3600.0
"""The time of last use is written at most once in this many seconds."""
_TOKENS_PER_PAGE = 500


class TokenState(StrEnum):
    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored token. `digest` is the digest of its secret. It is empty if the token has no secret, which is
    so after a sign-in by link."""

    name: str
    role: Role
    digest: str = ""
    by: str | None = None
    expires: float | None = None
    used: float | None = None


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret.

    - `by`: the user who created the token
    - `by_link`: True if the token belongs to a session that began with a sign-in link
    - `used`: the time of last use, with a precision of one hour"""

    id: str
    name: str
    role: Role
    state: TokenState
    by: str | None
    by_link: bool
    created: float
    expires: float | None
    used: float | None


class IssuedToken(msgspec.Struct, frozen=True):
    """A token that was just created. Only this value contains the `secret`; the store keeps its digest."""

    token: TokenView
    secret: str


class Tokens:
    """Creates, authenticates, lists and revokes tokens."""

    def __init__(self, store: OpenStore, clock: Clock, entropy: Entropy) -> None:
        self._clock, self._entropy = clock, entropy
        self.records = RecordStore(store, "token", TokenRecord)

    async def create(
        self, name: str, role: Role, *, expires_in: float | None = None, by: str | None = None
    ) -> IssuedToken:
        """Creates a token for the user `name`, and returns the token with its secret. A user may have several
        tokens.

        - `expires_in`: the token expires after this many seconds; None for never
        - `by`: the user who creates the token"""
        credential = new_credential(TOKEN_KIND, self._entropy)
        token = self._token(name, role, expires_in, by, credential.digest)
        return IssuedToken(await self._create_token(credential.id, token, expires_in), credential.text)

    async def create_without_secret(self, name: str, role: Role, *, expires_in: float) -> TokenView:
        """Creates a token for a session that began with a sign-in link. An admin can list and revoke the
        session by this token."""
        token = self._token(name, role, expires_in, None, "")
        return await self._create_token(new_credential(TOKEN_KIND, self._entropy).id, token, expires_in)

    async def list(self) -> list[TokenView]:
        """Returns all tokens, newest first. Expired and revoked tokens are listed for one more week."""
        found: list[TokenView] = []
        cursor: str | None = None
        while True:
            page, cursor = await self.records.page(_TOKENS_PER_PAGE, cursor)
            found += map(self.view, page)
            if cursor is None:
                return found

    async def revoke(self, name_or_id: str) -> tuple[TokenView, ...]:
        """Revokes the token with this id, or all active tokens of the user with this name, and ends their
        sessions. Returns the revoked tokens. Raises TokenNotFound if no active token matches."""
        matching = [
            token
            for token in await self.list()
            if name_or_id in (token.id, token.name) and token.state is TokenState.ACTIVE
        ]
        if not matching:
            raise TokenNotFound(f"no token that holds has the id or the user {name_or_id[:50]!r}")
        return tuple([await self._revoke(token.id) for token in matching])

    async def user(self, text: str) -> User | None:
        """Returns the user of the token in `text`. Returns None if the token is wrong, expired or revoked."""
        credential = parse_credential(TOKEN_KIND, text)
        stored = None if credential is None else await self.records.get(credential.id)
        return self.verify(credential, stored)

    def verify(self, credential: Credential | None, stored: AuthRecord[TokenRecord] | None) -> User | None:
        if credential is None or stored is None:
            return None
        return self.active_user(stored) if credential.matches(stored.value.digest) else None

    def active_user(self, stored: AuthRecord[TokenRecord] | None) -> User | None:
        """Returns the user of a stored token. Returns None if the token is missing, expired or revoked."""
        if stored is None or self._state(stored) is not TokenState.ACTIVE:
            return None
        return User(stored.value.name, stored.value.role, stored.id)

    async def mark_used(self, id_: str, wall: float) -> None:
        """Stores `wall` as the time of last use of the token, at most once an hour. The write is dropped if
        another process changes the token at the same time."""
        stored = await self.records.get(id_)
        if (
            stored is None
            or self.active_user(stored) is None
            or wall - (stored.value.used or 0.0) < LAST_USED_RESOLUTION_SECONDS
        ):
            return
        keep = None if stored.until is None else stored.until - self._clock.wall()
        used = msgspec.structs.replace(stored.value, used=wall)
        # A refused write is harmless: the other process stored almost the same time, or revoked the token.
        await self.records.update(stored, used, TokenState.ACTIVE, keep)

    def view(self, stored: AuthRecord[TokenRecord]) -> TokenView:
        token = stored.value
        return TokenView(
            id=stored.id,
            name=token.name,
            role=token.role,
            state=self._state(stored),
            by=token.by,
            by_link=not token.digest,
            created=stored.created,
            expires=token.expires,
            used=token.used,
        )

    def _state(self, stored: AuthRecord[TokenRecord]) -> TokenState:
        if stored.state != TokenState.ACTIVE:
            return TokenState.REVOKED
        over = stored.value.expires is not None and stored.value.expires <= self._clock.wall()
        return TokenState.EXPIRED if over else TokenState.ACTIVE

    def _token(
        self, name: str, role: Role, expires_in: float | None, by: str | None, digest: str
    ) -> TokenRecord:
        if problem := problem_with_name("name", name):
            raise ConfigurationError(problem)
        if role is Role.PUBLIC:
            raise ConfigurationError("role: must be viewer, operator or admin; anybody needs no token")
        if expires_in is not None and not expires_in > 0:
            raise ConfigurationError(f"expires: must be in more than 0 seconds, is in {expires_in:g}")
        expires = None if expires_in is None else self._clock.wall() + expires_in
        return TokenRecord(name=name, role=role, digest=digest, by=by, expires=expires)

    async def _create_token(self, id_: str, token: TokenRecord, expires_in: float | None) -> TokenView:
        keep = None if expires_in is None else expires_in + LISTED_AFTER_END_SECONDS
        if not await self.records.create(id_, token, TokenState.ACTIVE, keep):
            raise ConfigurationError(f"token {id_!r} is there; try again")
        stored = await self.records.get(id_)
        assert stored is not None  # noqa: S101 - it was written just now
        return self.view(stored)

    async def _revoke(self, id_: str) -> TokenView:
        """Revokes a token, and retries if another process changes the record at the same time. Raises
        TokenNotFound if the record was deleted."""
        while stored := await self.records.get(id_):
            if await self.records.update(stored, stored.value, TokenState.REVOKED, LISTED_AFTER_END_SECONDS):
                return self.view(stored._replace(state=TokenState.REVOKED))
        raise TokenNotFound(f"token {id_!r} is gone")
