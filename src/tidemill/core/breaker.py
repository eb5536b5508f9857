"""The breaker of a pool: why the pool is closed, until when, and how it opens again.

A refusal adds a closure. A pool without closures is open. After most closures one job runs alone, as the
probe. If the probe succeeds, the pool opens along a ramp. Without the ramp, all waiting workers would call in
the same second.

Two kinds of refusal usually add no closure. If too many calls run at the same time, the breaker lowers a cap
on concurrent calls. If a call is too large, only its job fails.

Closures survive a restart of the machine. The ramp, the cap and the budget for overloads do not."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from tidemill.core.closures import Closure, RefusalFacts, closure_for
from tidemill.core.feedback import PROBED_REASONS, UNCHARGED_REASONS, Reason, Refusal
from tidemill.core.limits import Limit
from tidemill.core.needs import IMPLIED, Units
from tidemill.core.pools import PoolSettings
from tidemill.core.windows import Instant
from tidemill.core.windows.base import LONG_AGO

RAMP_START_SHARE = 0.1
DEFAULT_RAMP_SECONDS = 60.0
"""How long a ramp lasts if no limit has a window in seconds."""
CAP_RECOVERY_SECONDS = 60.0
OVERLOAD_BUDGET = 10.0
"""The number of overload incidents in a row that stop a job without spending one of its attempts."""
OVERLOAD_BUDGET_REFILL_SECONDS = 60.0
"""Seconds after which the budget grows by one incident."""


class Probe(msgspec.Struct, frozen=True):
    """The one job that tests a closed pool. The job stays the probe until its reservation ends."""

    job: str


class ConcurrencyCap(msgspec.Struct, frozen=True):
    """A temporary limit on concurrent calls. It was `amount` at boot-clock time `at`, and grows by one a
    minute."""

    amount: float
    at: float


class OverloadBudget(msgspec.Struct, frozen=True):
    """How many overloads of the provider still cost no job an attempt. Each overload takes 1, and the budget
    grows by 1 a minute. `left` was the budget at boot-clock time `at`, when the last overload began."""

    left: float = OVERLOAD_BUDGET
    at: float = LONG_AGO


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """The stored breaker of one pool, or of one key of a pool.

    - `ramp`: the boot-clock time when the ramp began, None without a ramp.
    - `cap`: the limit on concurrent calls, None without a cap.
    - `budget`: how many overloads cost no job an attempt."""

    closures: tuple[Closure, ...] = ()
    probe: Probe | None = None
    ramp: float | None = None
    cap: ConcurrencyCap | None = None
    budget: OverloadBudget = OverloadBudget()


class ClosedGate(msgspec.Struct, frozen=True):
    """The answer if a call must wait because of `closure`. `until` is the wall time of its end, None if an
    operator or the probe must open the pool."""

    closure: Closure
    until: float | None


class OpenGate(msgspec.Struct, frozen=True):
    """The answer if the breaker does not stop a call. `probe=True`: only this one job may call, and the
    caller must call `start_probe` in the same transaction."""

    probe: bool = False


def record_refusal(
    pool: PoolSettings, breaker: Breaker, refusal: Refusal, now: Instant, seen: RefusalFacts
) -> Breaker:
    """Returns the breaker after a provider's refusal. `seen` has the facts that the store knows about the
    refused call. If this call was the probe, the probe ends."""
    known = drop_expired_closures(breaker, now)
    if seen.probe:
        known = replace(known, probe=None)
    if refusal.reason is Reason.TOO_LARGE:
        return known
    if refusal.reason is Reason.CONCURRENCY:
        known = replace(known, cap=_lowered_cap(pool, known.cap, now, seen) or known.cap)
    if refusal.reason is Reason.OVERLOAD and _begins_incident(breaker, seen):
        left = _current_budget(breaker.budget, now)
        known = replace(known, budget=OverloadBudget(max(0.0, left - 1.0), now.boot))
    same = [closure for closure in breaker.closures if _is_same_closure(closure, refusal)]
    closure = closure_for(pool, refusal, same[0] if same else None, now, seen)
    if closure is None:
        return known
    others = tuple(other for other in known.closures if not _is_same_closure(other, refusal))
    return replace(known, closures=(*others, closure))


def spends_attempt(breaker: Breaker, refusal: Refusal, now: Instant, seen: RefusalFacts) -> bool:
    """True if a refusal costs the job an attempt. `breaker` is the breaker before this refusal. Only a call
    that is too large, or an overload beyond the budget, costs an attempt."""
    if refusal.reason is Reason.OVERLOAD:
        return _begins_incident(breaker, seen) and _current_budget(breaker.budget, now) < 1.0
    return refusal.reason not in UNCHARGED_REASONS


def check_gate(breaker: Breaker, units: Units, now: Instant) -> OpenGate | ClosedGate:
    """Returns whether the breaker allows a call with these `units`. `breaker` must come from
    `drop_expired_closures`. Limits are not checked here; see `pool_with_ramp_and_cap`."""
    holding = [closure for closure in breaker.closures if closure.holds(now.wall)]
    stopping = [closure for closure in holding if _applies_to_units(closure, units)]
    if stopping:
        longest = max(stopping, key=lambda closure: math.inf if closure.until is None else closure.until)
        return ClosedGate(longest, longest.until)
    waiting = [closure for closure in breaker.closures if closure.reason in PROBED_REASONS]
    if not waiting:
        return OpenGate()
    return OpenGate(probe=True) if breaker.probe is None else ClosedGate(waiting[0], None)


def start_probe(breaker: Breaker, job: str) -> Breaker:
    """Returns the breaker with `job` as its probe."""
    return replace(breaker, probe=Probe(job))


def finish_probe(breaker: Breaker, job: str, now: Instant) -> Breaker:
    """Returns the breaker after a successful call of `job`. If the job is the probe, closures that have ended
    are removed and the ramp begins. The success of any other job changes nothing."""
    if breaker.probe is None or breaker.probe.job != job:
        return breaker  # other calls were sent before the pool closed
    left = tuple(closure for closure in breaker.closures if closure.holds(now.wall))
    return replace(breaker, closures=left, probe=None, ramp=now.boot)


def drop_probe(breaker: Breaker, job: str) -> Breaker:
    """Returns the breaker without the probe of `job`. Use it if the call was never sent or its end is
    unknown."""
    if breaker.probe is None or breaker.probe.job != job:
        return breaker
    return replace(breaker, probe=None)


def drop_expired_closures(breaker: Breaker, now: Instant) -> Breaker:
    """Returns the breaker without closures that have ended and need no probe. If one of them asked for a slow
    start, the ramp begins."""
    over = [closure for closure in breaker.closures if not closure.holds(now.wall)]
    dropped = [closure for closure in over if closure.reason not in PROBED_REASONS]
    left = tuple(closure for closure in breaker.closures if closure not in dropped)
    slow = any(closure.slow for closure in dropped)
    return replace(breaker, closures=left, ramp=now.boot if slow else breaker.ramp)


def reopen_breaker() -> Breaker:
    """Returns the breaker of a pool that an operator opened: no closure, no probe, no ramp and no cap."""
    return Breaker()


def forget_boot_times(breaker: Breaker) -> Breaker:
    """Returns the breaker after a restart of the machine, without any time on the boot clock. Closures now
    end by the wall clock; ramp, cap, probe and budget are reset."""
    closures = tuple(replace(closure, until_boot=None) for closure in breaker.closures)
    return Breaker(closures=closures)


def with_current_ends(breaker: Breaker, now: Instant) -> Breaker:
    """Returns the breaker with the end of every closure recomputed. The wall clock may have been set since
    the closures were stored."""
    closures = tuple(closure.as_of(now) for closure in breaker.closures)
    return breaker if closures == breaker.closures else replace(breaker, closures=closures)


def pool_with_ramp_and_cap(pool: PoolSettings, breaker: Breaker, now: Instant) -> PoolSettings:
    """Returns the pool's settings, with limits reduced by the ramp and the concurrency cap. Calendar limits
    have no ramp."""
    limits = tuple(_limit_with_ramp_and_cap(pool, breaker, limit, now) for limit in pool.limits)
    return pool if limits == pool.limits else replace(pool, limits=limits)


def ramp_seconds_left(pool: PoolSettings, breaker: Breaker, now: Instant) -> float:
    """Returns the seconds until the ramp is over; 0 without a ramp."""
    if breaker.ramp is None:
        return 0.0
    ramped = [limit for limit in pool.limits if limit.per is None or isinstance(limit.per, float)]
    seconds = [breaker.ramp + _ramp_seconds(pool, limit) - now.boot for limit in ramped]
    return max(0.0, *seconds, 0.0)


def ramp_share(pool: PoolSettings, breaker: Breaker, now: Instant) -> float | None:
    """Returns the smallest share of its amount that a limit of the pool has during the ramp, from 0.1 to
    below 1; None without a ramp."""
    shares = [_limit_ramp_share(pool, breaker, limit, now) for limit in pool.limits]
    lowest = min(shares, default=1.0)
    return None if breaker.ramp is None or lowest >= 1.0 else lowest


def _limit_with_ramp_and_cap(pool: PoolSettings, breaker: Breaker, limit: Limit, now: Instant) -> Limit:
    amount = _ramped_amount(pool, breaker, limit, now)
    if limit.per is None and limit.unit == "concurrent" and breaker.cap is not None:
        amount = min(math.floor(amount), _current_cap(breaker.cap, now))
    return limit if amount >= limit.amount else replace(limit, amount=amount)


def _ramped_amount(pool: PoolSettings, breaker: Breaker, limit: Limit, now: Instant) -> float:
    """Returns the amount of the limit during the ramp. It never falls below 1, unless the whole amount is
    below 1."""
    # A ramp must not close a pool.
    return max(limit.amount * _limit_ramp_share(pool, breaker, limit, now), min(1.0, limit.amount))


def _limit_ramp_share(pool: PoolSettings, breaker: Breaker, limit: Limit, now: Instant) -> float:
    if breaker.ramp is None or not (limit.per is None or isinstance(limit.per, float)):
        return 1.0
    elapsed = max(0.0, now.boot - breaker.ramp)
    return min(1.0, RAMP_START_SHARE + (1.0 - RAMP_START_SHARE) * elapsed / _ramp_seconds(pool, limit))


def _ramp_seconds(pool: PoolSettings, limit: Limit) -> float:
    """Returns how many seconds the ramp of this limit lasts: one window of the limit. For a limit on
    concurrency, the longest window of the pool counts."""
    if isinstance(limit.per, float):
        return limit.per
    return max(
        (other.per for other in pool.limits if isinstance(other.per, float)), default=DEFAULT_RAMP_SECONDS
    )


def _is_same_closure(closure: Closure, refusal: Refusal) -> bool:
    """True if the refusal has the same reason as this closure. For a rate limit, the unit must be the same
    too."""
    if closure.reason is not refusal.reason:
        return False
    return refusal.reason is not Reason.RATE or closure.unit == refusal.unit


def _applies_to_units(closure: Closure, units: Units) -> bool:
    if closure.reason is not Reason.RATE or closure.unit is None:
        return True
    return units.get(closure.unit, IMPLIED.get(closure.unit, 0.0)) > 0


def _begins_incident(breaker: Breaker, seen: RefusalFacts) -> bool:
    """True if a refusal begins a new incident: a new overload of the provider. A call that was claimed before
    the last incident began belongs to that incident."""
    if seen.probe:
        return True
    if seen.claimed is None:
        return not any(closure.reason is Reason.OVERLOAD for closure in breaker.closures)
    return seen.claimed > breaker.budget.at


def _lowered_cap(
    pool: PoolSettings, before: ConcurrencyCap | None, now: Instant, seen: RefusalFacts
) -> ConcurrencyCap | None:
    """Returns a cap that is one below the calls in flight, and at least 1. Returns None for a pool without a
    concurrency limit. `before` is the current cap, if any."""
    if not any(limit.per is None and limit.unit == "concurrent" for limit in pool.limits):
        return None
    amount = max(1.0, seen.running - 1.0)
    return ConcurrencyCap(amount if before is None else min(amount, _current_cap(before, now)), now.boot)


def _current_cap(cap: ConcurrencyCap, now: Instant) -> float:
    return cap.amount + math.floor(max(0.0, now.boot - cap.at) / CAP_RECOVERY_SECONDS)


def _current_budget(budget: OverloadBudget, now: Instant) -> float:
    return min(OVERLOAD_BUDGET, budget.left + max(0.0, now.boot - budget.at) / OVERLOAD_BUDGET_REFILL_SECONDS)
