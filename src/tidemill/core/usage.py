"""How much of a pool is used at a moment, for whoever looks at it."""

from __future__ import annotations

import math

from msgspec.structs import replace

from tidemill.core import breaker as breakers
from tidemill.core import learning
from tidemill.core.accounts import Account
from tidemill.core.breaker import Breaker
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings
from tidemill.core.units import Units
from tidemill.core.windows import Instant, fits
from tidemill.core.windows.paced import Paced
from tidemill.core.windows.window import TINY

UNUSED_FOR = 60.0
"""Seconds a key is left alone before a prune asks whether it is at rest and can be forgotten."""


def used(pool: PoolSettings, account: Account, limit: Limit, now: Instant) -> float:
    """What counts now, in debt more than the limit."""
    return account.state.counted(limit, now, pool.guards)


def foreign(pool: PoolSettings, account: Account, now: Instant) -> Units:
    """What others were seen to use in the windows that run."""
    counts = {
        limit.name: account.foreign[limit.name].counted(limit, now, pool.guards)
        for limit in pool.limits
        if limit.name in account.foreign and fits(account.foreign[limit.name], limit)
    }
    return {name: units for name, units in counts.items() if units > TINY}


def free_in(pool: PoolSettings, account: Account, limit: Limit, now: Instant) -> float | None:
    """Seconds until the whole limit is free, None when nobody can say."""
    if used(pool, account, limit, now) <= TINY:
        return 0.0
    wait = account.state.wait(limit, pool.most(limit), now, pool.guards)
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
    if learning.matters(pool, account.learned, account.suspects, now.wall):
        return False
    return told == Breaker() and not is_closed(account, now) and not is_used(pool, account, now)
