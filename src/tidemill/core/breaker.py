"""When a pool is closed, until when, and how it opens again.

A refusal *trips* the breaker: one closure per reason, and for a rate one per unit. A pool is open when
none of them holds. What ends by a time ends by itself: the first job after it is a *probe*, alone; when
it comes back well, the pool opens along a *ramp*, a temporary limit that grows from a tenth to the whole
over one window, so that a fleet that waited for midnight does not arrive in the same second.

Two refusals close nothing. Too much at once lowers a *cap* on calls at once, which then grows by one a
minute. A call that is too large is that job's own failure.

Closures outlive everything: within the boot they were made in they end by its clock, later by the wall's
(`Closure.as_of`). A probe is marked as long as its call is under way: whoever holds it settles, or is
reclaimed. Ramp, cap and budget go by the boot clock.
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from tidemill.core.closing import Closure, Seen, closure_for
from tidemill.core.limits import Limit
from tidemill.core.pools import PoolSettings
from tidemill.core.refusals import PROBED, UNCHARGED, Reason, Refusal
from tidemill.core.units import IMPLIED, Units
from tidemill.core.windows import Instant
from tidemill.core.windows.window import LONG_AGO

RAMP_FROM = 0.1
DEFAULT_RAMP = 60.0
"""How long a ramp lasts where no limit has a window in seconds."""
CAP_RECOVERS = 60.0
BUDGET = 10.0
"""So many overload incidents in a row stop a job without spending one of its attempts."""
BUDGET_RETURNS = 60.0
"""One more of them every so many seconds."""


class Probe(msgspec.Struct, frozen=True):
    """The one job that tries. Its mark goes with its reservation, however long the call takes."""

    job: str


class Cap(msgspec.Struct, frozen=True):
    """At most so many calls at once since boot time `at`, and one more every minute."""

    amount: float
    at: float


class Budget(msgspec.Struct, frozen=True):
    """How many overload incidents the pool still pays for. `at` is the boot time when the last one began."""

    left: float = BUDGET
    at: float = LONG_AGO


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of one pool or one key of it. `ramp` is the boot time it began."""

    closures: tuple[Closure, ...] = ()
    probe: Probe | None = None
    ramp: float | None = None
    cap: Cap | None = None
    budget: Budget = Budget()


class Shut(msgspec.Struct, frozen=True):
    """`until` is a wall time, None: until a person opens it, or the probe has come back."""

    closure: Closure
    until: float | None


class Open(msgspec.Struct, frozen=True):
    """`probe`: only for one job, which must be marked with `probing` in the same step."""

    probe: bool = False


def refused(pool: PoolSettings, breaker: Breaker, refusal: Refusal, now: Instant, seen: Seen) -> Breaker:
    """After a refusal. A probe that was refused is over, whatever it was refused for."""
    known = tidied(breaker, now)
    if seen.probe:
        known = replace(known, probe=None)
    if refusal.reason is Reason.TOO_LARGE:
        return known
    if refusal.reason is Reason.CONCURRENCY:
        known = replace(known, cap=_lowered(pool, known.cap, now, seen) or known.cap)
    if refusal.reason is Reason.OVERLOAD and _begins_incident(breaker, seen):
        left = _budget(breaker.budget, now)
        known = replace(known, budget=Budget(max(0.0, left - 1.0), now.boot))
    same = [closure for closure in breaker.closures if _same(closure, refusal)]
    closure = closure_for(pool, refusal, same[0] if same else None, now, seen)
    if closure is None:
        return known
    others = tuple(other for other in known.closures if not _same(other, refusal))
    return replace(known, closures=(*others, closure))


def spends_attempt(breaker: Breaker, refusal: Refusal, now: Instant, seen: Seen) -> bool:
    """Whether the refused job pays with an attempt, given the breaker as it was before the refusal."""
    if refusal.reason is Reason.OVERLOAD:
        return _begins_incident(breaker, seen) and _budget(breaker.budget, now) < 1.0
    return refusal.reason not in UNCHARGED


def gate(breaker: Breaker, units: Units, now: Instant) -> Open | Shut:
    """Whether a call of that cost may be tried at all, asked of a `tidied` breaker; the limits are asked
    apart, see `restrained`."""
    holding = [closure for closure in breaker.closures if closure.holds(now.wall)]
    stopping = [closure for closure in holding if _concerns(closure, units)]
    if stopping:
        longest = max(stopping, key=lambda closure: math.inf if closure.until is None else closure.until)
        return Shut(longest, longest.until)
    waiting = [closure for closure in breaker.closures if closure.reason in PROBED]
    if not waiting:
        return Open()
    return Open(probe=True) if breaker.probe is None else Shut(waiting[0], None)


def probing(breaker: Breaker, job: str) -> Breaker:
    """That job is the probe from now on."""
    return replace(breaker, probe=Probe(job))


def answered(breaker: Breaker, job: str, now: Instant) -> Breaker:
    """A call came back well. Only the probe's answer opens the pool: any other was sent before."""
    if breaker.probe is None or breaker.probe.job != job:
        return breaker
    left = tuple(closure for closure in breaker.closures if closure.holds(now.wall))
    return replace(breaker, closures=left, probe=None, ramp=now.boot)


def unprobed(breaker: Breaker, job: str) -> Breaker:
    """The probe ended and says nothing of the pool: it was never sent, or nobody knows how it ended."""
    if breaker.probe is None or breaker.probe.job != job:
        return breaker
    return replace(breaker, probe=None)


