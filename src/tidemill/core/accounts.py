"""The account of one pool, or of one key of a pool, and the functions that change an account.

A store loads an account, calls one of these functions, and saves the returned account in the same
transaction."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from tidemill.core import breaker as breakers
from tidemill.core import external_usage as core_external_usage
from tidemill.core import learned_limits, learned_spacings, reservations
from tidemill.core.breaker import Breaker, ClosedGate
from tidemill.core.closures import RefusalFacts, day_quota_share
from tidemill.core.external_usage import UNKNOWN_CALL, CallFacts
from tidemill.core.feedback import Observation, Refusal
from tidemill.core.learned_limits import LearnedLimits
from tidemill.core.learned_spacings import LearnedSpacings
from tidemill.core.limits import Limit, SpacedLimit, window_seconds
from tidemill.core.needs import Units
from tidemill.core.overrides import Override
from tidemill.core.pools import LimitChanges, PoolSettings, PoolState, refresh_after_boot, resize_buckets
from tidemill.core.reservations import Reservation, UnitRequest
from tidemill.core.windows import Instant, WindowState
from tidemill.core.windows.base import TOLERANCE
from tidemill.core.windows.calendar_window import CalendarWindow

OTHER_BOOT_ID = "another store"
"""A boot id that no store has."""
_RAMP_BISECTIONS = 30
"""Bisection steps that find to a millisecond when a ramp admits a call."""


class OperatorClosure(msgspec.Struct, frozen=True, kw_only=True):
    """A closure that an operator set by hand.

    - `by`: the operator's name.
    - `since`: the wall time when the closure began.
    - `until`: the wall time of its end, None for no end."""

    by: str
    since: float
    until: float | None = None
    reason: str | None = None

    def holds(self, wall: float) -> bool:
        return self.until is None or wall < self.until


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The stored account of one pool, or of one key of a pool. Dictionaries have limit names as keys.

    - `state`: the windows and the reserved units.
    - `closed`: the operator's closure, None if there is none.
    - `external_usage`: windows that count only external usage.
    - `suspects`: the wall time of a refusal that may mean that the limit is too high.
    - `override`: an operator's limits for this key (P23), None if there are none."""

    state: PoolState = PoolState()
    breaker: Breaker = Breaker()
    closed: OperatorClosure | None = None
    external_usage: dict[str, WindowState] = msgspec.field(default_factory=dict)
    learned: LearnedLimits = msgspec.field(default_factory=dict)
    suspects: dict[str, float] = msgspec.field(default_factory=dict)
    spacings: LearnedSpacings = msgspec.field(default_factory=dict)
    override: Override[LimitChanges] | None = None


class UnitGrant(msgspec.Struct, frozen=True):
    """The answer to a request whose units were reserved.

    - `account`: the account after the reservation.
    - `probe`: True if the call is the pool's probe."""

    account: Account
    reservation: Reservation
    probe: bool = False


class UnitDenial(msgspec.Struct, frozen=True):
    """The answer to a request whose units were not reserved.

    - `account`: the account to save; it may have a new hold for the job.
    - `cause`: a limit name, "closed" (by an operator), the reason of another closure, or "held for job …".
    - `wait`: the seconds to wait; infinite if a call must end or an operator must act first.
    - `never`: True if the call is larger than a limit."""

    account: Account
    cause: str
    wait: float
    never: bool = False


def refresh_account(pool: PoolSettings, account: Account, boot: str, now: Instant) -> Account:
    """Returns a stored account brought up to date with the current clocks and limits.

    `boot` is the current boot id. If the stored boot id differs, the machine has restarted. Windows measured
    in seconds then count as fully used."""
    account = _after_boot(pool, account, boot, now)
    known = breakers.with_current_ends(account.breaker, now)
    account = account if known is account.breaker else replace(account, breaker=known)
    state = resize_buckets(pool_with_learned_limits(pool, account, now), account.state, now)
    return account if state is account.state else replace(account, state=state)


