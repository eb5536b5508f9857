"""API routes for tokens and the audit log."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from msgspec import Meta

from tidemill.auth.audit_log import AuditOutcome, AuditPage
from tidemill.auth.tokens import IssuedToken, TokenView
from tidemill.errors import ConfigurationError
from tidemill.http_routes.routes import Role, Route
from tidemill.web.api.schemas import (
    MAX_DURATION_SECONDS,
    Limit,
    Name,
    QueryParameters,
    RequestBody,
    TextCursor,
)
from tidemill.web.request import RouteRequest


class NewTokenBody(RequestBody, frozen=True, kw_only=True):
    """A request to create a token. `name` is the user that the audit log records. The token expires after
    `expires_in` seconds, or never if it is missing."""

    name: Name
    role: Role
    expires_in: Annotated[float, Meta(ge=1, le=MAX_DURATION_SECONDS)] | None = None


async def list_tokens(request: RouteRequest) -> list[TokenView]:
    return await request.app.auth.tokens.list()


async def create_token(request: RouteRequest) -> IssuedToken:
    body: NewTokenBody = request.body
    if body.role is Role.PUBLIC:
        raise ConfigurationError("role: must be viewer, operator or admin; anybody needs no token")
    return await request.app.auth.tokens.create(
        body.name, body.role, expires_in=body.expires_in, by=request.user.name
    )


async def revoke_token(request: RouteRequest) -> tuple[TokenView, ...]:
    return await request.app.auth.tokens.revoke(request.path["token"])


TOKEN_ROUTES = (
    Route(
        method="GET",
        path="/api/v1/tokens",
        role=Role.ADMIN,
        handler=list_tokens,
        summary="All tokens, without their secrets; expired ones stay listed for a week.",
        response=list[TokenView],
    ),
    Route(
        method="POST",
        path="/api/v1/tokens",
        role=Role.ADMIN,
        handler=create_token,
        summary="Create a token. Only this response contains its secret.",
        body=Annotated[NewTokenBody, Meta(examples=[{"name": "shop", "role": "operator"}])],
        response=IssuedToken,
        audit_details=lambda issued: {"token": issued.token.id},
        status=HTTPStatus.CREATED,
    ),
    Route(
        method="DELETE",
        path="/api/v1/tokens/{token}",
        role=Role.ADMIN,
        handler=revoke_token,
        summary="Revoke a token by its id, or all tokens of a user; their sessions end with them.",
        response=tuple[TokenView, ...],
    ),
)


class AuditQuery(QueryParameters, frozen=True, kw_only=True):
    outcome: AuditOutcome | None = None
    limit: Limit = 100
    cursor: TextCursor | None = None


async def list_audit_entries(request: RouteRequest) -> AuditPage:
    query: AuditQuery = request.query
    return await request.app.auth.audit.page(query.limit, query.cursor, query.outcome)


AUDIT_ROUTES = (
    Route(
        method="GET",
        path="/api/v1/audit",
        role=Role.ADMIN,
        handler=list_audit_entries,
        summary="Completed and refused actions with their users, newest first.",
        query=AuditQuery,
        response=AuditPage,
    ),
)

ROUTES = (*TOKEN_ROUTES, *AUDIT_ROUTES)
