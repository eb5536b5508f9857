"""Pages for tokens and the audit log."""

from __future__ import annotations

import msgspec

from tidemill.auth.audit_log import AuditOutcome
from tidemill.http_routes.routes import PageResponse, Redirect, Role, Route
from tidemill.web.api.schemas import Name, TextCursor
from tidemill.web.request import RouteRequest, parse_duration_field


class NewTokenForm(msgspec.Struct, frozen=True, kw_only=True):
    name: Name
    role: Role
    expires_in: str | None = None


async def tokens_page(request: RouteRequest) -> PageResponse:
    return PageResponse("tokens.html", {"tokens": await request.app.auth.tokens.list()}, live=("tokens",))


async def create_token(request: RouteRequest) -> PageResponse:
    body: NewTokenForm = request.body
    expires_in = parse_duration_field(body.expires_in, field="expires_in")
    issued = await request.app.auth.tokens.create(
        body.name, body.role, expires_in=expires_in, by=request.user.name
    )
    return PageResponse("token_created.html", {"token": issued.token, "secret": issued.secret})


async def revoke_token(request: RouteRequest) -> Redirect:
    [token] = await request.app.auth.tokens.revoke(request.path["token"])
    return request.redirect("/tokens", notice="tokens.notice_revoked", name=token.name)


TOKEN_ROUTES = (
    Route(
        method="GET",
        path="/tokens",
        role=Role.ADMIN,
        handler=tokens_page,
        summary="All tokens, without their secrets.",
    ),
    Route(
        method="POST",
        path="/tokens",
        role=Role.ADMIN,
        handler=create_token,
        summary="Create a token; only this page shows its secret.",
        body=NewTokenForm,
    ),
    Route(
        method="POST",
        path="/tokens/{token}/revoke",
        role=Role.ADMIN,
        handler=revoke_token,
        summary="Revoke a token; its sessions end with it.",
    ),
)


ENTRIES_PER_PAGE = 100


class AuditPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    outcome: AuditOutcome | None = None
    cursor: TextCursor | None = None


async def audit_page(request: RouteRequest) -> PageResponse:
    query: AuditPageQuery = request.query
    page = await request.app.auth.audit.page(ENTRIES_PER_PAGE, query.cursor, query.outcome)
    return PageResponse(
        "audit.html",
        {"entries_shown": page.entries, "cursor": page.cursor, "query": query},
        live=("log",),
    )


AUDIT_ROUTES = (
    Route(
        method="GET",
        path="/audit",
        role=Role.ADMIN,
        handler=audit_page,
        summary="The audit log, newest first.",
        query=AuditPageQuery,
    ),
)

ROUTES = (*TOKEN_ROUTES, *AUDIT_ROUTES)
