"""The page of all pools, the page of one pool, and the actions override limits, close and open."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

import msgspec

from tidemill.contract.pools import PoolMinute
from tidemill.http_routes.problems import HTTPError
from tidemill.http_routes.routes import Handler, PageResponse, Redirect, Role, Route
from tidemill.inspect.pools import PoolStatus
from tidemill.web.api.schemas import Name
from tidemill.web.i18n import translator
from tidemill.web.pages.queues import OperatorForm
from tidemill.web.request import RouteRequest

MAX_KEYS_PER_CARD = 6


class PoolCard(msgspec.Struct, frozen=True, kw_only=True):
    """A pool with its busiest keys, and the number of further keys."""

    pool: PoolStatus
    keys: tuple[PoolStatus, ...]
    more: int


async def pools_page(request: RouteRequest) -> PageResponse:
    pools = await request.inspect.pools(cached=True)
    return PageResponse(
        "pools.html",
        {"pools": [_pool_card(pool, pools) for pool in pools if pool.key is None]},
        live=("pools",),
    )


def busiest_keys(pools: Iterable[PoolStatus], name: str) -> list[PoolStatus]:
    """Returns the status of each key of the pool `name`, sorted: closed keys first, then the keys with most
    waiting jobs, then the keys with the highest usage."""
    keys = [pool for pool in pools if pool.name == name and pool.key is not None]
    return sorted(keys, key=lambda pool: (pool.is_open, -pool.waiting, -pool_usage(pool), pool.key))


def pool_usage(pool: PoolStatus) -> float:
    return max((limit.used / limit.amount for limit in pool.limits), default=0.0)


def _pool_card(pool: PoolStatus, found: list[PoolStatus]) -> PoolCard:
    keys = busiest_keys(found, pool.name) if pool.keyed else []
    return PoolCard(
        pool=pool, keys=tuple(keys[:MAX_KEYS_PER_CARD]), more=max(0, len(keys) - MAX_KEYS_PER_CARD)
    )


POOLS_ROUTES = (
    Route(
        method="GET",
        path="/pools",
        role=Role.VIEWER,
        handler=pools_page,
        summary="All pools.",
    ),
)


DAY_SECONDS = 86_400.0
CHART_STEP_SECONDS = 300.0
MAX_KEYS_SHOWN = 100


class PoolPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    key: Name | None = None


class ChartLine(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    tone: str
    values: list[float]
    fill: bool = False


class PoolChart(msgspec.Struct, frozen=True):
    """The data of the chart that `js/charts.js` draws. `at` has Unix times. Each of `lines` has one value for
    each of these times."""

    at: list[float]
    lines: list[ChartLine]


async def pool_page(request: RouteRequest) -> PageResponse:
    name, key = request.path["pool"], request.query.key
    pools = await request.inspect.pools(cached=True)
    status = next((pool for pool in pools if (pool.name, pool.key) == (name, key)), None)
    if status is None:  # an unused key, or an unknown pool
        status = await request.inspect.pool(name, key=key, cached=True)
    keys = busiest_keys(pools, name) if key is None else []
    context = {
        "pool": status,
        "keys": keys[:MAX_KEYS_SHOWN],
        "more": max(0, len(keys) - MAX_KEYS_SHOWN),
        "store_time": await request.store_now(),
    }
    return PageResponse("pool.html", context, live=("head", "limit_gauges", "facts", "limits", "keys"))


async def pool_chart(request: RouteRequest) -> PoolChart:
    """Returns the calls and refusals of a pool in the last 24 hours, with one value per five minutes."""
    now = await request.store_now()
    minutes = await request.inspect.pool_history(request.path["pool"], now - DAY_SECONDS)
    translate = translator(request.language)
    first = (now - DAY_SECONDS) // CHART_STEP_SECONDS + 1
    by_step = {
        step: list(group)
        for step, group in groupby(minutes, key=lambda minute: minute.at // CHART_STEP_SECONDS)
    }
    steps = [first + number for number in range(int(DAY_SECONDS / CHART_STEP_SECONDS))]
    return PoolChart(
        [step * CHART_STEP_SECONDS for step in steps],
        [
            ChartLine(
                name=translate("pool.calls"),
                tone="water",
                fill=True,
                values=[float(sum(minute.calls for minute in by_step.get(step, ()))) for step in steps],
            ),
            ChartLine(
                name=translate("pool.refusals"),
                tone="vermilion",
                values=[_count_refusals(by_step.get(step, ())) for step in steps],
            ),
        ],
    )


def _count_refusals(minutes: Iterable[PoolMinute]) -> float:
    return float(sum(sum(minute.refusals.values()) for minute in minutes))


POOL_ROUTES = (
    Route(
        method="GET",
        path="/pools/{pool}",
        role=Role.VIEWER,
        handler=pool_page,
        summary="One pool, or one key of it.",
        query=PoolPageQuery,
    ),
    Route(
        method="GET",
        path="/pools/{pool}/chart",
        role=Role.VIEWER,
        handler=pool_chart,
        summary="Calls and refusals of a pool in the last 24 hours.",
        response=PoolChart,
    ),
)


class OverrideLimitsForm(OperatorForm, frozen=True, kw_only=True):
    """The form that overrides the limits of a pool.

    - `limits`, `amounts`: the names of all limits, and their amounts in the same order
    - `duration`: how long the override lasts, such as `2h`; empty for no end
    - `key`: the override applies only to this key of a keyed pool"""

    key: Name | None = None
    limits: list[str] = msgspec.field(name="limit", default_factory=list)
    amounts: list[float] = msgspec.field(name="amount", default_factory=list)


class ClosePoolForm(OperatorForm, frozen=True, kw_only=True):
    key: Name | None = None


class PoolKeyForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form that opens a pool, or removes its override. With `key`, the change applies only to this key of
    a keyed pool."""

    key: Name | None = None