def tidied(breaker: Breaker, now: Instant) -> Breaker:
    """Without what is over and needs no probe. A person's pause is not kept here and stays."""
    over = [closure for closure in breaker.closures if not closure.holds(now.wall)]
    gone = [closure for closure in over if closure.reason not in PROBED]
    left = tuple(closure for closure in breaker.closures if closure not in gone)
    slow = any(closure.slow for closure in gone)
    return replace(breaker, closures=left, ramp=now.boot if slow else breaker.ramp)


def reopened() -> Breaker:
    """By hand: no probe, no ramp, nothing remembered."""
    return Breaker()


def rebooted(breaker: Breaker) -> Breaker:
    """Boot times mean nothing now: closures end by the wall. The windows begin as full, which is slower than
    any ramp."""
    closures = tuple(replace(closure, ends=None) for closure in breaker.closures)
    return Breaker(closures=closures)


def as_of(breaker: Breaker, now: Instant) -> Breaker:
    """With every closure's end as the wall shows it now, whoever set it since."""
    closures = tuple(closure.as_of(now) for closure in breaker.closures)
    return breaker if closures == breaker.closures else replace(breaker, closures=closures)


def restrained(pool: PoolSettings, breaker: Breaker, now: Instant) -> PoolSettings:
    """The pool with its limits as ramp and cap leave them. Calendars are not ramped: a day at a tenth
    would waste the day, and the shorter windows already spread it."""
    limits = tuple(_restrained(pool, breaker, limit, now) for limit in pool.limits)
    return pool if limits == pool.limits else replace(pool, limits=limits)


def ramp_left(pool: PoolSettings, breaker: Breaker, now: Instant) -> float:
    """Seconds until the ramp is over."""
    if breaker.ramp is None:
        return 0.0
    ramped = [limit for limit in pool.limits if limit.per is None or isinstance(limit.per, float)]
    ends = [breaker.ramp + _length(pool, limit) - now.boot for limit in ramped]
    return max(0.0, *ends, 0.0)


def ramp_share(pool: PoolSettings, breaker: Breaker, now: Instant) -> float | None:
    """How much of the slowest ramping limit is open; None when there is no ramp or it is over."""
    shares = [_share(pool, breaker, limit, now) for limit in pool.limits]
    lowest = min(shares, default=1.0)
    return None if breaker.ramp is None or lowest >= 1.0 else lowest


def _restrained(pool: PoolSettings, breaker: Breaker, limit: Limit, now: Instant) -> Limit:
    amount = _ramped(pool, breaker, limit, now)
    if limit.per is None and limit.unit == "concurrent" and breaker.cap is not None:
        amount = min(math.floor(amount), _cap(breaker.cap, now))
    return limit if amount >= limit.amount else replace(limit, amount=amount)


def _ramped(pool: PoolSettings, breaker: Breaker, limit: Limit, now: Instant) -> float:
    """Never below one call: a ramp slows, it does not close."""
    return max(limit.amount * _share(pool, breaker, limit, now), min(1.0, limit.amount))


def _share(pool: PoolSettings, breaker: Breaker, limit: Limit, now: Instant) -> float:
    if breaker.ramp is None or not (limit.per is None or isinstance(limit.per, float)):
        return 1.0
    gone = max(0.0, now.boot - breaker.ramp)
    return min(1.0, RAMP_FROM + (1.0 - RAMP_FROM) * gone / _length(pool, limit))


def _length(pool: PoolSettings, limit: Limit) -> float:
    """One window; calls at once take the longest of the pool's."""
    if isinstance(limit.per, float):
        return limit.per
    return max((other.per for other in pool.limits if isinstance(other.per, float)), default=DEFAULT_RAMP)


def _same(closure: Closure, refusal: Refusal) -> bool:
    """A rate is one unit's: requests may flow while tokens wait for theirs."""
    if closure.reason is not refusal.reason:
        return False
    return refusal.reason is not Reason.RATE or closure.unit == refusal.unit


def _concerns(closure: Closure, units: Units) -> bool:
    if closure.reason is not Reason.RATE or closure.unit is None:
        return True
    return units.get(closure.unit, IMPLIED.get(closure.unit, 0.0)) > 0


def _begins_incident(breaker: Breaker, seen: Seen) -> bool:
    """Whether an overload is news. A call that was claimed before the pool closed met the same trouble: of
    forty calls under way, one pays. Without a time of claim only a closure that stands tells."""
    if seen.probe:
        return True
    if seen.claimed is None:
        return not any(closure.reason is Reason.OVERLOAD for closure in breaker.closures)
    return seen.claimed > breaker.budget.at


def _lowered(pool: PoolSettings, before: Cap | None, now: Instant, seen: Seen) -> Cap | None:
    """One less than were under way. A pool that does not count calls at once cannot be capped: there
    `closing` waits instead."""
    if not any(limit.per is None and limit.unit == "concurrent" for limit in pool.limits):
        return None
    amount = max(1.0, seen.running - 1.0)
    return Cap(amount if before is None else min(amount, _cap(before, now)), now.boot)


def _cap(cap: Cap, now: Instant) -> float:
    return cap.amount + math.floor(max(0.0, now.boot - cap.at) / CAP_RECOVERS)


def _budget(budget: Budget, now: Instant) -> float:
    return min(BUDGET, budget.left + max(0.0, now.boot - budget.at) / BUDGET_RETURNS)
