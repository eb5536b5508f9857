"""One pool, or one key of it: what is used of each limit, what closes it, and the last 24 hours."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import msgspec

from tidemill.contract.pools import PoolMinute
from tidemill.seam.answers import Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.api.fields import Name
from tidemill.web.asked import Asked
from tidemill.web.lasting import store_now
from tidemill.web.pages.pools import busiest
from tidemill.web.wording import words

DAY = 86_400.0
STEP = 300.0
KEYS_SHOWN = 100


class PoolWanted(msgspec.Struct, frozen=True, kw_only=True):
    key: Name | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    tone: str
    values: list[float]
    fill: bool = False


class Chart(msgspec.Struct, frozen=True):
    """As `js/charts.js` draws it."""

    at: list[float]
    lines: list[Line]


async def pool(asked: Asked) -> Page:
    name, key = asked.path["pool"], asked.query.key
    every = await asked.inspect.pools(sparing=True)
    found = next((pool for pool in every if (pool.name, pool.key) == (name, key)), None)
    if found is None:  # a key nobody has used yet, or a pool that is not there
        found = await asked.inspect.pool(name, key=key, sparing=True)
    keys = busiest(every, name) if key is None else []
    return Page(
        "pool.html",
        {
            "pool": found,
            "keys": keys[:KEYS_SHOWN],
            "more": max(0, len(keys) - KEYS_SHOWN),
            "here": await store_now(asked),
        },
        live=("head", "tanks", "facts", "limits", "keys"),
    )


async def chart(asked: Asked) -> Chart:
    """Calls and refusals of 24 hours, in steps of five minutes."""
    now = await store_now(asked)
    minutes = await asked.inspect.pool_history(asked.path["pool"], now - DAY)
    say = words(asked.language)
    first = (now - DAY) // STEP + 1
    by_step = {step: list(some) for step, some in groupby(minutes, key=lambda minute: minute.at // STEP)}
    steps = [first + number for number in range(int(DAY / STEP))]
    return Chart(
        [step * STEP for step in steps],
        [
            Line(
                name=say("pool.calls"),
                tone="water",
                fill=True,
                values=[float(sum(minute.calls for minute in by_step.get(step, ()))) for step in steps],
            ),
            Line(
                name=say("pool.refusals"),
                tone="vermilion",
                values=[_refusals(by_step.get(step, ())) for step in steps],
            ),
        ],
    )


def _refusals(minutes: Iterable[PoolMinute]) -> float:
    return float(sum(sum(minute.refusals.values()) for minute in minutes))


ROUTES = (
    Route(
        method="GET",
        path="/pools/{pool}",
        role=Role.VIEWER,
        handler=pool,
        says="One pool, or one key of it.",
        query=PoolWanted,
    ),
    Route(
        method="GET",
        path="/pools/{pool}/chart",
        role=Role.VIEWER,
        handler=chart,
        says="Calls and refusals of a pool in the last 24 hours.",
        answers=Chart,
    ),
)
