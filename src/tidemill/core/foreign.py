"""Units that other programs use of the same account, as far as a provider's answers show them.

An answer may say how much of a limit is left. What is missing beyond our own calls was used by others, and
enters our windows as used. How long it counts depends on what the provider said with it:

- It named the time when the limit is whole again (a reset header): all of it is free then.
- It refused the call and named a wait (`Retry-After`): the refused call fits after that wait. The rest comes
  back evenly over the window, as it does from a bucket.
- It named no time: all of it counts for a whole window, since it may have been used just now.

The first two are for windows that remember when units were used. A bucket refills by itself, and a calendar's
period ends when it ends.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tidemill.core.limits import Limit, seconds_of
from tidemill.core.pools import PoolSettings, PoolState, amount_of
from tidemill.core.refusals import Refusal
from tidemill.core.spending import Observation
from tidemill.core.units import Units
from tidemill.core.windows import Instant, Kept, fits, fresh
from tidemill.core.windows.paced import Paced
from tidemill.core.windows.rolling import Rolling
from tidemill.core.windows.window import TINY

STEPS = 32
"""In so many steps units come back evenly: few slots to keep, and no call waits long for one."""


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What we know of the call the provider spoke of. `left` is what our own count left of each limit when it
    was claimed, `units` is what it reserved, `claimed` the boot time of the claim, if that is known."""

    left: Units = msgspec.field(default_factory=dict)
    units: Units = msgspec.field(default_factory=dict)
    claimed: float | None = None


UNKNOWN_CALL = CallFacts()
Portion = tuple[float, float]
"""Units, and the boot time when they are free again."""


def noticed(  # noqa: PLR0917 - an account's windows, and what was said of them
    pool: PoolSettings,
    state: PoolState,
    foreign: dict[str, Kept],
    seen: Observation,
    call: CallFacts,
    now: Instant,
) -> tuple[PoolState, dict[str, Kept]]:
    """The windows, and those of the others, after an answer. The provider counted at some moment between the
    claim and now, and our other calls under way may or may not be in its count: only what is missing beyond
    all of ours at both ends is somebody else's."""
    windows, others = dict(state.windows), dict(foreign)
    for limit in pool.limits:
        said = seen.remaining.get(limit.name)
        if said is None or limit.per is None:
            continue
        known = limit.amount - state.counted(limit, now, pool.guards)
        beyond = min(known, call.left.get(limit.name, known)) - said
        if beyond <= _inexact(pool, limit, said):
            continue
        portions = _portions(limit, seen, call, beyond, now)
        theirs = others.get(limit.name)
        theirs = theirs if theirs is not None and fits(theirs, limit) else fresh(limit)
        for known_of, window in ((windows, state.window(limit)), (others, theirs)):
            known_of[limit.name] = _entered(window, pool, limit, portions, beyond, now)
    return replace(state, windows=windows), others


def _portions(limit: Limit, seen: Observation, call: CallFacts, beyond: float, now: Instant) -> list[Portion]:
    """When the units that others used are free again; none if the provider did not say."""
    if not isinstance(limit.per, float):
        return []
    first, whole = _hints(limit, seen, call, now)
    if first is None:
        return [] if whole is None else [(beyond, now.boot + whole)]
    whole = max(first, limit.per if whole is None else whole)
    at_first = min(beyond, max(amount_of(call.units, limit) or 0.0, beyond * first / whole))
    each, apart = (beyond - at_first) / STEPS, (whole - first) / STEPS
    later = [(each, now.boot + first + apart * step) for step in range(1, STEPS + 1)] if each > TINY else []
    return [(at_first, now.boot + first), *later]


def _hints(
    limit: Limit, seen: Observation, call: CallFacts, now: Instant
) -> tuple[float | None, float | None]:
    """Seconds until the refused call fits, and until the limit is whole; at most a window. A time that is
    over contradicts what is missing, and says nothing."""
    window = seconds_of(limit)
    resets = seen.resets.get(limit.name)
    whole = None if resets is None or resets <= now.wall else min(window, resets - now.wall)
    refusal = seen.refusal
    if refusal is None or refusal.retry_after is None or not _lacked(refusal, limit, seen, call):
        return None, whole
    return min(window, refusal.retry_after), whole


def _lacked(refusal: Refusal, limit: Limit, seen: Observation, call: CallFacts) -> bool:
    """Whether the refused call lacked units of this limit."""
    need = amount_of(call.units, limit) or 0.0
    return refusal.unit in (None, limit.unit) and seen.remaining[limit.name] < max(need, TINY)


def _entered(  # noqa: PLR0917 - a window, and all that is known of what is entered
    window: Kept, pool: PoolSettings, limit: Limit, portions: list[Portion], beyond: float, now: Instant
) -> Kept:
    if not portions or not isinstance(window, Rolling | Paced):
        return window.taken(limit, beyond, now, pool.guards)[0]
    for units, until in portions:
        window = window.taken_until(limit, units, until, now, pool.guards)
    return window


def _inexact(pool: PoolSettings, limit: Limit, said: float) -> float:
    """By how much two counts of the same may differ: providers state whole units of what flows in evenly,
    and it flows on while an answer travels. Taken for somebody else's, it slowed a lone user by 7 %."""
    flows = limit.amount / limit.per * pool.guards.jitter if isinstance(limit.per, float) else 0.0
    return flows + (1.0 if said == int(said) else TINY)