def _after_boot(pool: PoolSettings, account: Account, boot: str, now: Instant) -> Account:
    if account.state.boot == boot:
        return account
    state = refresh_after_boot(pool, account.state, boot, now)
    if not account.state.boot:
        return replace(account, state=state)
    # Boot times of another boot mean nothing; a calendar's count is on disk and continues.
    others = {
        name: window for name, window in account.external_usage.items() if isinstance(window, CalendarWindow)
    }
    return replace(
        account, state=state, breaker=breakers.forget_boot_times(account.breaker), external_usage=others
    )


def mark_other_boot(account: Account) -> Account:
    """Returns the account with a boot id that no store has. Use it for an account that is copied from another
    store."""
    if not account.state.boot:
        return account
    return replace(account, state=replace(account.state, boot=OTHER_BOOT_ID))


def redeclare_account(account: Account, names: frozenset[str]) -> Account:
    """Returns the account with only the state of the limits in `names` (P1). `names` comes from
    `core.pools.surviving_limits`."""
    windows = {name: window for name, window in account.state.windows.items() if name in names}
    others = {name: window for name, window in account.external_usage.items() if name in names}
    held = {name: units for name, units in account.state.held.items() if name in names}
    state = replace(account.state, windows=windows, held=held, revision=account.state.revision + 1)
    learned = learned_limits.keep_limits(account.learned, names)
    spacings = {name: spacing for name, spacing in account.spacings.items() if name in names}
    return replace(
        account, state=state, external_usage=others, learned=learned, spacings=spacings, suspects={}
    )


def pool_with_learned_limits(
    pool: PoolSettings, account: Account, now: Instant, units: Units | None = None
) -> PoolSettings:
    """Returns the pool's settings, with learned limits and spacings in place of the declared ones. `units`:
    the units of a call that has to fit, see `learned_limits.apply_learned_limits`."""
    limited = learned_limits.apply_learned_limits(pool, account.learned, now.wall, units)
    return learned_spacings.apply_spacings(pool, limited, account.spacings, now.wall)


def request_units(
    pool: PoolSettings, account: Account, request: UnitRequest, now: Instant
) -> UnitGrant | UnitDenial:
    # Expired closures are removed in the transaction that finds them expired (N6). An operator's closure is
    # another field.
    account = replace(account, breaker=breakers.drop_expired_closures(account.breaker, now))
    if account.closed is not None and account.closed.holds(now.wall):
        return UnitDenial(account, "closed", _seconds_until(account.closed.until, now))
    gate = breakers.check_gate(account.breaker, request.units, now)
    if isinstance(gate, ClosedGate):
        return UnitDenial(account, gate.closure.reason, _seconds_until(gate.until, now))
    pool = pool_with_learned_limits(pool, account, now, request.units)
    limited = breakers.pool_with_ramp_and_cap(pool, account.breaker, now)
    answer = reservations.reserve_units(limited, account.state, request, now)
    if isinstance(answer, reservations.ReservationDenial):
        if too_small := pool.never_fits(request.units):
            return UnitDenial(account, too_small, math.inf, never=True)
        wait = answer.wait if limited is pool else _ramp_wait(pool, account, request, answer.wait, now)
        return UnitDenial(replace(account, state=answer.state), answer.limit, wait)
    account = replace(account, state=answer.state)
    if gate.probe:
        account = replace(account, breaker=breakers.start_probe(account.breaker, request.job))
    reservation = replace(answer.reservation, left=_remaining_units(pool, account.state, now))
    return UnitGrant(account, reservation, gate.probe)


def settle_units(
    pool: PoolSettings, account: Account, reservation: Reservation, used: Units | None, now: Instant
) -> Account:
    pool = pool_with_learned_limits(pool, account, now)
    return replace(
        account, state=reservations.settle_reservation(pool, account.state, reservation, used, now)
    )


def release_units(pool: PoolSettings, account: Account, reservation: Reservation, now: Instant) -> Account:
    pool = pool_with_learned_limits(pool, account, now)
    return replace(account, state=reservations.release_reservation(pool, account.state, reservation, now))


def defer_units(
    pool: PoolSettings, account: Account, reservation: Reservation, now: Instant
) -> tuple[Account, Reservation]:
    granted = reservations.defer_units(
        pool_with_learned_limits(pool, account, now), account.state, reservation, now
    )
    return replace(account, state=granted.state), granted.reservation


