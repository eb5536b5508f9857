"""Reports about a pool: used units, counting errors, history, and changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from tidemill.core import breaker as breakers
from tidemill.core import learned_limits
from tidemill.core.accounts import Account
from tidemill.core.breaker import Breaker
from tidemill.core.closures import Closure
from tidemill.core.learned_spacings import spacing_in_force
from tidemill.core.limits import Limit
from tidemill.core.needs import IMPLIED, Units
from tidemill.core.pools import PoolSettings, PoolState, call_amount
from tidemill.core.reservations import Reservation
from tidemill.core.windows import Instant, fits_limit
from tidemill.core.windows.base import TOLERANCE
from tidemill.core.windows.concurrent_window import ConcurrentWindow
from tidemill.core.windows.rolling_window import PacedWindow

UNUSED_KEY_SECONDS = 60.0
"""Seconds without use after which a prune checks whether a key's account can be dropped."""


def used_units(pool: PoolSettings, account: Account, limit: Limit, now: Instant) -> float:
    """Returns the units of a limit that count as used now. The number is above the limit if calls used more
    than they had reserved."""
    return account.state.counted(limit, now, pool.guards)


def external_units(pool: PoolSettings, account: Account, now: Instant) -> Units:
    """Returns, by limit name, the units that other programs used in the current windows."""
    counts = {
        limit.name: account.external_usage[limit.name].counted(limit, now, pool.guards)
        for limit in pool.limits
        if limit.name in account.external_usage and fits_limit(account.external_usage[limit.name], limit)
    }
    return {name: units for name, units in counts.items() if units > TOLERANCE}


def seconds_until_free(pool: PoolSettings, account: Account, limit: Limit, now: Instant) -> float | None:
    """Returns the seconds until the whole limit is free, if no further call is made; None if unknown."""
    if used_units(pool, account, limit, now) <= TOLERANCE:
        return 0.0
    wait = account.state.wait(limit, pool.most(limit), now, pool.guards)
    return None if math.isinf(wait) else wait


def has_used_units(pool: PoolSettings, account: Account, now: Instant) -> bool:
    return any(used_units(pool, account, limit, now) > TOLERANCE for limit in pool.limits)


def is_closed(account: Account, now: Instant) -> bool:
    """True if an operator closed the pool, or if a closure has not ended or still waits for its probe."""
    by_hand = account.closed is not None and account.closed.holds(now.wall)
    return by_hand or bool(breakers.drop_expired_closures(account.breaker, now).closures)


def is_busy(pool: PoolSettings, account: Account, now: Instant) -> bool:
    """True if the list of pools shows this key even without an open reservation (P7). The key is closed, has
    used units, or has an override or a learned spacing."""
    overridden = account.override is not None and account.override.holds(now.wall)
    spaced = any(spacing_in_force(account.spacings, limit, now.wall) for limit in pool.limits)
    return overridden or spaced or is_closed(account, now) or has_used_units(pool, account, now)


def is_at_rest(pool: PoolSettings, account: Account, now: Instant) -> bool:
    """True if the account can be deleted, because an empty account would behave the same. The caller must
    have checked that the account has no open reservations."""
    if account.override is not None and account.override.holds(now.wall):
        return False
    hold, pace = account.state.hold, account.state.windows.values()
    if hold is not None and now.boot < hold.until:
        return False
    if any(isinstance(window, PacedWindow) and window.next > now.boot for window in pace):
        return False
    breaker = breakers.drop_expired_closures(account.breaker, now)
    if breakers.ramp_share(pool, breaker, now) is None:
        breaker = replace(breaker, ramp=None)
    if learned_limits.has_effect(pool, account.learned, account.suspects, now.wall):
        return False
    if any(
        limit.name in account.spacings and account.spacings[limit.name].holds(limit, now.wall)
        for limit in pool.limits
    ):
        return False
    return breaker == Breaker() and not is_closed(account, now) and not has_used_units(pool, account, now)


def wrong_counts(
    at: str, limits: Sequence[Limit], state: PoolState, reservations: Sequence[Reservation]
) -> Iterator[str]:
    """Yields a sentence for every count in `state` that does not agree with the open `reservations`. `at` is
    the pool's name in these sentences."""
    for limit in limits:
        counts, reserved = _counted_units(state, limit), _reserved_units(reservations, limit)
        if abs(counts - reserved) > TOLERANCE:
            yield f"pool {at!r} counts {counts:g} {limit.name} but {reserved:g} are reserved"
    unchecked = sum(not reservation.checked for reservation in reservations)
    if state.unchecked != unchecked:
        yield f"pool {at!r} counts {state.unchecked} extra requests but {unchecked} are reserved"


