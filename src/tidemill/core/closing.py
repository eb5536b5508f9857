"""Which closure a refusal makes, and until when: the table of reasons as a function."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tidemill.core.calendars import Calendar, Day, Every, period_at
from tidemill.core.pools import PoolSettings, PoolState
from tidemill.core.refusals import BY_HAND, Reason, Refusal
from tidemill.core.windows import Instant
from tidemill.core.windows.calendar import CalendarCount

AFTER_MIDNIGHT = 300.0
"""A provider's new day is not everywhere at its first second."""
DEFAULT_ZONE = "America/Los_Angeles"
"""Whose midnight a day's quota waits for when the pool has no calendar: that of the largest provider
that counts days."""
OVERLOAD_FIRST, OVERLOAD_LONGEST = 5.0, 600.0
UNKNOWN_ESCALATES = 3
"""After this number of refusals without words, one per wait, the day's quota counts as used up if the pool's
ledger says that most of it is."""
UNKNOWN_LONGEST = 3600.0
"""Longest wait after refusals without words: the wait doubles up to it."""
SHORT_HINT = 900.0
MOST_OF_A_DAY = 0.9
DEFAULT_WINDOW = 60.0
"""How long a refusal that says nothing closes a pool that has no window in seconds."""
LONGEST_TEXT = 500
A_STEP = 0.001
"""Below that the clocks agree: sums of times do not come out even."""
LONGEST_DOUBT = 3600.0
"""A stated time of day holds by the wall too, which may have been wrong before somebody set it back; but no
longer than this, and never twice as long as it was."""


class Closure(msgspec.Struct, frozen=True, kw_only=True):
    """`until` is a wall time, None: until a person opens it. `times` counts refusals of this reason that
    came each after the last one's wait. `slow`: a ramp follows. `ends` is the same moment by the boot clock,
    None after another boot; `longer` is for how many seconds more a wall that was set back may hold it."""

    reason: Reason
    unit: str | None = None
    since: float
    until: float | None
    times: int = 1
    slow: bool = False
    text: str = ""
    ends: float | None = None
    longer: float = 0.0

    def holds(self, wall: float) -> bool:
        """Asked of a closure `as_of` the moment."""
        return self.until is None or wall < self.until

    def as_of(self, now: Instant) -> Closure:
        """I26: setting the wall opens nothing early, and holds nothing for as long as it was set back."""
        if self.until is None or self.ends is None:
            return self
        soonest = now.wall + self.ends - now.boot
        until = max(soonest, min(self.until, soonest + self.longer))
        return self if abs(until - self.until) <= A_STEP else replace(self, until=until)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows beside the refusal. chance: from 0 to 1, for jitter. probe: the refused call
    was the probe. day_used: see `day_used`. running: calls under way, the refused one among them. claimed:
    the boot time when the call was claimed, None where it held no units of the pool."""

    chance: float
    probe: bool = False
    day_used: float = 0.0
    running: int = 1
    claimed: float | None = None


def closure_for(
    pool: PoolSettings, refusal: Refusal, before: Closure | None, now: Instant, seen: Seen
) -> Closure | None:
    """What a refusal closes, given the closure of the same reason that stands, if any.

    Only a refused probe counts as "again": any other call was sent before the closure, and its refusal
    may lengthen the wait and no more. A person's or a month's wait is never shortened by a late one.
    """
    if refusal.reason is Reason.TOO_LARGE or (refusal.reason is Reason.CONCURRENCY and _capped(pool, seen)):
        return None
    times = 1 if before is None else before.times + seen.probe
    until = _until(pool, refusal, times, now, seen)
    if before is not None and not seen.probe and before.holds(now.wall):
        until = None if until is None or before.until is None else max(until, before.until)
    return Closure(
        reason=refusal.reason,
        unit=refusal.unit,
        since=now.wall if before is None else before.since,
        until=until,
        times=times,
        slow=refusal.slow or (before is not None and before.slow),
        text=refusal.text[:LONGEST_TEXT],
        ends=None if until is None else now.boot + until - now.wall,
        longer=_longer(pool, refusal, until, now),
    )


def day_used(pool: PoolSettings, state: PoolState, unit: str | None, now: Instant) -> float:
    """The share of the day's quota (or week's, or month's) that our own ledger has used."""
    shares = []
    for limit in pool.limits:
        kept = state.windows.get(limit.name)
        if isinstance(limit.per, Calendar) and isinstance(kept, CalendarCount) and unit in (None, limit.unit):
            current = kept.period >= period_at(limit.per, now.wall).start
            shares.append(kept.used / limit.amount if current else 0.0)
    return max(shares, default=0.0)


