"""The audit log: who did what, when, from where, and with which outcome."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from tidemill.auth.record_store import OpenStore, RecordStore
from tidemill.clock import Entropy
from tidemill.http_routes.routes import User

MAX_DETAIL_CHARS = 500
"""Maximum length of one detail; a longer text is cut."""


class AuditOutcome(StrEnum):
    DONE = "done"
    REFUSED = "refused"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The stored value of an audit entry. The time and the outcome are stored beside this value.

    - `action`: a route, such as `POST /api/v1/jobs`, or a command
    - `details`: the names of the objects that the action changed
    - `token`: the id of the user's token
    - `address`: the client's IP address, None for a command on this machine
    - `reason`: why the action was refused"""

    user: str
    action: str
    details: dict[str, str] = {}
    token: str | None = None
    address: str | None = None
    reason: str | None = None


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    """An audit entry as the log lists it. `at` is its Unix time. `outcome` is `done` or `refused`; `reason`
    says why the action was refused."""

    id: str
    at: float
    user: str
    token: str | None
    action: str
    details: dict[str, str]
    address: str | None
    outcome: AuditOutcome
    reason: str | None


class AuditPage(msgspec.Struct, frozen=True):
    """Audit entries, newest first. `cursor` fetches the next page; None on the last page."""

    entries: tuple[AuditView, ...]
    cursor: str | None


class AuditLog:
    """Writes and lists audit entries. An entry is deleted after `keep` seconds."""

    def __init__(self, store: OpenStore, entropy: Entropy, keep: float) -> None:
        self._entropy, self._keep = entropy, keep
        self._records = RecordStore(store, "audit", AuditEntry)

    async def write(
        self,
        user: User,
        action: str,
        details: Mapping[str, Any] | None = None,
        *,
        address: str | None = None,
        outcome: AuditOutcome = AuditOutcome.DONE,
        reason: str | None = None,
    ) -> None:
        entry = AuditEntry(
            user=user.name,
            token=user.token,
            action=action,
            details={name: _format_detail(value) for name, value in (details or {}).items()},
            address=address,
            reason=reason,
        )
        await self._records.create(self._entropy.new_id(), entry, outcome, self._keep)

    async def page(
        self, limit: int = 100, cursor: str | None = None, outcome: AuditOutcome | None = None
    ) -> AuditPage:
        states = None if outcome is None else [outcome.value]
        found, cursor = await self._records.page(limit, cursor, states)
        views = tuple(
            AuditView(
                id=stored.id,
                at=stored.created,
                outcome=AuditOutcome(stored.state),
                **msgspec.structs.asdict(stored.value),
            )
            for stored in found
        )
        return AuditPage(views, cursor)


def _format_detail(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_DETAIL_CHARS else f"{text[:MAX_DETAIL_CHARS]}…"
