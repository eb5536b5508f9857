"""Pools: what providers meter, how much is used, and what people set on them."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from tidemill.contract.pools import PoolMinute
from tidemill.inspect.pools import PoolStatus
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.fields import Body, Name, Query, Sentence, Time
from tidemill.web.api.queues import Since, since_of
from tidemill.web.asked import Asked

Amount = Annotated[float, Meta(gt=0, le=1e15)]


class Key(Query, frozen=True, kw_only=True):
    """One key of a pool that has keys."""

    key: Name | None = None


class LimitOverride(Body, frozen=True, kw_only=True):
    """`amounts` by the name of the limit, such as "requests per minute"; they join the override that holds.
    `until` ends all of it; null takes an end away."""

    amounts: Annotated[dict[Name, Amount], Meta(min_length=1)]
    reason: Sentence | None = None
    until: Time | UnsetType | None = UNSET


class Close(Body, frozen=True, kw_only=True):
    """Without `until` it lasts until somebody opens it; `key` is one key of a pool that has keys."""

    key: Name | None = None
    until: Time | None = None
    reason: Sentence | None = None


class Open(Body, frozen=True, kw_only=True):
    key: Name | None = None


class LimitNames(Query, frozen=True, kw_only=True):
    """Without any, all of them."""

    limits: list[Name] = field(default_factory=list, name="limit")


async def listing(asked: Asked) -> list[PoolStatus]:
    return await asked.inspect.pools(sparing=True)


async def usage(asked: Asked) -> PoolStatus:
    return await asked.inspect.pool(asked.path["pool"], key=asked.query.key)


async def override(asked: Asked) -> PoolStatus:
    said: LimitOverride = asked.body
    await _require_limits(asked, said.amounts, "amounts.")
    return await asked.inspect.override_pool(
        asked.path["pool"], said.amounts, by=asked.who.name, reason=said.reason, until=said.until
    )


async def clear(asked: Asked) -> PoolStatus:
    await _require_limits(asked, asked.query.limits)
    return await asked.inspect.clear_pool_override(asked.path["pool"], *asked.query.limits)


async def _require_limits(asked: Asked, named: Iterable[str], within: str = "") -> None:
    pool = await asked.inspect.pool(asked.path["pool"])
    known = [limit.name for limit in pool.limits]
    for name in named:
        if name not in known:
            field = f"{within}{name}" if within else "limit"
            raise Refused(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"{field}: pool {pool.name!r} has no limit {name!r}; there are: {', '.join(known)}",
                field=field,
            )


async def close(asked: Asked) -> PoolStatus:
    said: Close = asked.body
    pool = asked.path["pool"]
    await asked.inspect.close_pool(
        pool, by=asked.who.name, key=said.key, until=said.until, reason=said.reason
    )
    return await asked.inspect.pool(pool, key=said.key)


async def open_(asked: Asked) -> PoolStatus:
    pool, key = asked.path["pool"], asked.body.key
    await asked.inspect.pool(pool, key=key)
    await asked.inspect.open_pool(pool, key=key)
    return await asked.inspect.pool(pool, key=key)


async def history(asked: Asked) -> list[PoolMinute]:
    return await asked.inspect.pool_history(asked.path["pool"], await since_of(asked))


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/pools",
        role=Role.VIEWER,
        handler=listing,
        says="Every declared pool, and of those with keys each that has something taken or closed.",
        answers=list[PoolStatus],
    ),
    Route(
        method="GET",
        path="/api/v1/pools/{pool}",
        role=Role.VIEWER,
        handler=usage,
        says="What is used of one pool, who waits for it, and what closes or overrides it.",
        query=Key,
        answers=PoolStatus,
    ),
    Route(
        method="PATCH",
        path="/api/v1/pools/{pool}/limits",
        role=Role.ADMIN,
        handler=override,
        says="Put other amounts over those code declared; no deploy erases them.",
        takes=Annotated[LimitOverride, Meta(examples=[{"amounts": {"requests per minute": 5}}])],
        answers=PoolStatus,
    ),
    Route(
        method="DELETE",
        path="/api/v1/pools/{pool}/limits",
        role=Role.ADMIN,
        handler=clear,
        says="The named limits follow the code again; without names, all of them.",
        query=LimitNames,
        answers=PoolStatus,
    ),
    Route(
        method="POST",
        path="/api/v1/pools/{pool}/close",
        role=Role.OPERATOR,
        handler=close,
        says="Calls under way go on; no job that needs the pool starts until a time, or until it is opened.",
        takes=Close,
        answers=PoolStatus,
    ),
    Route(
        method="POST",
        path="/api/v1/pools/{pool}/open",
        role=Role.OPERATOR,
        handler=open_,
        says="The pool is open, whoever closed it, without a probe.",
        takes=Open,
        answers=PoolStatus,
    ),
    Route(
        method="GET",
        path="/api/v1/pools/{pool}/history",
        role=Role.VIEWER,
        handler=history,
        says="Calls, units and refusals of the pool, minute by minute, quiet ones left out.",
        query=Since,
        answers=list[PoolMinute],
    ),
)
