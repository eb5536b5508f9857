"""How the limits of a pool will change during a forecast, because of ramps, overrides and closures. Makes a
meter for each limit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from tidemill.core import breaker as breakers
from tidemill.core import pool_statistics
from tidemill.core.accounts import Account, pool_with_learned_limits
from tidemill.core.breaker import Breaker
from tidemill.core.calendars import Calendar
from tidemill.core.feedback import PROBED_REASONS
from tidemill.core.forecast.meters import AmountSteps, BucketMeter, CalendarMeter, LimitMeter, WindowMeter
from tidemill.core.key_overrides import apply_key_override
from tidemill.core.limits import Limit, Shape, window_seconds
from tidemill.core.overrides import Override, apply_override
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.windows import Instant
from tidemill.core.windows.rolling_window import PACE_SECONDS, SLOTS_PER_WINDOW, PacedWindow, RollingWindow

RAMP_STEPS = 10
CAP_STEPS = 30


class StoredPool(Protocol):
    """A pool as a store returns it."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str | None: ...
    @property
    def declared(self) -> PoolSettings: ...
    @property
    def override(self) -> Override[LimitChanges] | None: ...
    @property
    def account(self) -> Account: ...


class PoolOutlook(msgspec.Struct, frozen=True, kw_only=True):
    """A pool, or one key of a pool, at the moment `now` of a forecast.

    - `override`: the override of the whole pool; the override of the key is in `account`.
    - `settings`: the settings in force, with overrides and learned limits."""

    name: str
    key: str | None
    declared: PoolSettings
    override: Override[LimitChanges] | None
    account: Account
    now: Instant
    settings: PoolSettings

    def settings_at(self, later: float) -> PoolSettings:
        """Returns the settings in force `later` seconds from now, as far as known."""
        now = Instant(self.now.wall + later, self.now.boot + later)
        return _settings_in_force(self.declared, self.override, self.account, now)


def pool_outlook(view: StoredPool, now: Instant) -> PoolOutlook:
    return PoolOutlook(
        name=view.name,
        key=view.key,
        declared=view.declared,
        override=view.override,
        account=view.account,
        now=now,
        settings=_settings_in_force(view.declared, view.override, view.account, now),
    )


def _settings_in_force(
    declared: PoolSettings, override: Override[LimitChanges] | None, account: Account, now: Instant
) -> PoolSettings:
    overridden = apply_key_override(apply_override(declared, override, now.wall), account, now.wall)
    return pool_with_learned_limits(overridden, account, now)


def closed_seconds(known: PoolOutlook, call_seconds: float) -> float:
    """Returns the seconds until the pool is open for all calls; infinite if only an operator opens it.
    `call_seconds` is how long a probe takes."""
    wall, breaker = known.now.wall, breakers.drop_expired_closures(known.account.breaker, known.now)
    by_hand, end_times = known.account.closed, [0.0]
    if by_hand is not None and by_hand.holds(wall):
        end_times.append(_seconds_until(by_hand.until, wall))
    for closure in breaker.closures:
        end = _seconds_until(closure.until, wall) if closure.holds(wall) else 0.0
        end_times.append(end + (call_seconds if closure.reason in PROBED_REASONS else 0.0))
    return max(end_times)


def amounts_over_time(known: PoolOutlook, limit: Limit, call_seconds: float) -> Iterator[tuple[float, float]]:
    """Yields the amounts of the limit over time, as pairs of seconds from now and the amount from then on.
    `call_seconds` is how long a probe takes."""
    breaker = _breaker_after_probe(known, call_seconds)
    for at in sorted({0.0, *_change_times(known, breaker, limit)}):
        now = Instant(known.now.wall + at, known.now.boot + at)
        pool = breakers.pool_with_ramp_and_cap(known.settings_at(at), breaker, now)
        yield at, next(other.amount for other in pool.limits if other.name == limit.name)


def _breaker_after_probe(known: PoolOutlook, call_seconds: float) -> Breaker:
    """Returns the breaker as it will be after a successful probe. If no closure leads to a ramp, the breaker
    does not change."""
    breaker = breakers.drop_expired_closures(known.account.breaker, known.now)
    if any(closure.reason in PROBED_REASONS or closure.slow for closure in breaker.closures):
        opens = closed_seconds(known, call_seconds)
        return replace(breaker, ramp=known.now.boot + opens if math.isfinite(opens) else None)
    return breaker


def _change_times(known: PoolOutlook, breaker: Breaker, limit: Limit) -> Sequence[float]:
    overrides = [override for override in (known.override, known.account.override) if override is not None]
    changes = [override.until - known.now.wall for override in overrides if override.until is not None]
    if breaker.ramp is not None and not isinstance(limit.per, Calendar):
        begun = breaker.ramp - known.now.boot
        length = limit.per or breakers.ramp_seconds_left(known.declared, breaker, Instant(0.0, breaker.ramp))
        changes += [begun + length * step / RAMP_STEPS for step in range(RAMP_STEPS + 1)]
    if breaker.cap is not None and limit.per is None:
        begun = breaker.cap.at - known.now.boot
        changes += [begun + breakers.CAP_RECOVERY_SECONDS * step for step in range(1, CAP_STEPS)]
    return [change for change in changes if change > 0]


