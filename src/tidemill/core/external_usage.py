"""External usage: units that other programs use on the same provider account.

A provider's answer may say how much of a limit is left. If more units are missing than our calls used, other
programs used them. How long these units count depends on the answer:

- With a reset time, they count until that time.
- With a wait (`Retry-After`), enough units for the refused call are free after the wait. The remaining units
  become free evenly over the window.
- Without a hint, they count for a whole window.

Hints apply only to rolling and paced windows."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tidemill.core.feedback import Observation, Refusal
from tidemill.core.limits import Limit, window_seconds
from tidemill.core.needs import Units
from tidemill.core.pools import PoolSettings, PoolState, call_amount
from tidemill.core.windows import Instant, WindowState, fits_limit, new_window
from tidemill.core.windows.base import TOLERANCE
from tidemill.core.windows.rolling_window import PacedWindow, RollingWindow

RETURN_STEPS = 32
"""The number of steps in which units return evenly: few slots to store, and no call waits long for one."""


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the call that an answer belongs to.

    - `left`: by limit name, the units left at the claim, by our count.
    - `units`: the units reserved for the call.
    - `claimed`: the boot-clock time of the claim, None if unknown."""

    left: Units = msgspec.field(default_factory=dict)
    units: Units = msgspec.field(default_factory=dict)
    claimed: float | None = None


UNKNOWN_CALL = CallFacts()
Portion = tuple[float, float]
"""Units, and the boot time when they are free again."""


def record_external_usage(  # noqa: PLR0917 - an account's windows and an observation
    pool: PoolSettings,
    state: PoolState,
    external_usage: dict[str, WindowState],
    seen: Observation,
    call: CallFacts,
    now: Instant,
) -> tuple[PoolState, dict[str, WindowState]]:
    """Returns the pool's state and the windows of external usage after a provider's answer `seen`.

    Our count at the claim and our count now are compared with the provider's count. Only units that neither
    of our counts explains are external."""
    windows, others = dict(state.windows), dict(external_usage)
    for limit in pool.limits:
        reported = seen.remaining.get(limit.name)
        if reported is None or limit.per is None:
            continue
        known = limit.amount - state.counted(limit, now, pool.guards)
        missing = min(known, call.left.get(limit.name, known)) - reported
        if missing <= _count_tolerance(pool, limit, reported):
            continue
        portions = _portions(limit, seen, call, missing, now)
        theirs = others.get(limit.name)
        theirs = theirs if theirs is not None and fits_limit(theirs, limit) else new_window(limit)
        for known_of, window in ((windows, state.window(limit)), (others, theirs)):
            known_of[limit.name] = _enter_units(window, pool, limit, portions, missing, now)
    return replace(state, windows=windows), others


def _portions(
    limit: Limit, seen: Observation, call: CallFacts, missing: float, now: Instant
) -> list[Portion]:
    """Returns when `missing` external units are free again, as pairs of units and boot-clock time. The list
    is empty without a hint, and for calendar and concurrency limits."""
    if not isinstance(limit.per, float):
        return []
    first, total_seconds = _hinted_seconds(limit, seen, call, now)
    if first is None:
        return [] if total_seconds is None else [(missing, now.boot + total_seconds)]
    total_seconds = max(first, limit.per if total_seconds is None else total_seconds)
    at_first = min(missing, max(call_amount(call.units, limit) or 0.0, missing * first / total_seconds))
    portion, apart = (missing - at_first) / RETURN_STEPS, (total_seconds - first) / RETURN_STEPS
    steps = range(1, RETURN_STEPS + 1) if portion > TOLERANCE else ()
    later = [(portion, now.boot + first + apart * step) for step in steps]
    return [(at_first, now.boot + first), *later]


def _hinted_seconds(
    limit: Limit, seen: Observation, call: CallFacts, now: Instant
) -> tuple[float | None, float | None]:
    """Returns two waits in seconds: until the refused call fits, and until the whole limit is free. A wait is
    None if the provider gave no hint for it."""
    window = window_seconds(limit)
    resets = seen.resets.get(limit.name)
    total_seconds = None if resets is None or resets <= now.wall else min(window, resets - now.wall)
    refusal = seen.refusal
    if refusal is None or refusal.retry_after is None or not _lacked_units(refusal, limit, seen, call):
        return None, total_seconds
    return min(window, refusal.retry_after), total_seconds


def _lacked_units(refusal: Refusal, limit: Limit, seen: Observation, call: CallFacts) -> bool:
    """True if the call was refused because too few units of this limit were left."""
    need = call_amount(call.units, limit) or 0.0
    return refusal.unit in (None, limit.unit) and seen.remaining[limit.name] < max(need, TOLERANCE)


def _enter_units(  # noqa: PLR0917 - a window and the units to count
    window: WindowState,
    pool: PoolSettings,
    limit: Limit,
    portions: list[Portion],
    missing: float,
    now: Instant,
) -> WindowState:
    if not portions or not isinstance(window, RollingWindow | PacedWindow):
        return window.taken(limit, missing, now, pool.guards)[0]
    for units, until in portions:
        window = window.taken_until(limit, units, until, now, pool.guards)
    return window


def _count_tolerance(pool: PoolSettings, limit: Limit, reported: float) -> float:
    """Returns by how many units the provider's count may differ from ours without external usage."""
    # Providers round, and units become free while an answer travels. Without this tolerance, a program
    # without external usage was slowed by 7 %.
    flows = limit.amount / limit.per * pool.guards.jitter if isinstance(limit.per, float) else 0.0
    return flows + (1.0 if reported == int(reported) else TOLERANCE)