def recount_account(pool: PoolSettings, account: Account, reservation: Reservation, now: Instant) -> Account:
    pool = pool_with_learned_limits(pool, account, now)
    return replace(account, state=reservations.recount_units(pool, account.state, reservation, now))


def record_call_end(account: Account, job: str, now: Instant, *, is_success: bool) -> Account:
    """Returns the account after a call of `job` has ended. The account changes only if the job is the pool's
    probe. A successful probe opens the pool. Without success, another job may become the probe."""
    changed = (
        breakers.finish_probe(account.breaker, job, now)
        if is_success
        else breakers.drop_probe(account.breaker, job)
    )
    return _with_breaker(account, changed)


def has_learned(account: Account) -> bool:
    """True if a successful call may change what the account has learned."""
    return bool(account.learned or account.spacings)


def record_success(
    pool: PoolSettings, account: Account, now: Instant, claimed: float | None = None
) -> Account:
    """Returns the account after a successful call. Guessed limits may rise, and learned spacings may become
    shorter. `claimed` is the boot-clock time of the call's claim."""
    learned = learned_limits.raise_guesses(pool, account.learned, now.wall)
    spacings = learned_spacings.learn_from_success(pool, account.spacings, claimed, now)
    if learned is account.learned and spacings is account.spacings:
        return account
    return _with_learned(pool, account, learned, spacings, now)


def record_observation(
    pool: PoolSettings,
    account: Account,
    seen: Observation,
    job: str | None,
    now: Instant,
    *,
    chance: float,
    running: int,
    call: CallFacts = UNKNOWN_CALL,
) -> Account:
    """Returns the account after a provider's answer `seen`: learned limits, breaker and external usage may
    change.

    - `job`: the job of the call if the call was the probe, else None.
    - `chance`: a random number from 0 to 1.
    - `running`: the number of calls in flight.
    - `call`: facts about the call's reservation."""
    account = _with_stated_limits(pool, account, seen.amounts, now)
    state, others = core_external_usage.record_external_usage(
        pool_with_learned_limits(pool, account, now), account.state, account.external_usage, seen, call, now
    )
    account = replace(account, state=state, external_usage=others)
    if seen.refusal is None:
        return account
    known = RefusalFacts(
        chance=chance,
        probe=_is_probe(account, job),
        day_used=day_quota_share(pool, account.state, seen.refusal.unit, now),
        running=running,
        claimed=call.claimed,
    )
    limited = pool_with_learned_limits(pool, account, now)
    spacings = learned_spacings.learn_from_refusal(
        pool, limited, account.spacings, seen.refusal, call.claimed, now
    )
    account = _with_guessed_limits(pool, account, seen.refusal, seen.amounts, running, now)
    account = replace(account, spacings=spacings)
    return _with_breaker(account, breakers.record_refusal(pool, account.breaker, seen.refusal, now, known))


def spends_attempt(
    account: Account, refusal: Refusal, job: str | None, claimed: float | None, now: Instant
) -> bool:
    """True if a refusal costs the job an attempt (P17). Call this function before `record_observation`, with
    the same `job`. `claimed` is the boot-clock time of the claim, None if unknown."""
    seen = RefusalFacts(chance=0.0, probe=_is_probe(account, job), claimed=claimed)
    return breakers.spends_attempt(account.breaker, refusal, now, seen)


def _is_probe(account: Account, job: str | None) -> bool:
    probe = account.breaker.probe
    return probe is not None and probe.job == job


def close_account(account: Account, mark: OperatorClosure) -> Account:
    return replace(account, closed=mark)


def open_account(account: Account) -> Account:
    """Returns the account after an operator opened the pool. All closures, the probe, the ramp, the
    concurrency cap, the learned limits and the learned spacings are removed."""
    state = replace(account.state, revision=account.state.revision + 1)
    return replace(
        account,
        state=state,
        breaker=breakers.reopen_breaker(),
        closed=None,
        learned={},
        spacings={},
        suspects={},
    )


