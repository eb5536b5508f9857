"""Links that sign in once: whoever holds the machine prints one, and whoever opens it is in."""

from __future__ import annotations

import msgspec

from tidemill.access.credentials import LINK, issued, read
from tidemill.access.shelf import OpenStore, Shelf
from tidemill.clock import Clock, Entropy
from tidemill.seam.roles import Role

LASTS = 900.0
"""Seconds in which it has to be used."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    role: Role
    digest: str


class Links:
    def __init__(self, store: OpenStore, clock: Clock, entropy: Entropy) -> None:
        self._clock, self._entropy = clock, entropy
        self._shelf = Shelf(store, "link", Link)

    async def create(self, name: str, role: Role) -> str:
        """The secret part of its address."""
        credential = issued(LINK, self._entropy)
        link = Link(name=name, role=role, digest=credential.digest)
        await self._shelf.begin(credential.id, link, "unused", LASTS)
        return credential.text

    async def use(self, text: str) -> Link | None:
        """None when it is wrong, too old or used: of two who use it at once, one has it."""
        credential = read(LINK, text)
        kept = None if credential is None else await self._shelf.get(credential.id)
        if credential is None or kept is None or not credential.opens(kept.value.digest):
            return None
        if kept.until is None or kept.until <= self._clock.wall():
            return None
        return kept.value if await self._shelf.end(kept) else None
