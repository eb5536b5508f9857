"""A pool and what is known of it, as meters."""

from __future__ import annotations

import math

import msgspec

from tidemill.core import usage
from tidemill.core.calendars import Calendar
from tidemill.core.forecast.known import Known, amounts_of
from tidemill.core.forecast.meters import Counted, Held, Meter, Refilled, Steps
from tidemill.core.limits import Limit, Shape, seconds_of
from tidemill.core.windows.paced import SHORT, Paced
from tidemill.core.windows.rolling import SLOTS, Rolling

STAIRS = 200
"""A window that passes so often within the forecast is taken as an even flow."""


class Call(msgspec.Struct, frozen=True):
    """What one call takes of a limit (None when calls differ), what it must leave alone, how long it is under
    way, and how long the forecast reaches."""

    units: float | None
    back: float
    takes: float
    reaches: float


def meter(known: Known, limit: Limit, call: Call) -> Meter | None:
    """None when it is no bound: nobody knows how long calls take that only their number at once bounds."""
    if limit.per is None and call.takes <= 0:
        return None
    amounts = tuple(amounts_of(known, limit, call.takes))
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
    amounts = tuple(amounts_of(known, limit, call.takes))
    rate = amounts[0][1] / limit.per
    spare = max(0.0, max(1.0, rate * SHORT) - units) / rate
    apart = max(0.0, jitter - spare)
    size = units + max(0.0, spare - jitter) * rate
    seconds = limit.per * (1.0 + apart * rate / units)
    waits = max(0.0, window.next - known.now.boot + (apart or 0.0))
    return Refilled(amounts, seconds, waits * amounts[0][1] / seconds, amounts[0][1] - size)


def lasts(limit: Limit, jitter: float, calls: float, call: Call) -> float:
    """Seconds until the last of so many calls starts by this limit alone, when nothing of it is used: what
    its first window lets in at once takes no time. 0 where a calendar or nothing bounds them."""
    units = call.units or 0.0
    amount = _whole(limit.amount, call) - call.back
    if units <= 0 or amount <= 0 or isinstance(limit.per, Calendar):
        return 0.0
    seconds = call.takes if limit.per is None else limit.per
    if limit.per is not None and limit.shape is not Shape.BUCKET:
        seconds += jitter
    return max(0.0, calls * units / amount - 1.0) * seconds


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


def _whole(amount: float, call: Call) -> float:
    """No part of a call starts: of 10 units three calls of 3 do."""
    if not call.units:
        return amount
    return math.floor((amount - call.back) / call.units + 1e-9) * call.units + call.back


def _after(known: Known, boot: float) -> float:
    return boot - known.now.boot
