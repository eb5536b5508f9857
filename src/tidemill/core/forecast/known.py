"""A pool as far as it is known: what is allowed of it from when on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from tidemill.core import breaker as breakers
from tidemill.core.accounts import Account, believed
from tidemill.core.breaker import Breaker
from tidemill.core.calendars import Calendar
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolOverride, PoolSettings, in_force
from tidemill.core.refusals import PROBED
from tidemill.core.windows import Instant

RAMP_STEPS = 10
CAP_STEPS = 30


class Shown(Protocol):
    """A pool as a store shows it."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str | None: ...
    @property
    def declared(self) -> PoolSettings: ...
    @property
    def override(self) -> PoolOverride | None: ...
    @property
    def account(self) -> Account: ...


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A pool, or one key of it, at a moment."""

    name: str
    key: str | None
    declared: PoolSettings
    override: PoolOverride | None
    account: Account
    now: Instant
    settings: PoolSettings

    def settings_at(self, later: float) -> PoolSettings:
        """So many seconds from now, as far as is known today."""
        now = Instant(self.now.wall + later, self.now.boot + later)
        return _in_force(self.declared, self.override, self.account, now)


def know(view: Shown, now: Instant) -> Known:
    return Known(
        name=view.name,
        key=view.key,
        declared=view.declared,
        override=view.override,
        account=view.account,
        now=now,
        settings=_in_force(view.declared, view.override, view.account, now),
    )


def _in_force(
    declared: PoolSettings, override: PoolOverride | None, account: Account, now: Instant
) -> PoolSettings:
    return believed(in_force(declared, override, now.wall), account, now)


def shut_until(known: Known, takes: float) -> float:
    """Seconds until the pool opens for more than a probe, which takes a call's time."""
    wall, breaker = known.now.wall, breakers.tidied(known.account.breaker, known.now)
    by_hand, ends = known.account.closed, [0.0]
    if by_hand is not None and by_hand.holds(wall):
        ends.append(_seconds(by_hand.until, wall))
    for closure in breaker.closures:
        end = _seconds(closure.until, wall) if closure.holds(wall) else 0.0
        ends.append(end + (takes if closure.reason in PROBED else 0.0))
    return max(ends)


def amounts_of(known: Known, limit: Limit, takes: float) -> Iterator[tuple[float, float]]:
    """The limit's amount over time: an override ends, a ramp opens, a cap recovers."""
    breaker = _opening(known, takes)
    for at in sorted({0.0, *_changes(known, breaker, limit)}):
        now = Instant(known.now.wall + at, known.now.boot + at)
        pool = breakers.restrained(known.settings_at(at), breaker, now)
        yield at, next(each.amount for each in pool.limits if each.name == limit.name)


def _opening(known: Known, takes: float) -> Breaker:
    """As it will be when the probe has come back."""
    breaker = breakers.tidied(known.account.breaker, known.now)
    if any(closure.reason in PROBED or closure.slow for closure in breaker.closures):
        opens = shut_until(known, takes)
        return replace(breaker, ramp=known.now.boot + opens if math.isfinite(opens) else None)
    return breaker


def _changes(known: Known, breaker: Breaker, limit: Limit) -> Sequence[float]:
    changes: list[float] = []
    if known.override is not None and known.override.until is not None:
        changes.append(known.override.until - known.now.wall)
    if breaker.ramp is not None and not isinstance(limit.per, Calendar):
        begun = breaker.ramp - known.now.boot
        length = limit.per or breakers.ramp_left(known.declared, breaker, Instant(0.0, breaker.ramp))
        changes += [begun + length * step / RAMP_STEPS for step in range(RAMP_STEPS + 1)]
    if breaker.cap is not None and limit.per is None:
        begun = breaker.cap.at - known.now.boot
        changes += [begun + breakers.CAP_RECOVERS * step for step in range(1, CAP_STEPS)]
    return [change for change in changes if change > 0]


def _seconds(until: float | None, wall: float) -> float:
    return math.inf if until is None else max(0.0, until - wall)