async def override_limits(request: RouteRequest) -> Redirect:
    body: OverrideLimitsForm = request.body
    name = request.path["pool"]
    status = await request.inspect.pool(name, key=body.key, cached=True)
    current = {limit.name: limit.amount for limit in status.limits}
    if len(body.limits) != len(body.amounts):
        raise _invalid_field_error("every limit needs an amount; close the pool to allow nothing", "amount")
    amounts = dict(zip(body.limits, body.amounts, strict=True))
    changes = {limit: amount for limit, amount in amounts.items() if amount != current.get(limit)}
    if not changes:
        raise _invalid_field_error("every amount is as it was; change one to override it", "amount")
    await request.inspect.override_pool(
        name, changes, key=body.key, by=request.user.name, **await body.mark(request)
    )
    return _redirect_to_pool(request, "pool.notice_saved", body.key)


async def clear_limit_override(request: RouteRequest) -> Redirect:
    body: PoolKeyForm = request.body
    await request.inspect.clear_pool_override(request.path["pool"], key=body.key)
    return _redirect_to_pool(request, "pool.notice_override_removed", body.key)


async def close_pool(request: RouteRequest) -> Redirect:
    body: ClosePoolForm = request.body
    await request.inspect.close_pool(
        request.path["pool"], by=request.user.name, key=body.key, **await body.mark(request)
    )
    return _redirect_to_pool(request, "pool.notice_closed", body.key)


async def open_pool(request: RouteRequest) -> Redirect:
    body: PoolKeyForm = request.body
    await request.inspect.open_pool(request.path["pool"], key=body.key)
    return _redirect_to_pool(request, "pool.notice_opened", body.key)


def _redirect_to_pool(request: RouteRequest, notice: str, key: str | None = None) -> Redirect:
    query = f"?{urlencode({'key': key})}" if key is not None else ""
    return request.redirect("/pools/{}", request.path["pool"], notice=notice, query=query)


def _invalid_field_error(sentence: str, field: str) -> HTTPError:
    return HTTPError(HTTPStatus.UNPROCESSABLE_ENTITY, f"{field}: {sentence}", field=field)


def _pool_action_route(verb: str, handler: Handler, role: Role, summary: str, body: Any = None) -> Route:
    path = f"/pools/{{pool}}/{verb}"
    return Route(method="POST", path=path, role=role, handler=handler, summary=summary, body=body)


POOL_ACTION_ROUTES = (
    _pool_action_route("override", override_limits, Role.ADMIN, "Override limits.", OverrideLimitsForm),
    _pool_action_route(
        "clear-override", clear_limit_override, Role.ADMIN, "Remove the override.", PoolKeyForm
    ),
    _pool_action_route("close", close_pool, Role.OPERATOR, "Close the pool.", ClosePoolForm),
    _pool_action_route("open", open_pool, Role.OPERATOR, "Open the pool.", PoolKeyForm),
)

ROUTES = (*POOLS_ROUTES, *POOL_ROUTES, *POOL_ACTION_ROUTES)
