"""Tokens: each names its user and what that user may do."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from msgspec import Meta

from tidemill.access.tokens import Issued, TokenView
from tidemill.errors import ConfigurationError
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.fields import CENTURY, Body, Name
from tidemill.web.asked import Asked


class NewToken(Body, frozen=True, kw_only=True):
    """`name` is the user's, as the audit log says it; one may have several tokens. It is good for `lasts`
    seconds, for ever without."""

    name: Name
    role: Role
    lasts: Annotated[float, Meta(ge=1, le=CENTURY)] | None = None


async def listing(asked: Asked) -> list[TokenView]:
    return await asked.app.access.tokens.list()


async def create(asked: Asked) -> Issued:
    said: NewToken = asked.body
    if said.role is Role.ANYBODY:
        raise ConfigurationError("role: must be viewer, operator or admin; anybody needs no token")
    return await asked.app.access.tokens.create(said.name, said.role, lasts=said.lasts, by=asked.who.name)


async def revoke(asked: Asked) -> tuple[TokenView, ...]:
    return await asked.app.access.tokens.revoke(asked.path["token"])


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/tokens",
        role=Role.ADMIN,
        handler=listing,
        says="All tokens, without their secrets; those that are over for a week more.",
        answers=list[TokenView],
    ),
    Route(
        method="POST",
        path="/api/v1/tokens",
        role=Role.ADMIN,
        handler=create,
        says="Make a token. Its secret is in this answer, and nobody can read it again.",
        takes=Annotated[NewToken, Meta(examples=[{"name": "shop", "role": "operator"}])],
        answers=Issued,
        made=lambda issued: {"token": issued.token.id},
        status=HTTPStatus.CREATED,
    ),
    Route(
        method="DELETE",
        path="/api/v1/tokens/{token}",
        role=Role.ADMIN,
        handler=revoke,
        says="Revoke a token by its id, or all of a user; their sessions end with them.",
        answers=tuple[TokenView, ...],
    ),
)
