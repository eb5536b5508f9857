"""Tokens: each names its user and what that user may do."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tidemill.access.credentials import TOKEN, Credential, issued, read
from tidemill.access.shelf import Kept, OpenStore, Shelf
from tidemill.clock import Clock, Entropy
from tidemill.core.names import problem_with_name
from tidemill.errors import ConfigurationError, TokenNotFound
from tidemill.seam.roles import Role, Who

SHOWN_FOR = 7 * 86400.0
"""So long a token that is over is still listed."""
COARSE = 3600.0
"""When it was last used is written down no more often."""
_AT_ONCE = 500


class TokenState(StrEnum):
    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """`digest` is empty for one that only a link's session has: nobody can show it."""

    name: str
    role: Role
    digest: str = ""
    by: str | None = None
    expires: float | None = None
    used: float | None = None


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret. `by` is who made it; `by_link`: it is the session of a link and has no
    secret. `used` is when it was last seen, to the hour."""

    id: str
    name: str
    role: Role
    state: TokenState
    by: str | None
    by_link: bool
    created: float
    expires: float | None
    used: float | None


class Issued(msgspec.Struct, frozen=True):
    """The `secret` is shown this once; nobody can read it again."""

    token: TokenView
    secret: str


class Tokens:
    def __init__(self, store: OpenStore, clock: Clock, entropy: Entropy) -> None:
        self._clock, self._entropy = clock, entropy
        self.shelf = Shelf(store, "token", Token)

    async def create(
        self, name: str, role: Role, *, lasts: float | None = None, by: str | None = None
    ) -> Issued:
        """`name` is the user's, as the audit log and overrides say it; one may have several tokens. `lasts`
        is for how many seconds it is good, for ever by default."""
        credential = issued(TOKEN, self._entropy)
        token = self._token(name, role, lasts, by, credential.digest)
        return Issued(await self._begin(credential.id, token, lasts), credential.text)

    async def create_unshown(self, name: str, role: Role, *, lasts: float) -> TokenView:
        """For a session that began with a link, so that it can be listed and revoked as any other."""
        token = self._token(name, role, lasts, None, "")
        return await self._begin(issued(TOKEN, self._entropy).id, token, lasts)

    async def list(self) -> list[TokenView]:
        """Newest first; those that are over for a week more."""
        found: list[TokenView] = []
        cursor: str | None = None
        while True:
            page, cursor = await self.shelf.page(_AT_ONCE, cursor)
            found += map(self.view, page)
            if cursor is None:
                return found

    async def revoke(self, name_or_id: str) -> tuple[TokenView, ...]:
        """One by its id, or all of a user; their sessions end with them. Raises TokenNotFound."""
        wanted = [
            token
            for token in await self.list()
            if name_or_id in (token.id, token.name) and token.state is TokenState.ACTIVE
        ]
        if not wanted:
            raise TokenNotFound(f"no token that holds has the id or the user {name_or_id[:50]!r}")
        return tuple([await self._revoke(token.id) for token in wanted])

    async def who(self, text: str) -> Who | None:
        """Whom a token names; None when it is wrong, over or revoked."""
        credential = read(TOKEN, text)
        kept = None if credential is None else await self.shelf.get(credential.id)
        return self.named_by(credential, kept)

    def named_by(self, credential: Credential | None, kept: Kept[Token] | None) -> Who | None:
        if credential is None or kept is None:
            return None
        return self.holder(kept) if credential.opens(kept.value.digest) else None

    def holder(self, kept: Kept[Token] | None) -> Who | None:
        """Whom it names while it holds."""
        if kept is None or self._state(kept) is not TokenState.ACTIVE:
            return None
        return Who(kept.value.name, kept.value.role, kept.id)

    async def mark_used(self, id_: str, wall: float) -> None:
        """Written down when that is an hour later than what is there. Who was quicker wrote the same."""
        kept = await self.shelf.get(id_)
        if kept is None or self.holder(kept) is None or wall - (kept.value.used or 0.0) < COARSE:
            return
        keep = None if kept.until is None else kept.until - self._clock.wall()
        used = msgspec.structs.replace(kept.value, used=wall)
        await self.shelf.change(kept, used, TokenState.ACTIVE, keep)

    def view(self, kept: Kept[Token]) -> TokenView:
        token = kept.value
        return TokenView(
            id=kept.id,
            name=token.name,
            role=token.role,
            state=self._state(kept),
            by=token.by,
            by_link=not token.digest,
            created=kept.created,
            expires=token.expires,
            used=token.used,
        )

    def _state(self, kept: Kept[Token]) -> TokenState:
        if kept.state != TokenState.ACTIVE:
            return TokenState.REVOKED
        over = kept.value.expires is not None and kept.value.expires <= self._clock.wall()
        return TokenState.EXPIRED if over else TokenState.ACTIVE

    def _token(self, name: str, role: Role, lasts: float | None, by: str | None, digest: str) -> Token:
        if problem := problem_with_name("name", name):
            raise ConfigurationError(problem)
        if role is Role.ANYBODY:
            raise ConfigurationError("role: must be viewer, operator or admin; anybody needs no token")
        if lasts is not None and not lasts > 0:
            raise ConfigurationError(f"expires: must be in more than 0 seconds, is in {lasts:g}")
        expires = None if lasts is None else self._clock.wall() + lasts
        return Token(name=name, role=role, digest=digest, by=by, expires=expires)

    async def _begin(self, id_: str, token: Token, lasts: float | None) -> TokenView:
        keep = None if lasts is None else lasts + SHOWN_FOR
        if not await self.shelf.begin(id_, token, TokenState.ACTIVE, keep):
            raise ConfigurationError(f"token {id_!r} is there; try again")
        kept = await self.shelf.get(id_)
        assert kept is not None  # noqa: S101 - it was written just now
        return self.view(kept)

    async def _revoke(self, id_: str) -> TokenView:
        """Until it is so: a mark of use may have come between."""
        while kept := await self.shelf.get(id_):
            if await self.shelf.change(kept, kept.value, TokenState.REVOKED, SHOWN_FOR):
                return self.view(kept._replace(state=TokenState.REVOKED))
        raise TokenNotFound(f"token {id_!r} is gone")