def _seconds_until(until: float | None, wall: float) -> float:
    return math.inf if until is None else max(0.0, until - wall)


MAX_WINDOWS_IN_STEPS = 200
"""A window that passes this often within the forecast counts as an even flow."""


class CallCost(msgspec.Struct, frozen=True):
    """The cost of one call for one limit.

    - `units`: how many units the call takes, None if calls differ.
    - `back`: how many units of the limit the call must leave for more urgent calls.
    - `seconds`: how long the call takes.
    - `reaches`: the length of the whole forecast in seconds."""

    units: float | None
    back: float
    seconds: float
    reaches: float


def limit_meter(known: PoolOutlook, limit: Limit, call: CallCost) -> LimitMeter | None:
    """Returns the meter of a limit. Returns None for a limit on concurrency if the length of a call is
    unknown."""
    if limit.per is None and call.seconds <= 0:
        return None
    amounts = tuple(amounts_over_time(known, limit, call.seconds))
    steps = tuple((at, _whole_calls(amount, call)) for at, amount in amounts)
    window = known.account.state.window(limit)
    used = pool_statistics.used_units(known.settings, known.account, limit, known.now)
    if limit.per is None:
        return _window_meter(steps, call.seconds, [(0.0, call.seconds, used)] if used else [], used, call)
    if isinstance(limit.per, Calendar):
        return CalendarMeter(steps, limit, used, known.now.wall, known.declared.guards)
    if limit.shape is Shape.BUCKET:
        return _bucket_meter(known, limit, amounts)
    if isinstance(window, PacedWindow):
        window = window.rolling
    assert isinstance(window, RollingWindow)  # noqa: S101 - the other shapes returned above
    hold = window_seconds(limit) + known.declared.guards.jitter
    back = [
        (_seconds_from_now(known, end + hold), _seconds_from_now(known, end + hold), units)
        for end, units in window.slots
    ]
    return _window_meter(
        steps, hold, [entry for entry in back if entry[1] > 0], used, call, hold / SLOTS_PER_WINDOW
    )


def pace_meter(known: PoolOutlook, limit: Limit, call: CallCost) -> LimitMeter | None:
    """Returns a second meter for a paced limit, which spreads its calls evenly; None for a limit that is not
    paced."""
    window, jitter = known.account.state.window(limit), known.declared.guards.jitter
    if not isinstance(window, PacedWindow) or not isinstance(limit.per, float):
        return None
    units = call.units or 1.0
    amounts = tuple(amounts_over_time(known, limit, call.seconds))
    rate = amounts[0][1] / window_seconds(limit)
    spare = max(0.0, max(1.0, rate * PACE_SECONDS) - units) / rate
    apart = max(0.0, jitter - spare)
    size = units + max(0.0, spare - jitter) * rate
    seconds = window_seconds(limit) * (1.0 + apart * rate / units)
    waits = max(0.0, window.next - known.now.boot + (apart or 0.0))
    return BucketMeter(amounts, seconds, waits * amounts[0][1] / seconds, amounts[0][1] - size)


def limit_seconds(limit: Limit, jitter: float, calls: float, call: CallCost) -> float:
    """Returns the seconds until the last of `calls` calls starts, if only this limit applies and none of it
    is used. Returns 0 for a calendar limit."""
    units = call.units or 0.0
    amount = _whole_calls(limit.amount, call) - call.back
    if units <= 0 or amount <= 0 or isinstance(limit.per, Calendar):
        return 0.0
    seconds = call.seconds if limit.per is None else window_seconds(limit)
    if limit.per is not None and limit.shape is not Shape.BUCKET:
        seconds += jitter
    return max(0.0, calls * units / amount - 1.0) * seconds


def _window_meter(  # noqa: PLR0917 - all parts of a window
    steps: AmountSteps,
    hold: float,
    back: list[tuple[float, float, float]],
    used: float,
    call: CallCost,
    slots: float = 0.0,
) -> LimitMeter:
    """Returns a meter for a window of `hold` seconds. If the forecast covers very many windows, returns a
    bucket meter, which is cheaper.

    - `back`, `used`: the units in use now.
    - `slots`: the length of the window's time slices in seconds."""
    if hold < call.reaches / MAX_WINDOWS_IN_STEPS:
        return BucketMeter(steps, hold + slots / 2, used)
    return WindowMeter(steps, hold + slots / 2, back)


def _bucket_meter(known: PoolOutlook, limit: Limit, amounts: AmountSteps) -> LimitMeter:
    """Returns the meter of a bucket limit."""
    settings, account = known.settings, known.account
    size = settings.most(limit)
    used = size - account.state.window(limit).room(limit, known.now, settings.guards)
    return BucketMeter(amounts, window_seconds(limit), used, limit.amount - size)


def _whole_calls(amount: float, call: CallCost) -> float:
    """Returns the amount rounded down to whole calls. If a call takes 3 units, 10 units become 9."""
    if not call.units:
        return amount
    return math.floor((amount - call.back) / call.units + 1e-9) * call.units + call.back


def _seconds_from_now(known: PoolOutlook, boot: float) -> float:
    return boot - known.now.boot
