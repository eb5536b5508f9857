"""The audit log: who did what, when, from where, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from tidemill.access.shelf import OpenStore, Shelf
from tidemill.clock import Entropy
from tidemill.seam.roles import Who

MOST = 500
"""Characters of what is said about one thing."""


class Outcome(StrEnum):
    DONE = "done"
    REFUSED = "refused"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """`action` is a route or a command, `about` what it was done to. `address` is where it came from, None
    for the machine itself."""

    who: str
    action: str
    about: dict[str, str] = {}
    token: str | None = None
    address: str | None = None
    why: str | None = None


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    at: float
    who: str
    token: str | None
    action: str
    about: dict[str, str]
    address: str | None
    outcome: Outcome
    why: str | None


class AuditPage(msgspec.Struct, frozen=True):
    """Newest first. `cursor` continues where this page ends; None when it is the last."""

    entries: tuple[AuditView, ...]
    cursor: str | None


class Audit:
    """`keep` is for how many seconds an entry stays."""

    def __init__(self, store: OpenStore, entropy: Entropy, keep: float) -> None:
        self._entropy, self._keep = entropy, keep
        self._shelf = Shelf(store, "audit", Entry)

    async def write(
        self,
        who: Who,
        action: str,
        about: Mapping[str, Any] | None = None,
        *,
        address: str | None = None,
        outcome: Outcome = Outcome.DONE,
        why: str | None = None,
    ) -> None:
        entry = Entry(
            who=who.name,
            token=who.token,
            action=action,
            about={name: _said(value) for name, value in (about or {}).items()},
            address=address,
            why=why,
        )
        await self._shelf.begin(self._entropy.new_id(), entry, outcome, self._keep)

    async def page(
        self, limit: int = 100, cursor: str | None = None, outcome: Outcome | None = None
    ) -> AuditPage:
        states = None if outcome is None else [outcome.value]
        found, cursor = await self._shelf.page(limit, cursor, states)
        views = tuple(
            AuditView(
                id=kept.id, at=kept.created, outcome=Outcome(kept.state), **msgspec.structs.asdict(kept.value)
            )
            for kept in found
        )
        return AuditPage(views, cursor)


def _said(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= MOST else f"{text[:MOST]}…"