def _counted_units(state: PoolState, limit: Limit) -> float:
    """Returns the units of a limit that `state` counts for calls in flight."""
    window = state.window(limit)
    return window.held if isinstance(window, ConcurrentWindow) else state.held.get(limit.name, 0.0)


def _reserved_units(reservations: Sequence[Reservation], limit: Limit) -> float:
    if limit.per is None:
        return sum(
            call_amount(reservation.units, limit) or 0.0
            for reservation in reservations
            if limit.name in reservation.marks
        )
    return sum(reservation.held.get(limit.name, 0.0) for reservation in reservations)


class PoolHistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An addition to a pool's history: calls, used units, and refusals by reason. A pool with keys has one
    history for all its keys."""

    calls: int = 0
    units: Units = msgspec.field(default_factory=dict)
    refusals: dict[str, int] = msgspec.field(default_factory=dict)

    def plus(self, more: PoolHistoryEntry) -> PoolHistoryEntry:
        units = {
            unit: self.units.get(unit, 0.0) + more.units.get(unit, 0.0)
            for unit in sorted(self.units.keys() | more.units.keys())
        }
        refusals = {
            reason: self.refusals.get(reason, 0) + more.refusals.get(reason, 0)
            for reason in sorted(self.refusals.keys() | more.refusals.keys())
        }
        return PoolHistoryEntry(calls=self.calls + more.calls, units=units, refusals=refusals)


def history_entry_of_call(
    pool: PoolSettings, reservation: Reservation, used: Units | None
) -> PoolHistoryEntry:
    """Returns the history entry of one call. A unit that is missing in `used` counts with its reserved
    amount. Concurrency is left out."""
    implied = {
        limit.unit: IMPLIED[limit.unit]
        for limit in pool.limits
        if limit.per is not None and limit.unit in IMPLIED
    }
    units = {**implied, **reservation.units, **(used or {})}
    return PoolHistoryEntry(
        calls=1, units={unit: amount for unit, amount in units.items() if unit != "concurrent"}
    )


class PoolChangeKind(StrEnum):
    """The kinds of changes of a pool.

    - `closed`: a refusal closed it, for the first time or again.
    - `probed`: one job tests it.
    - `opened`: its last closure ended.
    - `slowed`: its concurrency or a limit was lowered."""

    CLOSED = "closed"  # closed by a refusal, for the first time or again after a probe
    PROBED = "probed"  # one job tests the pool
    OPENED = "opened"  # the last closure ended
    SLOWED = "slowed"  # a lower concurrency or a lower limit than configured


class PoolChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a pool.

    - `job`: the job whose claim or settlement caused the change.
    - `closure`: the new closure, or the last one if the pool opened.
    - `ramp`: True if the pool opens along a ramp.
    - `amounts`: the lowered limits, by limit name."""

    what: PoolChangeKind
    pool: str
    key: str | None
    job: str
    closure: Closure | None = None
    ramp: bool = False
    amounts: dict[str, float] = msgspec.field(default_factory=dict)


def compare_accounts(
    account_key: tuple[str, str | None], job: str, before: Account, after: Account
) -> Iterator[PoolChange]:
    old, new = before.breaker, after.breaker
    pool, key = account_key
    times = {(closure.reason, closure.unit): closure.times for closure in old.closures}
    for closure in new.closures:
        if closure.times > times.get((closure.reason, closure.unit), 0):
            yield PoolChange(what=PoolChangeKind.CLOSED, pool=pool, key=key, job=job, closure=closure)
    if old.closures and not new.closures:
        ramp = new.ramp is not None and new.ramp != old.ramp
        last = old.closures[-1]
        yield PoolChange(what=PoolChangeKind.OPENED, pool=pool, key=key, job=job, closure=last, ramp=ramp)
    if new.probe is not None and new.probe != old.probe:
        yield PoolChange(
            what=PoolChangeKind.PROBED, pool=pool, key=key, job=job, closure=next(iter(new.closures), None)
        )
    if slowed := _lowered_limits(before, after):
        yield PoolChange(what=PoolChangeKind.SLOWED, pool=pool, key=key, job=job, amounts=slowed)


def _lowered_limits(before: Account, after: Account) -> dict[str, float]:
    """Returns the limits that became lower between `before` and `after`, as new amounts by limit name. A
    lower concurrency cap has the name "calls at once"."""
    found = {
        name: lesson.amount
        for name, lesson in after.learned.items()
        if name not in before.learned or lesson.amount < before.learned[name].amount
    }
    for name, spacing in after.spacings.items():
        known_seconds = before.spacings[name].seconds if name in before.spacings else spacing.window
        if spacing.confirmed and spacing.seconds > known_seconds:
            found[name] = spacing.window / spacing.seconds
    cap, known = after.breaker.cap, before.breaker.cap
    if cap is not None and (known is None or cap.amount < known.amount):
        found["calls at once"] = cap.amount
    return found
