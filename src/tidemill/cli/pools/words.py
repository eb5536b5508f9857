"""Pools as people read them."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.cli.output import moment
from tidemill.contract.pools import LimitView
from tidemill.core.closing import Closure
from tidemill.core.pools import PoolOverride
from tidemill.inspect.draining import Forecast
from tidemill.inspect.pools import PoolStatus
from tidemill.inspect.words import duration, plural

WIDTH = 10
_THOUSAND = 1000
NEVER = "not before a person acts"


def named(pool: PoolStatus) -> str:
    return pool.name if pool.key is None else f"{pool.name}/{pool.key}"


def gauge(limit: LimitView) -> str:
    """Ten steps; whatever is used shows, and only a full one looks full."""
    share = limit.used / limit.amount
    filled = min(WIDTH, int(share * WIDTH))
    if limit.used > 0:
        filled = max(filled, 1)
    return "#" * filled + "-" * (WIDTH - filled)


def used(limit: LimitView) -> str:
    return f"{amount(limit.used)} of {amount(limit.amount)}"


def amount(units: float) -> str:
    """`950`, `12.5k`, `20M`."""
    for size, letter in ((1_000_000, "M"), (_THOUSAND, "k")):
        if units >= size * 10:
            return f"{_rounded(units / size, 3)}{letter}"
    return _rounded(units, 4)


def _rounded(number: float, digits: int) -> str:
    """Never with an exponent, which `g` takes for large ones."""
    return f"{float(f'{number:.{digits}g}'):.15g}"


def free(limit: LimitView) -> str:
    if limit.used <= 0:
        return "now"
    return "" if limit.free_in is None else duration(limit.free_in)


def state(pool: PoolStatus, told_as: Callable[[float], str] = moment) -> str:
    """`open`, or until when and why not: what a narrow table cuts off is by whom."""
    told = []
    if pool.closed is not None:
        end = "it is opened" if pool.closed.until is None else told_as(pool.closed.until)
        why = f": {pool.closed.reason}" if pool.closed.reason else ""
        told.append(f"closed until {end}{why} (by {pool.closed.by})")
    told += [tripped(closure, told_as) for closure in pool.closures]
    if not told and pool.ramp is not None:
        told.append(f"opening, {pool.ramp:.0%}")
    return "; ".join(told) or "open"


def tripped(closure: Closure, told_as: Callable[[float], str] = moment) -> str:
    end = "it is opened" if closure.until is None else told_as(closure.until)
    return f"{closure.reason}: closed until {end}"


def brief(wall: float) -> str:
    """To the minute, where a table has room for no more."""
    return moment(wall)[:16]


def overridden(override: PoolOverride) -> str:
    """`requests per minute=5 by ann@host since …, until …: why`."""
    changes = ", ".join(f"{name}={amount:g}" for name, amount in override.changes.amounts.items())
    end = f", until {moment(override.until)}" if override.until else ""
    why = f": {override.reason}" if override.reason else ""
    return f"{changes} by {override.by} since {moment(override.since)}{end}{why}"


def drained(forecast: Forecast | None) -> str:
    """When a backlog is done."""
    if forecast is None:
        return ""
    return NEVER if forecast.done_at is None else moment(forecast.done_at)


def waiting(pool: PoolStatus) -> str | None:
    if not pool.waiting:
        return None
    done = drained(pool.forecast)
    return plural(pool.waiting, "job") + (f", done {done}" if done else "")
