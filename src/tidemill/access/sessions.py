"""Sessions: what a browser shows instead of the token, until it signs out or some hours are over."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidemill.access.credentials import SESSION, Credential, digest_of, issued, read
from tidemill.access.shelf import OpenStore, Shelf
from tidemill.access.tokens import Tokens
from tidemill.clock import Clock, Entropy
from tidemill.core.courses import Kind
from tidemill.seam.roles import Who


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """It ends with the token it was begun with."""

    token: str
    digest: str


class Begun(NamedTuple):
    """`secret` is for the cookie."""

    secret: str
    lasts: float


class SignedIn(NamedTuple):
    who: Who
    csrf: str


class Sessions:
    def __init__(
        self, store: OpenStore, clock: Clock, entropy: Entropy, tokens: Tokens, lasts: float
    ) -> None:
        self._store, self._clock, self._entropy, self._tokens = store, clock, entropy, tokens
        self.lasts = lasts
        self._shelf = Shelf(store, "session", Session)

    async def begin(self, token: str) -> Begun:
        """Its id begins with the token's, so that both are looked up in one trip."""
        credential = issued(SESSION, self._entropy)
        session = Session(token=token, digest=credential.digest)
        await self._shelf.begin(f"{token}-{credential.id}", session, "open", self.lasts)
        return Begun(f"{token}-{credential.text}", self.lasts)

    async def find(self, secret: str) -> SignedIn | None:
        """Whose it is; None when it is wrong, over, signed out, or its token no longer holds."""
        token, credential = _parts(secret)
        if credential is None:
            return None
        keys = [self._shelf.key(f"{token}-{credential.id}"), self._tokens.shelf.key(token)]
        session, named = await (await self._store()).courses(Kind.RECORD, keys)
        kept = self._shelf.read(session)
        if kept is None or not credential.opens(kept.value.digest):
            return None
        if kept.until is None or kept.until <= self._clock.wall():
            return None
        who = self._tokens.holder(self._tokens.shelf.read(named))
        return None if who is None else SignedIn(who, csrf_of(secret))

    async def end(self, secret: str) -> None:
        """Signed out: only by who has it."""
        token, credential = _parts(secret)
        kept = None if credential is None else await self._shelf.get(f"{token}-{credential.id}")
        if credential is not None and kept is not None and credential.opens(kept.value.digest):
            await self._shelf.end(kept)


def csrf_of(secret: str) -> str:
    """What a form has to bring along beside the cookie: who cannot read the page cannot know it, and from it
    the cookie cannot be told."""
    return digest_of(secret, "csrf")[:32]


def _parts(secret: str) -> tuple[str, Credential | None]:
    token, _, rest = secret.partition("-")
    return token, read(SESSION, rest) if len(token) < len(rest) else None
