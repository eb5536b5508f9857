"""A pool and what is known of it, as meters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from tidemill.core import breaker as breakers
from tidemill.core import usage
from tidemill.core.accounts import Account, believed
from tidemill.core.breaker import Breaker
from tidemill.core.calendars import Calendar
from tidemill.core.forecast.meters import Counted, Held, Meter, Refilled, Steps
from tidemill.core.limits import Limit, Shape, seconds_of
from tidemill.core.pools import PoolOverride, PoolSettings, in_force
from tidemill.core.refusals import PROBED
from tidemill.core.windows import Instant
from tidemill.core.windows.paced import SHORT, Paced
from tidemill.core.windows.rolling import SLOTS, Rolling

STAIRS = 200
"""A window that passes so often within the forecast is taken as an even flow."""
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


class Call(msgspec.Struct, frozen=True):
    """What one call takes of a limit (None when calls differ), what it must leave alone, how long it is under
    way, and how long the forecast reaches."""

    units: float | None
    back: float
    takes: float
    reaches: float


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


def meter(known: Known, limit: Limit, call: Call) -> Meter | None:
    """None when it is no bound: nobody knows how long calls take that only their number at once bounds."""
    if limit.per is None and call.takes <= 0:
        return None
    amounts = tuple(_amounts(known, limit, call.takes))
    steps = tuple((at, _whole(amount, call)) for at, amount in amounts)
    window = known.account.state.window(limit)
    used = usage.used(known.settings, known.account, limit, known.now)
    if limit.per is None:
        return _held(steps, call.takes, [(0.0, call.takes, used)] if used else [], used, call)
    if isinstance(limit.per, Calendar):
        return Counted(steps, limit, used, known.now.wall, known.declared.guards)
    if limit.shape is Shape.BUCKET:
        return _bucket(known, limit, amounts)
    if isinstance(window, Paced):
        window = window.rolling
    assert isinstance(window, Rolling)  # noqa: S101 - the other shapes were asked for above
    hold = seconds_of(limit) + known.declared.guards.jitter
    back = [(_after(known, end + hold), _after(known, end + hold), units) for end, units in window.slots]
    return _held(steps, hold, [each for each in back if each[1] > 0], used, call, hold / SLOTS)


def pace(known: Known, limit: Limit, call: Call) -> Meter | None:
    """What a paced limit asks beside its window, see there: a bucket of a second's worth, whose calls are the
    jitter further apart where it holds no more than one."""
    window, jitter = known.account.state.window(limit), known.declared.guards.jitter
    if not isinstance(window, Paced) or not isinstance(limit.per, float):
        return None
    units = call.units or 1.0
    amounts = tuple(_amounts(known, limit, call.takes))
    rate = amounts[0][1] / limit.per
    spare = max(0.0, max(1.0, rate * SHORT) - units) / rate
    apart = max(0.0, jitter - spare)
    size = units + max(0.0, spare - jitter) * rate
    seconds = limit.per * (1.0 + apart * rate / units)
    waits = max(0.0, window.next - known.now.boot + (apart or 0.0))
    return Refilled(amounts, seconds, waits * amounts[0][1] / seconds, amounts[0][1] - size)


def flow_of(limit: Limit, guards_jitter: float, call: Call) -> float:
    """Calls a second in the long run, infinite where a calendar or nothing bounds them."""
    units = call.units or 0.0
    amount = _whole(limit.amount - call.back, call)
    if units <= 0 or isinstance(limit.per, Calendar):
        return math.inf
    seconds = call.takes if limit.per is None else limit.per
    if limit.per is not None and limit.shape is not Shape.BUCKET:
        seconds += guards_jitter
    return amount / units / seconds if seconds > 0 else math.inf


def _held(  # noqa: PLR0917 - a window is told whole
    steps: Steps,
    hold: float,
    back: list[tuple[float, float, float]],
    used: float,
    call: Call,
    slots: float = 0.0,
) -> Meter:
    """A take counts as made at the end of its slot, on average half a slot later."""
    if hold < call.reaches / STAIRS:
        return Refilled(steps, hold + slots / 2, used)
    return Held(steps, hold + slots / 2, back)


def _bucket(known: Known, limit: Limit, amounts: Steps) -> Meter:
    """Ours is smaller than the provider's by what flows in during the jitter."""
    settings, account = known.settings, known.account
    size = settings.most(limit)
    used = size - account.state.window(limit).room(limit, known.now, settings.guards)
    return Refilled(amounts, seconds_of(limit), used, limit.amount - size)


def _amounts(known: Known, limit: Limit, takes: float) -> Iterator[tuple[float, float]]:
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


def _whole(amount: float, call: Call) -> float:
    """No part of a call starts: of 10 units three calls of 3 do."""
    if not call.units:
        return amount
    return math.floor((amount - call.back) / call.units + 1e-9) * call.units + call.back


def _after(known: Known, boot: float) -> float:
    return boot - known.now.boot


def _seconds(until: float | None, wall: float) -> float:
    return math.inf if until is None else max(0.0, until - wall)
