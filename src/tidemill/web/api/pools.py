"""API routes for pools: usage, history, limit overrides, closing and opening."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from tidemill.contract.pools import PoolMinute
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import Role, Route
from tidemill.inspect.pools import PoolStatus
from tidemill.web.api.queues import HistoryQuery, history_start
from tidemill.web.api.schemas import (
    Name,
    QueryParameters,
    RequestBody,
    Sentence,
    Time,
    override_arguments,
)
from tidemill.web.request import RouteRequest

Amount = Annotated[float, Meta(gt=0, le=1e15)]


class PoolKeyQuery(QueryParameters, frozen=True, kw_only=True):
    """Selects one `key` of a keyed pool. Without `key` the response describes the pool itself."""

    key: Name | None = None


class PoolLimitsBody(RequestBody, frozen=True, kw_only=True):
    """An override of the limits of a pool. It is merged with an existing override.

    - `amounts`: the new amount of each limit, by a name such as "requests per minute"
    - `key`: the override applies only to this key of a keyed pool
    - `until`: the end of the whole override. If it is missing, the present end stays; null removes the end"""

    amounts: Annotated[dict[Name, Amount], Meta(min_length=1)]
    key: Name | None = None
    reason: Sentence | None = None
    until: Time | UnsetType | None = UNSET


class ClosePoolBody(RequestBody, frozen=True, kw_only=True):
    """A request to close a pool, or only one `key` of a keyed pool. It stays closed until the time `until`;
    without `until`, until an operator opens it."""

    key: Name | None = None
    until: Time | None = None
    reason: Sentence | None = None


class OpenPoolBody(RequestBody, frozen=True, kw_only=True):
    key: Name | None = None


class LimitNamesQuery(QueryParameters, frozen=True, kw_only=True):
    """The names of the limits whose override is removed. Without names, the override of all limits is
    removed. With `key`, the override of one key of a keyed pool is removed."""

    limits: list[Name] = field(default_factory=list, name="limit")
    key: Name | None = None


async def list_pools(request: RouteRequest) -> list[PoolStatus]:
    return await request.inspect.pools(cached=True)


async def get_pool(request: RouteRequest) -> PoolStatus:
    return await request.inspect.pool(request.path["pool"], key=request.query.key)


async def override_limits(request: RouteRequest) -> PoolStatus:
    await _require_limits(request, request.body.amounts, "amounts.")
    return await request.inspect.override_pool(request.path["pool"], **override_arguments(request))


async def clear_limit_override(request: RouteRequest) -> PoolStatus:
    query: LimitNamesQuery = request.query
    await _require_limits(request, query.limits)
    return await request.inspect.clear_pool_override(request.path["pool"], *query.limits, key=query.key)


async def _require_limits(request: RouteRequest, names: Iterable[str], field_prefix: str = "") -> None:
    pool = await request.inspect.pool(request.path["pool"])
    known = [limit.name for limit in pool.limits]
    for name in names:
        if name not in known:
            field = f"{field_prefix}{name}" if field_prefix else "limit"
            raise HTTPError(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"{field}: pool {pool.name!r} has no limit {name!r}; there are: {', '.join(known)}",
                field=field,
            )


async def close_pool(request: RouteRequest) -> PoolStatus:
    body: ClosePoolBody = request.body
    pool = request.path["pool"]
    await request.inspect.close_pool(
        pool, by=request.user.name, key=body.key, until=body.until, reason=body.reason
    )
    return await request.inspect.pool(pool, key=body.key)


async def open_pool(request: RouteRequest) -> PoolStatus:
    pool, key = request.path["pool"], request.body.key
    await request.inspect.pool(pool, key=key)
    await request.inspect.open_pool(pool, key=key)
    return await request.inspect.pool(pool, key=key)


async def get_pool_history(request: RouteRequest) -> list[PoolMinute]:
    return await request.inspect.pool_history(request.path["pool"], await history_start(request))


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/pools",
        role=Role.VIEWER,
        handler=list_pools,
        summary="All declared pools, and of keyed pools the keys that are in use, closed or overridden.",
        response=list[PoolStatus],
    ),
    Route(
        method="GET",
        path="/api/v1/pools/{pool}",
        role=Role.VIEWER,
        handler=get_pool,
        summary="One pool: usage, waiting jobs, closures and override.",
        query=PoolKeyQuery,
        response=PoolStatus,
    ),
    Route(
        method="PATCH",
        path="/api/v1/pools/{pool}/limits",
        role=Role.ADMIN,
        handler=override_limits,
        summary="Override declared limits of a pool or of one key; the override survives deployments.",
        body=Annotated[PoolLimitsBody, Meta(examples=[{"amounts": {"requests per minute": 5}}])],
        response=PoolStatus,
    ),
    Route(
        method="DELETE",
        path="/api/v1/pools/{pool}/limits",
        role=Role.ADMIN,
        handler=clear_limit_override,
        summary="Remove the override of the named limits; without names, of all.",
        query=LimitNamesQuery,
        response=PoolStatus,
    ),
    Route(
        method="POST",
        path="/api/v1/pools/{pool}/close",
        role=Role.OPERATOR,
        handler=close_pool,
        summary="Close the pool until a time, or until it is opened. Running calls finish.",
        body=ClosePoolBody,
        response=PoolStatus,
    ),
    Route(
        method="POST",
        path="/api/v1/pools/{pool}/open",
        role=Role.OPERATOR,
        handler=open_pool,
        summary="Open the pool at once, without a probe.",
        body=OpenPoolBody,
        response=PoolStatus,
    ),
    Route(
        method="GET",
        path="/api/v1/pools/{pool}/history",
        role=Role.VIEWER,
        handler=get_pool_history,
        summary="Calls, units and refusals of the pool per minute; minutes without any are left out.",
        query=HistoryQuery,
        response=list[PoolMinute],
    ),
)
