"""Everything at a glance, and first what needs somebody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import msgspec

from tidemill.contract.pools import LimitView
from tidemill.contract.reader import Minute
from tidemill.core.states import State
from tidemill.inspect.inspector import Inspector
from tidemill.inspect.pools import PoolStatus
from tidemill.inspect.views import Overview, QueueView
from tidemill.seam.answers import Page
from tidemill.seam.roles import Role
from tidemill.seam.routes import Route
from tidemill.web.asked import Asked

HOUR, MINUTE = 3600.0, 60.0
LONG_WAIT = 600.0
"""So many seconds without a start are worth a look, when nothing holds the queue back on purpose."""
MOST_POOLS = 12
"""The fullest; the page of pools has all."""

What = Literal["store", "unserved", "tripped", "closed", "paused", "failed", "late", "dropped"]


class Matter(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs a person: of which queue or pool, how many jobs, since or until when."""

    what: What
    name: str = ""
    key: str | None = None
    count: int = 0
    at: float | None = None
    text: str | None = None

    @property
    def grave(self) -> bool:
        return self.what in {"store", "unserved", "tripped"}


class Rates(msgspec.Struct, frozen=True):
    """Jobs that ended in each minute of the last hour, and how many failed in it."""

    ended: tuple[int, ...]
    failed: int


async def overview(asked: Asked) -> Page:
    seen = await asked.inspect.overview(sparing=True)
    rates = {queue.name: await rates_of(asked.inspect, queue.name, seen.now) for queue in seen.queues}
    pools = sorted(seen.pools, key=lambda pool: (pool.is_open, -fullest(pool.limits)))
    shows = {
        "seen": seen,
        "rates": rates,
        "matters": sorted(matters(seen), key=lambda matter: not matter.grave),
        "pools": pools[:MOST_POOLS],
        "more_pools": max(0, len(pools) - MOST_POOLS),
        "fullest": fullest,
        "most": max((queue.size for queue in seen.queues), default=0),
        "counts": {state: sum(queue.counts[state] for queue in seen.queues) for state in State},
        "ended": [sum(minute) for minute in zip(*(rate.ended for rate in rates.values()), strict=True)],
    }
    return Page("overview.html", shows, live=("glance", "matters", "queues", "pools", "workers"))


async def rates_of(inspect: Inspector, queue: str, now: float) -> Rates:
    """By whole minutes: the one that runs is not over."""
    begun = now // MINUTE * MINUTE
    minutes = await inspect.history(queue, begun - HOUR)
    by_minute = {minute.at: minute for minute in minutes if minute.at < begun}
    ended = [_ended(by_minute.get(begun - MINUTE * back)) for back in range(60, 0, -1)]
    return Rates(tuple(ended), sum(minute.failed for minute in minutes))


def _ended(minute: Minute | None) -> int:
    return 0 if minute is None else minute.done + minute.failed


def fullest(limits: Sequence[LimitView]) -> float:
    """The share of the limit that is used most."""
    return max((limit.used / limit.amount for limit in limits), default=0.0)


def matters(seen: Overview) -> Iterator[Matter]:
    for warning in seen.store.warnings:
        yield Matter(what="store", text=warning)
    for queue in seen.queues:
        yield from _of_queue(queue, seen.now)
    for pool in seen.pools:
        yield from _of_pool(pool)


def _of_pool(pool: PoolStatus) -> Iterator[Matter]:
    of = partial(Matter, name=pool.name, key=pool.key)
    if pool.closed is not None:
        yield of(what="closed", at=pool.closed.until, text=pool.closed.reason)
    for closure in pool.closures:
        yield of(what="tripped", at=closure.until, text=closure.text or closure.reason)


def _of_queue(queue: QueueView, now: float) -> Iterator[Matter]:
    ready = queue.counts[State.READY]
    if ready and not queue.workers:
        yield Matter(what="unserved", name=queue.name, count=ready)
    elif queue.pause is not None:
        yield Matter(what="paused", name=queue.name, at=queue.pause.until, text=queue.pause.reason)
    elif queue.latency is not None and queue.latency > LONG_WAIT:
        yield Matter(what="late", name=queue.name, count=ready, at=now - queue.latency)
    if failed := queue.counts[State.FAILED]:
        yield Matter(what="failed", name=queue.name, count=failed)
    if queue.dropped_early:
        yield Matter(what="dropped", name=queue.name, count=queue.dropped_early)


ROUTES = (Route(method="GET", path="/", role=Role.VIEWER, handler=overview, says="Everything at a glance."),)
