"""The audit log: who did what, and when."""

from __future__ import annotations

from tidemill.access.audit import AuditPage, Outcome
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.fields import Limit, Query, TextCursor
from tidemill.web.asked import Asked


class FindEntries(Query, frozen=True, kw_only=True):
    outcome: Outcome | None = None
    limit: Limit = 100
    cursor: TextCursor | None = None


async def find(asked: Asked) -> AuditPage:
    said: FindEntries = asked.query
    return await asked.app.access.audit.page(said.limit, said.cursor, said.outcome)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/audit",
        role=Role.ADMIN,
        handler=find,
        says="What was done and what was refused, by whom, newest first.",
        query=FindEntries,
        answers=AuditPage,
    ),
)
