"""The audit log, newest first."""

from __future__ import annotations

import msgspec

from tidemill.access.audit import Outcome
from tidemill.seam.answers import Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.fields import TextCursor
from tidemill.web.asked import Asked

AT_ONCE = 100


class AuditWanted(msgspec.Struct, frozen=True, kw_only=True):
    outcome: Outcome | None = None
    cursor: TextCursor | None = None


async def audit(asked: Asked) -> Page:
    wanted: AuditWanted = asked.query
    found = await asked.app.access.audit.page(AT_ONCE, wanted.cursor, wanted.outcome)
    return Page(
        "audit.html",
        {"entries_shown": found.entries, "cursor": found.cursor, "wanted": wanted},
        live=("log",),
    )


ROUTES = (
    Route(
        method="GET",
        path="/audit",
        role=Role.ADMIN,
        handler=audit,
        says="Who did what, when and from where.",
        query=AuditWanted,
    ),
)
