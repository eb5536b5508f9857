"""Which closure a refusal causes, and when the closure ends. The reason of the refusal decides."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tidemill.core.calendars import Calendar, CalendarUnit, Day, period_at
from tidemill.core.feedback import OPERATOR_REASONS, Reason, Refusal
from tidemill.core.pools import PoolSettings, PoolState
from tidemill.core.windows import Instant
from tidemill.core.windows.calendar_window import CalendarWindow

MIDNIGHT_MARGIN_SECONDS = 300.0
"""A provider's new day does not begin everywhere in its first second."""
DEFAULT_ZONE = "America/Los_Angeles"
"""The zone whose midnight a day quota waits for if the pool has no calendar: that of the largest provider
with daily quotas."""
FIRST_OVERLOAD_WAIT_SECONDS, MAX_OVERLOAD_WAIT_SECONDS = 5.0, 600.0
UNKNOWN_REFUSALS_UNTIL_DAY_QUOTA = 3
"""After this many refusals without a reason, one per wait, the day quota counts as used up if the pool's
ledger says that most of it is."""
MAX_UNKNOWN_WAIT_SECONDS = 3600.0
"""Longest wait after refusals without a reason: the wait doubles up to it."""
SHORT_HINT_SECONDS = 900.0
USED_UP_DAY_SHARE = 0.9
DEFAULT_WINDOW_SECONDS = 60.0
"""How long a refusal without a hint closes a pool that has no window in seconds."""
MAX_REFUSAL_TEXT_CHARS = 500
CLOCK_TOLERANCE_SECONDS = 0.001
"""Below this difference two clocks agree: sums of floating-point times are not exact."""
MAX_WALL_DOUBT_SECONDS = 3600.0
"""A stated time of day also holds by the wall clock, which may have been wrong before it was set back. It
extends a closure by no more than this, and never to twice its length."""


