"""What is done to a pool from its page."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import msgspec

from tidemill.seam.answers import Go
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role
from tidemill.seam.routes import Handler, Route
from tidemill.web.api.fields import Name, Sentence
from tidemill.web.asked import Asked
from tidemill.web.going import go
from tidemill.web.lasting import end_of


class OverrideLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Every limit with the amount that shall hold; what is as it was is not put over anything."""

    limits: list[str] = msgspec.field(name="limit", default_factory=list)
    amounts: list[float] = msgspec.field(name="amount", default_factory=list)
    lasts: str | None = None
    reason: Sentence | None = None


class ClosePool(msgspec.Struct, frozen=True, kw_only=True):
    key: Name | None = None
    lasts: str | None = None
    reason: Sentence | None = None


class OpenPool(msgspec.Struct, frozen=True, kw_only=True):
    key: Name | None = None


async def override(asked: Asked) -> Go:
    said: OverrideLimits = asked.body
    name = asked.path["pool"]
    holds = {limit.name: limit.amount for limit in (await asked.inspect.pool(name, sparing=True)).limits}
    if len(said.limits) != len(said.amounts):
        raise _refused("every limit needs an amount; close the pool to allow nothing", "amount")
    wanted = dict(zip(said.limits, said.amounts, strict=True))
    changes = {limit: amount for limit, amount in wanted.items() if amount != holds.get(limit)}
    if not changes:
        raise _refused("every amount is as it was; change one to override it", "amount")
    until = await end_of(asked, said.lasts)
    await asked.inspect.override_pool(name, changes, by=asked.who.name, reason=said.reason, until=until)
    return _back(asked, "pool.was_set")


async def follow(asked: Asked) -> Go:
    await asked.inspect.clear_pool_override(asked.path["pool"])
    return _back(asked, "pool.follows")


async def close(asked: Asked) -> Go:
    said: ClosePool = asked.body
    await asked.inspect.close_pool(
        asked.path["pool"],
        by=asked.who.name,
        key=said.key,
        until=await end_of(asked, said.lasts),
        reason=said.reason,
    )
    return _back(asked, "pool.was_closed", said.key)


async def open_(asked: Asked) -> Go:
    said: OpenPool = asked.body
    await asked.inspect.open_pool(asked.path["pool"], key=said.key)
    return _back(asked, "pool.was_opened", said.key)


def _back(asked: Asked, told: str, key: str | None = None) -> Go:
    query = f"?{urlencode({'key': key})}" if key is not None else ""
    return go(asked, "/pools/{}", asked.path["pool"], told=told, query=query)


def _refused(sentence: str, field: str) -> Refused:
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"{field}: {sentence}", field=field)


def _post(verb: str, handler: Handler, role: Role, says: str, takes: Any = None) -> Route:
    path = f"/pools/{{pool}}/{verb}"
    return Route(method="POST", path=path, role=role, handler=handler, says=says, takes=takes)


ROUTES = (
    _post("override", override, Role.ADMIN, "Other amounts than the code's.", OverrideLimits),
    _post("follow", follow, Role.ADMIN, "The code's amounts again."),
    _post("close", close, Role.OPERATOR, "No job that needs the pool starts.", ClosePool),
    _post("open", open_, Role.OPERATOR, "The end of every closure of it.", OpenPool),
)