def _with_breaker(account: Account, changed: Breaker) -> Account:
    """Returns the account with `changed` as its breaker. If the breaker differs, the account's revision
    grows, and stores try waiting jobs again."""
    if changed == account.breaker:
        return account
    state = replace(account.state, revision=account.state.revision + 1)
    return replace(account, breaker=changed, state=state)


def _with_stated_limits(pool: PoolSettings, account: Account, amounts: Units, now: Instant) -> Account:
    learned = learned_limits.learn_stated_limits(pool, account.learned, amounts, now.wall)
    return _with_learned(pool, account, learned, account.spacings, now)


def _with_learned(
    pool: PoolSettings, account: Account, learned: LearnedLimits, spacings: LearnedSpacings, now: Instant
) -> Account:
    """Returns the account with these learned limits and spacings. If a limit grew or a spacing became
    shorter, the account's revision grows, and stores try waiting jobs again."""
    changed = replace(account, learned=learned, spacings=spacings)
    pairs = zip(
        pool_with_learned_limits(pool, account, now).limits,
        pool_with_learned_limits(pool, changed, now).limits,
        strict=True,
    )
    if any(_allows_more(before, after) for before, after in pairs):
        return replace(changed, state=replace(changed.state, revision=changed.state.revision + 1))
    return changed


def _allows_more(before: Limit, after: Limit) -> bool:
    if after.amount > before.amount:
        return True
    return isinstance(before, SpacedLimit) and window_seconds(after) < before.spacing


def _with_guessed_limits(  # noqa: PLR0917 - a refusal and its context
    pool: PoolSettings, account: Account, refusal: Refusal, amounts: Units, running: int, now: Instant
) -> Account:
    """Returns the account after a refusal. If the provider stated no amount for a limit, the first refusal is
    only remembered, and a second one lowers the limit.

    - `amounts`: the stated amounts by limit name.
    - `running`: the number of calls in flight."""
    learned, suspects = dict(account.learned), dict(account.suspects)
    for limit, by_people in zip(
        pool_with_learned_limits(pool, account, now).limits, pool.limits, strict=True
    ):
        if not learned_limits.is_suspect(limit, refusal, amounts):
            continue
        first = suspects.get(limit.name)
        before = learned.get(limit.name)
        if learned_limits.confirms_suspicion(limit, first, now.wall) or learned_limits.has_risen(
            before, now.wall
        ):
            used = account.state.counted(limit, now, pool.guards)
            let_through = used - running if limit.unit == "requests" else 0.0
            learned[limit.name] = learned_limits.guess_limit(
                limit, let_through, now.wall, by_people.amount, before
            )
            first = None
        if first is None or not learned_limits.is_recent_refusal(limit, first, now.wall):
            suspects[limit.name] = now.wall
    return replace(account, learned=learned, suspects=suspects)


def _remaining_units(pool: PoolSettings, state: PoolState, now: Instant) -> Units:
    """Returns the units that are left of each limit by our own count, by limit name. Limits on concurrency
    are left out."""
    windowed = [limit for limit in pool.limits if limit.per is not None]
    return {limit.name: limit.amount - state.counted(limit, now, pool.guards) for limit in windowed}


def _ramp_wait(
    pool: PoolSettings, account: Account, request: UnitRequest, wait: float, now: Instant
) -> float:
    """Returns the seconds until the ramp admits the call. `wait`: the seconds if the limits stayed as they
    are now."""
    rest = breakers.ramp_seconds_left(pool, account.breaker, now)

    def lets_in(later: float) -> bool:
        then = Instant(now.wall + later, now.boot + later)
        return reservations.would_fit(
            breakers.pool_with_ramp_and_cap(pool, account.breaker, then), account.state, request, then
        )

    if rest == 0:
        return wait
    if not lets_in(rest):
        then = Instant(now.wall + rest, now.boot + rest)
        return min(wait, rest + reservations.seconds_until_fit(pool, account.state, request, then))
    early, late = 0.0, rest
    for _ in range(_RAMP_BISECTIONS):
        middle = (early + late) / 2
        early, late = (early, middle) if lets_in(middle) else (middle, late)
    return max(min(late, wait), TOLERANCE)


def _seconds_until(wall: float | None, now: Instant) -> float:
    return math.inf if wall is None else max(wall - now.wall, TOLERANCE)