class Closure(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a pool is closed.

    - `until`: the wall time of its end; None means until an operator opens the pool.
    - `until_boot`: the same moment on the boot clock, None after a restart of the machine.
    - `times`: 1 for the first refusal; it grows when a probe is refused for the same reason.
    - `slow`: True if a ramp follows.
    - `max_extension`: the most seconds that the closure lasts longer if the wall clock is set back."""

    reason: Reason
    unit: str | None = None
    since: float
    until: float | None
    times: int = 1
    slow: bool = False
    text: str = ""
    until_boot: float | None = None
    max_extension: float = 0.0

    def holds(self, wall: float) -> bool:
        """True if the closure has not ended at the wall time `wall`. Call `as_of` first, which corrects the
        end after a change of the wall clock."""
        return self.until is None or wall < self.until

    def as_of(self, now: Instant) -> Closure:
        """Returns the closure with its end recomputed for the current clocks (I26). Setting the wall clock
        forward never ends a closure early."""
        if self.until is None or self.until_boot is None:
            return self
        soonest = now.wall + self.until_boot - now.boot
        until = max(soonest, min(self.until, soonest + self.max_extension))
        return self if abs(until - self.until) <= CLOCK_TOLERANCE_SECONDS else replace(self, until=until)


class RefusalFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that the store knows about a refused call, besides the refusal itself.

    - `chance`: a random number from 0 to 1, which spreads the ends of closures.
    - `probe`: True if the refused call was the probe.
    - `day_used`: the used share of the calendar limit (see `day_quota_share`).
    - `running`: the number of calls in flight, including the refused call.
    - `claimed`: the boot-clock time of the claim, None if the claim held no units of the pool."""

    chance: float
    probe: bool = False
    day_used: float = 0.0
    running: int = 1
    claimed: float | None = None


def closure_for(
    pool: PoolSettings, refusal: Refusal, before: Closure | None, now: Instant, seen: RefusalFacts
) -> Closure | None:
    """Returns the closure that a refusal causes; None if the refusal closes nothing. `before` is the current
    closure for the same reason, if any. Only the refusal of a probe counts as a repeated refusal."""
    if refusal.reason is Reason.TOO_LARGE or (
        refusal.reason is Reason.CONCURRENCY and _is_capped(pool, seen)
    ):
        return None
    times = 1 if before is None else before.times + seen.probe
    until = _closure_end(pool, refusal, times, now, seen)
    if before is not None and not seen.probe and before.holds(now.wall):
        until = None if until is None or before.until is None else max(until, before.until)
    return Closure(
        reason=refusal.reason,
        unit=refusal.unit,
        since=now.wall if before is None else before.since,
        until=until,
        times=times,
        slow=refusal.slow or (before is not None and before.slow),
        text=refusal.text[:MAX_REFUSAL_TEXT_CHARS],
        until_boot=None if until is None else now.boot + until - now.wall,
        max_extension=_wall_extension(pool, refusal, until, now),
    )


def day_quota_share(pool: PoolSettings, state: PoolState, unit: str | None, now: Instant) -> float:
    """Returns the share of the calendar limit (day, week or month) that our calls have used. 1 means used up.
    If several limits count `unit`, the largest share is returned. `unit=None` means any unit."""
    shares = []
    for limit in pool.limits:
        window = state.windows.get(limit.name)
        if (
            isinstance(limit.per, Calendar)
            and isinstance(window, CalendarWindow)
            and unit in (None, limit.unit)
        ):
            current = window.period >= period_at(limit.per, now.wall).start
            shares.append(window.used / limit.amount if current else 0.0)
    return max(shares, default=0.0)


def _closure_end(
    pool: PoolSettings, refusal: Refusal, times: int, now: Instant, seen: RefusalFacts
) -> float | None:
    """Returns the wall time when the closure ends; None if only an operator ends it. `times` counts the
    refusals for this reason."""
    hinted = refusal.retry_after is not None or refusal.resets_at is not None
    floor = _earliest_end(refusal, now)
    if refusal.reason in OPERATOR_REASONS:
        return _operator_end(pool, refusal, now)
    match refusal.reason:
        case Reason.DAY_QUOTA:
            return _day_quota_end(pool, refusal, times, now, seen)
        case Reason.UNKNOWN:
            return _unknown_refusal_end(pool, refusal, times, now, seen)
        case Reason.OVERLOAD | Reason.CONCURRENCY:
            longest = min(MAX_OVERLOAD_WAIT_SECONDS, FIRST_OVERLOAD_WAIT_SECONDS * 2.0 ** min(times - 1, 20))
            return floor + longest * seen.chance
        case _:  # a rate, or a stated reset
            return (
                floor + pool.guards.jitter
                if hinted
                else now.wall + _longest_window_seconds(pool, refusal.unit)
            )


def _earliest_end(refusal: Refusal, now: Instant) -> float:
    return max(now.wall, now.wall + (refusal.retry_after or 0.0), refusal.resets_at or 0.0)


def _wall_extension(pool: PoolSettings, refusal: Refusal, until: float | None, now: Instant) -> float:
    """Returns the value of `Closure.max_extension`. It is 0 if the closure lasts a fixed number of seconds.
    `until` is the wall time when the closure ends."""
    if until is None or (refusal.resets_at is None and until < _next_period(pool, refusal.unit, now)):
        return 0.0
    return min(MAX_WALL_DOUBT_SECONDS, until - now.wall)


def _operator_end(pool: PoolSettings, refusal: Refusal, now: Instant) -> float | None:
    """Returns the wall time when a closure that needs an operator ends by itself; None if it does not. That
    is the provider's reset time, or `probe_every` seconds from now."""
    end_times = (
        [] if refusal.resets_at is None else [max(now.wall, refusal.resets_at) + MIDNIGHT_MARGIN_SECONDS]
    )
    if pool.probe_every is not None:
        end_times.append(now.wall + max(pool.probe_every, refusal.retry_after or 0.0))
    return min(end_times, default=None)


def _day_quota_end(
    pool: PoolSettings, refusal: Refusal, times: int, now: Instant, seen: RefusalFacts
) -> float:
    """Returns the wall time when a day quota is free again, usually the start of the next day. If a first
    refusal asks for less than 15 minutes, the result may be the end of that wait."""
    hint = refusal.retry_after
    turn = _next_period(pool, refusal.unit, now)
    if hint is not None and hint < SHORT_HINT_SECONDS and times == 1 and seen.day_used < USED_UP_DAY_SHARE:
        return min(now.wall + hint + pool.guards.jitter, turn)
    return max(turn, now.wall + (hint or 0.0), refusal.resets_at or 0.0)


def _unknown_refusal_end(
    pool: PoolSettings, refusal: Refusal, times: int, now: Instant, seen: RefusalFacts
) -> float:
    """Returns the wall time when a closure without a known reason ends. The wait doubles with each repeated
    refusal, up to one hour. If the quota is probably used up, the closure lasts until the next calendar
    period."""
    floor = _earliest_end(refusal, now)
    day_is_used = times >= UNKNOWN_REFUSALS_UNTIL_DAY_QUOTA and seen.day_used >= USED_UP_DAY_SHARE
    if (refusal.then is Reason.DAY_QUOTA and times > 1) or day_is_used:
        return max(floor, _next_period(pool, refusal.unit, now))
    wait = _longest_window_seconds(pool, refusal.unit)
    wait = max(wait, min(MAX_UNKNOWN_WAIT_SECONDS, wait * 2.0 ** min(times - 1, 20)))
    hinted = refusal.retry_after is not None or refusal.resets_at is not None
    return floor + pool.guards.jitter if hinted and times == 1 else max(floor, now.wall + wait)


def _longest_window_seconds(pool: PoolSettings, unit: str | None) -> float:
    """Returns the seconds of the pool's longest window that counts `unit`, plus the pool's jitter.
    `unit=None` means any unit."""
    windows = [
        limit.per
        for limit in pool.limits
        if isinstance(limit.per, float) and (unit is None or limit.unit == unit)
    ]
    return max(windows, default=DEFAULT_WINDOW_SECONDS) + pool.guards.jitter


def _next_period(pool: PoolSettings, unit: str | None, now: Instant) -> float:
    """Returns the wall time when the next calendar period of `unit` begins, plus five minutes. If the pool
    has `resumes`, returns the next occurrence of that time of day."""
    if pool.resumes is not None:
        return pool.resumes.after(now.wall)
    calendars = [limit.per for limit in pool.limits if isinstance(limit.per, Calendar)]
    named = [
        limit.per for limit in pool.limits if isinstance(limit.per, Calendar) and limit.unit == unit
    ] or calendars
    days = (
        [calendar for calendar in named if calendar.every is CalendarUnit.DAY] or named or [Day(DEFAULT_ZONE)]
    )
    return min(period_at(calendar, now.wall).end for calendar in days) + MIDNIGHT_MARGIN_SECONDS


def _is_capped(pool: PoolSettings, seen: RefusalFacts) -> bool:
    """True if the pool need not close, because a lower cap on concurrency is enough. This is so if the pool
    limits concurrency and a second call of ours is in flight."""
    counts = any(limit.per is None and limit.unit == "concurrent" for limit in pool.limits)
    return counts and seen.running > 1