def _until(pool: PoolSettings, refusal: Refusal, times: int, now: Instant, seen: Seen) -> float | None:
    """Hints are floors; jitter only adds."""
    hinted = refusal.retry_after is not None or refusal.resets_at is not None
    floor = _floor(refusal, now)
    if refusal.reason in BY_HAND:
        return _by_hand(pool, refusal, now)
    match refusal.reason:
        case Reason.DAY_QUOTA:
            return _day(pool, refusal, times, now, seen)
        case Reason.UNKNOWN:
            return _unknown(pool, refusal, times, now, seen)
        case Reason.OVERLOAD | Reason.CONCURRENCY:
            longest = min(OVERLOAD_LONGEST, OVERLOAD_FIRST * 2.0 ** min(times - 1, 20))
            return floor + longest * seen.chance
        case _:  # a rate, or a stated reset
            return floor + pool.guards.jitter if hinted else now.wall + _window(pool, refusal.unit)


def _floor(refusal: Refusal, now: Instant) -> float:
    return max(now.wall, now.wall + (refusal.retry_after or 0.0), refusal.resets_at or 0.0)


def _longer(pool: PoolSettings, refusal: Refusal, until: float | None, now: Instant) -> float:
    """A wait in seconds goes by the boot clock alone."""
    if until is None or (refusal.resets_at is None and until < _next_period(pool, refusal.unit, now)):
        return 0.0
    return min(LONGEST_DOUBT, until - now.wall)


def _by_hand(pool: PoolSettings, refusal: Refusal, now: Instant) -> float | None:
    """A cap that ends with the month does end; else a person opens, or a slow probe where it is wanted."""
    ends = [] if refusal.resets_at is None else [max(now.wall, refusal.resets_at) + AFTER_MIDNIGHT]
    if pool.probe_every is not None:
        ends.append(now.wall + max(pool.probe_every, refusal.retry_after or 0.0))
    return min(ends, default=None)


def _day(pool: PoolSettings, refusal: Refusal, times: int, now: Instant, seen: Seen) -> float:
    """A short hint contradicts a day's quota. If our own ledger says that the day is used up, the day is
    believed; else one probe after the hint, and the same refusal again confirms it."""
    hint = refusal.retry_after
    turn = _next_period(pool, refusal.unit, now)
    if hint is not None and hint < SHORT_HINT and times == 1 and seen.day_used < MOST_OF_A_DAY:
        return min(now.wall + hint + pool.guards.jitter, turn)
    return max(turn, now.wall + (hint or 0.0), refusal.resets_at or 0.0)


def _unknown(pool: PoolSettings, refusal: Refusal, times: int, now: Instant, seen: Seen) -> float:
    """Only words of a quota, or our own ledger, make a day of it."""
    floor = _floor(refusal, now)
    day_is_used = times >= UNKNOWN_ESCALATES and seen.day_used >= MOST_OF_A_DAY
    if (refusal.then is Reason.DAY_QUOTA and times > 1) or day_is_used:
        return max(floor, _next_period(pool, refusal.unit, now))
    wait = _window(pool, refusal.unit)
    wait = max(wait, min(UNKNOWN_LONGEST, wait * 2.0 ** min(times - 1, 20)))
    hinted = refusal.retry_after is not None or refusal.resets_at is not None
    return floor + pool.guards.jitter if hinted and times == 1 else max(floor, now.wall + wait)


def _window(pool: PoolSettings, unit: str | None) -> float:
    """The longest window in seconds the refusal can be about, with its guard."""
    windows = [
        limit.per
        for limit in pool.limits
        if isinstance(limit.per, float) and (unit is None or limit.unit == unit)
    ]
    return max(windows, default=DEFAULT_WINDOW) + pool.guards.jitter


def _next_period(pool: PoolSettings, unit: str | None, now: Instant) -> float:
    """The next turn of the shortest calendar the refusal can be about, or the time of day a person set."""
    if pool.resumes is not None:
        return pool.resumes.after(now.wall)
    calendars = [limit.per for limit in pool.limits if isinstance(limit.per, Calendar)]
    named = [
        limit.per for limit in pool.limits if isinstance(limit.per, Calendar) and limit.unit == unit
    ] or calendars
    days = [calendar for calendar in named if calendar.every is Every.DAY] or named or [Day(DEFAULT_ZONE)]
    return min(period_at(calendar, now.wall).end for calendar in days) + AFTER_MIDNIGHT


def _capped(pool: PoolSettings, seen: Seen) -> bool:
    """Fewer at once is enough when another call of ours must end first. A lone call that was refused
    waits for somebody else's, and nobody will say when that ends."""
    counts = any(limit.per is None and limit.unit == "concurrent" for limit in pool.limits)
    return counts and seen.running > 1
