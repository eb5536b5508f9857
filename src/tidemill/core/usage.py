"""How much of a pool is used at a moment, for whoever looks at it."""

from __future__ import annotations

import math

from msgspec.structs import replace

from tidemill.core import breaker as breakers
from tidemill.core.accounts import Account
from tidemill.core.breaker import Breaker
from tidemill.core.calendars import period_at
from tidemill.core.limits import Limit, calendar_of
from tidemill.core.pools import PoolSettings
from tidemill.core.windows import Instant
from tidemill.core.windows.calendar import CalendarCount
from tidemill.core.windows.paced import Paced
from tidemill.core.windows.window import TINY

UNUSED_FOR = 60.0
"""Seconds a key is left alone before a prune asks whether it is at rest and can be forgotten."""


def used(pool: PoolSettings, account: Account, limit: Limit, now: Instant) -> float:
    """What counts now, in debt more than the limit. Guards, a pace or the turn of a period keep calls
    back, but nothing is used by them."""
    window = account.state.window(limit)
    if isinstance(window, CalendarCount):
        begun = period_at(calendar_of(limit), now.wall).start
        return window.used if window.period >= begun else 0.0
    if isinstance(window, Paced):
        window = window.rolling
    return max(0.0, pool.most(limit) - window.room(limit, now, pool.guards))


def free_in(pool: PoolSettings, account: Account, limit: Limit, now: Instant) -> float | None:
    """Seconds until the whole limit is free, None when nobody can say."""
    if used(pool, account, limit, now) <= TINY:
        return 0.0
    wait = account.state.window(limit).wait(limit, pool.most(limit), now, pool.guards)
    return None if math.isinf(wait) else wait


def is_used(pool: PoolSettings, account: Account, now: Instant) -> bool:
    return any(used(pool, account, limit, now) > TINY for limit in pool.limits)


def is_closed(account: Account, now: Instant) -> bool:
    """By hand, or by a closure that still holds or waits for its probe."""
    by_hand = account.closed is not None and account.closed.holds(now.wall)
    return by_hand or bool(breakers.tidied(account.breaker, now).closures)


def at_rest(pool: PoolSettings, account: Account, now: Instant) -> bool:
    """Nothing worth keeping, beside reservations: an account that is not there would answer the same."""
    hold, pace = account.state.hold, account.state.windows.values()
    if hold is not None and now.boot < hold.until:
        return False
    if any(isinstance(window, Paced) and window.next > now.boot for window in pace):
        return False
    told = breakers.tidied(account.breaker, now)
    if breakers.ramp_share(pool, told, now) is None:
        told = replace(told, ramp=None)
    return told == Breaker() and not is_closed(account, now) and not is_used(pool, account, now)
