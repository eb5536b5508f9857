"""Tokens: who may come in, and as what. A secret is shown once, when it is made."""

from __future__ import annotations

import msgspec

from tidemill.seam.answers import Go, Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.fields import Name
from tidemill.web.asked import Asked
from tidemill.web.going import go
from tidemill.web.lasting import span_of


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    name: Name
    role: Role
    lasts: str | None = None


async def tokens(asked: Asked) -> Page:
    return Page("tokens.html", {"tokens": await asked.app.access.tokens.list()}, live=("tokens",))


async def create(asked: Asked) -> Page:
    said: NewToken = asked.body
    lasts = span_of(said.lasts, field="lasts")
    issued = await asked.app.access.tokens.create(said.name, said.role, lasts=lasts, by=asked.who.name)
    return Page("token.html", {"token": issued.token, "secret": issued.secret})


async def revoke(asked: Asked) -> Go:
    [token] = await asked.app.access.tokens.revoke(asked.path["token"])
    return go(asked, "/tokens", told="tokens.was_revoked", name=token.name)


ROUTES = (
    Route(
        method="GET",
        path="/tokens",
        role=Role.ADMIN,
        handler=tokens,
        says="All tokens, without their secrets.",
    ),
    Route(
        method="POST",
        path="/tokens",
        role=Role.ADMIN,
        handler=create,
        says="Make a token; its secret is on this page and on no other.",
        takes=NewToken,
    ),
    Route(
        method="POST",
        path="/tokens/{token}/revoke",
        role=Role.ADMIN,
        handler=revoke,
        says="Revoke a token; its sessions end with it.",
    ),
)
