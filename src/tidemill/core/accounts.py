"""One pool, or one key of it, as a store keeps it, and what each verb makes of it.

A store loads an account, calls one of these functions in the same step as what it does to the job, and
saves what comes back. All arithmetic is in `core.reserving`, all closing in `core.breaker`.
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from tidemill.core import breaker as breakers
from tidemill.core import foreign, learning, reserving
from tidemill.core.breaker import Breaker, Shut
from tidemill.core.closing import Seen, day_used
from tidemill.core.foreign import UNKNOWN_CALL, CallFacts
from tidemill.core.learning import Lessons
from tidemill.core.pools import PoolSettings, PoolState, resized, since_boot
from tidemill.core.refusals import Refusal
from tidemill.core.reserving import Ask, Reservation
from tidemill.core.spending import Observation
from tidemill.core.units import Units
from tidemill.core.windows import Instant, Kept
from tidemill.core.windows.calendar import CalendarCount
from tidemill.core.windows.window import TINY

ELSEWHERE = "another store"
"""A boot that is nobody's."""
_LOOKS = 30
"""Halvings until the moment a ramp lets a call in is known to a millisecond."""


class HandClosure(msgspec.Struct, frozen=True, kw_only=True):
    """A person's mark: only a person, or its time (wall), ends it."""

    by: str
    since: float
    until: float | None = None
    reason: str | None = None

    def holds(self, wall: float) -> bool:
        return self.until is None or wall < self.until


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """`foreign` are windows of their own, by the limit's name, in which only what others were seen to use
    is entered, so that it is forgotten when they pass. `learned` is by the limit's name too; `suspects` is
    when a refusal last left the amount of a limit in doubt (wall)."""

    state: PoolState = PoolState()
    breaker: Breaker = Breaker()
    closed: HandClosure | None = None
    foreign: dict[str, Kept] = msgspec.field(default_factory=dict)
    learned: Lessons = msgspec.field(default_factory=dict)
    suspects: dict[str, float] = msgspec.field(default_factory=dict)


class Taken(msgspec.Struct, frozen=True):
    """`probe`: this call tries alone for the others."""

    account: Account
    reservation: Reservation
    probe: bool = False


class Denied(msgspec.Struct, frozen=True):
    """`cause` is a limit's name, "closed", a reason of the breaker, or "held for job …". `wait` is in
    seconds, infinite when only a call that ends or a person can change it. `never`: the call is larger than
    the limit, which was changed since the job was accepted."""

    account: Account
    cause: str
    wait: float
    never: bool = False


def current(pool: PoolSettings, account: Account, boot: str, now: Instant) -> Account:
    """What a stored account is worth now, after another boot and with limits that may have been edited."""
    account = _at_boot(pool, account, boot, now)
    known = breakers.as_of(account.breaker, now)
    account = account if known is account.breaker else replace(account, breaker=known)
    state = resized(believed(pool, account, now), account.state, now)
    return account if state is account.state else replace(account, state=state)


def _at_boot(pool: PoolSettings, account: Account, boot: str, now: Instant) -> Account:
    if account.state.boot == boot:
        return account
    state = since_boot(pool, account.state, boot, now)
    if not account.state.boot:
        return replace(account, state=state)
    # Times of another boot say nothing; a calendar's count is on disk and goes on.
    others = {name: kept for name, kept in account.foreign.items() if isinstance(kept, CalendarCount)}
    return replace(account, state=state, breaker=breakers.rebooted(account.breaker), foreign=others)


def as_of_another_boot(account: Account) -> Account:
    """Whatever boot it is loaded in, its times mean nothing: it comes from a store with other clocks."""
    if not account.state.boot:
        return account
    return replace(account, state=replace(account.state, boot=ELSEWHERE))


def redeclared(account: Account, names: frozenset[str]) -> Account:
    """P1. Only what goes on is kept, see `core.pools.going_on`: a limit that comes back starts unused."""
    windows = {name: window for name, window in account.state.windows.items() if name in names}
    others = {name: window for name, window in account.foreign.items() if name in names}
    held = {name: units for name, units in account.state.held.items() if name in names}
    state = replace(account.state, windows=windows, held=held, revision=account.state.revision + 1)
    learned = learning.kept(account.learned, names)
    return replace(account, state=state, foreign=others, learned=learned, suspects={})


def believed(pool: PoolSettings, account: Account, now: Instant) -> PoolSettings:
    """The pool with what was learned of it."""
    return learning.applied(pool, account.learned, now.wall)


def ask(pool: PoolSettings, account: Account, wanted: Ask, now: Instant) -> Taken | Denied:
    # What is over is cleared here, in the step that finds it over (N6); a person's mark is another field.
    account = replace(account, breaker=breakers.tidied(account.breaker, now))
    if account.closed is not None and account.closed.holds(now.wall):
        return Denied(account, "closed", _until(account.closed.until, now))
    gate = breakers.gate(account.breaker, wanted.units, now)
    if isinstance(gate, Shut):
        return Denied(account, gate.closure.reason, _until(gate.until, now))
    pool = learning.applied(pool, account.learned, now.wall, wanted.units)
    limited = breakers.restrained(pool, account.breaker, now)
    answer = reserving.reserve(limited, account.state, wanted, now)
    if isinstance(answer, reserving.Refused):
        if too_small := pool.never_fits(wanted.units):
            return Denied(account, too_small, math.inf, never=True)
        wait = answer.wait if limited is pool else _ramp_wait(pool, account, wanted, answer.wait, now)
        return Denied(replace(account, state=answer.state), answer.limit, wait)
    account = replace(account, state=answer.state)
    if gate.probe:
        account = replace(account, breaker=breakers.probing(account.breaker, wanted.job))
    kept = replace(answer.reservation, left=_left(pool, account.state, now))
    return Taken(account, kept, gate.probe)


def settled(
    pool: PoolSettings, account: Account, kept: Reservation, used: Units | None, now: Instant
) -> Account:
    pool = believed(pool, account, now)
    return replace(account, state=reserving.settle(pool, account.state, kept, used, now))


def released(pool: PoolSettings, account: Account, kept: Reservation, now: Instant) -> Account:
    pool = believed(pool, account, now)
    return replace(account, state=reserving.release(pool, account.state, kept, now))


def put_by(
    pool: PoolSettings, account: Account, kept: Reservation, now: Instant
) -> tuple[Account, Reservation]:
    granted = reserving.put_by(believed(pool, account, now), account.state, kept, now)
    return replace(account, state=granted.state), granted.reservation


def counted_anew(pool: PoolSettings, account: Account, kept: Reservation, now: Instant) -> Account:
    pool = believed(pool, account, now)
    return replace(account, state=reserving.count_anew(pool, account.state, kept, now))


def heard(account: Account, job: str, now: Instant, *, well: bool) -> Account:
    """A call of that job ended: its answer may open what it probed."""
    told = breakers.answered(account.breaker, job, now) if well else breakers.unprobed(account.breaker, job)
    return _with(account, told)


def succeeded(pool: PoolSettings, account: Account, now: Instant) -> Account:
    """A call came back well: what was guessed of the limits may rise."""
    lessons = learning.recovered(pool, account.learned, now.wall)
    return account if lessons is account.learned else _with_lessons(pool, account, lessons, now)


def observed(
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
    """What a provider said: less left than we know of was used by others, and is taken as used."""
    account = _with_stated(pool, account, seen.amounts, now)
    state, others = foreign.noticed(
        believed(pool, account, now), account.state, account.foreign, seen, call, now
    )
    account = replace(account, state=state, foreign=others)
    if seen.refusal is None:
        return account
    known = Seen(
        chance=chance,
        probe=_is_probe(account, job),
        day_used=day_used(pool, account.state, seen.refusal.unit, now),
        running=running,
        claimed=call.claimed,
    )
    account = _with_guesses(pool, account, seen.refusal, seen.amounts, running, now)
    return _with(account, breakers.refused(pool, account.breaker, seen.refusal, now, known))


def spends_attempt(
    account: Account, refusal: Refusal, job: str | None, claimed: float | None, now: Instant
) -> bool:
    """P17: asked before the refusal is `observed`, with the same `job`."""
    seen = Seen(chance=0.0, probe=_is_probe(account, job), claimed=claimed)
    return breakers.spends_attempt(account.breaker, refusal, now, seen)


def _is_probe(account: Account, job: str | None) -> bool:
    probe = account.breaker.probe
    return probe is not None and probe.job == job


def closed(account: Account, mark: HandClosure) -> Account:
    return replace(account, closed=mark)


def opened(account: Account) -> Account:
    """By hand: whoever closed it, it is open, without probe or ramp, and what was learned is forgotten."""
    state = replace(account.state, revision=account.state.revision + 1)
    return replace(account, state=state, breaker=breakers.reopened(), closed=None, learned={}, suspects={})


def _with(account: Account, told: Breaker) -> Account:
    """A breaker that changed may have opened: whoever waits for it must ask again."""
    if told == account.breaker:
        return account
    state = replace(account.state, revision=account.state.revision + 1)
    return replace(account, breaker=told, state=state)


def _with_stated(pool: PoolSettings, account: Account, amounts: Units, now: Instant) -> Account:
    return _with_lessons(pool, account, learning.stated(pool, account.learned, amounts, now.wall), now)


def _with_lessons(pool: PoolSettings, account: Account, lessons: Lessons, now: Instant) -> Account:
    """Where more is believed than before, whoever waits must ask again."""
    told = replace(account, learned=lessons)
    pairs = zip(believed(pool, account, now).limits, believed(pool, told, now).limits, strict=True)
    if any(after.amount > before.amount for before, after in pairs):
        return replace(told, state=replace(told.state, revision=told.state.revision + 1))
    return told


def _with_guesses(  # noqa: PLR0917 - a refusal, and what is known beside it
    pool: PoolSettings, account: Account, refusal: Refusal, amounts: Units, running: int, now: Instant
) -> Account:
    """Refused within our own limits, and nobody says what is allowed."""
    learned, suspects = dict(account.learned), dict(account.suspects)
    for limit, by_people in zip(believed(pool, account, now).limits, pool.limits, strict=True):
        if not learning.suspected(limit, refusal, amounts):
            continue
        first = suspects.get(limit.name)
        before = learned.get(limit.name)
        if learning.is_second(limit, first, now.wall) or learning.has_risen(before, now.wall):
            used = account.state.counted(limit, now, pool.guards)
            let_through = used - running if limit.unit == "requests" else 0.0
            learned[limit.name] = learning.guessed(limit, let_through, now.wall, by_people.amount, before)
            first = None
        if first is None or not learning.is_recent(limit, first, now.wall):
            suspects[limit.name] = now.wall
    return replace(account, learned=learned, suspects=suspects)


def _left(pool: PoolSettings, state: PoolState, now: Instant) -> Units:
    """By our own count, of every limit a provider may speak of."""
    windowed = [limit for limit in pool.limits if limit.per is not None]
    return {limit.name: limit.amount - state.counted(limit, now, pool.guards) for limit in windowed}


def _ramp_wait(pool: PoolSettings, account: Account, wanted: Ask, wait: float, now: Instant) -> float:
    """When the ramp lets a call in. Its windows as they are now would say "never" or too late: they grow
    while it waits."""
    rest = breakers.ramp_left(pool, account.breaker, now)

    def lets_in(later: float) -> bool:
        then = Instant(now.wall + later, now.boot + later)
        return reserving.would_fit(
            breakers.restrained(pool, account.breaker, then), account.state, wanted, then
        )

    if rest == 0:
        return wait
    if not lets_in(rest):
        then = Instant(now.wall + rest, now.boot + rest)
        return min(wait, rest + reserving.wait(pool, account.state, wanted, then))
    early, late = 0.0, rest
    for _ in range(_LOOKS):
        middle = (early + late) / 2
        early, late = (early, middle) if lets_in(middle) else (middle, late)
    return max(min(late, wait), TINY)


def _until(wall: float | None, now: Instant) -> float:
    return math.inf if wall is None else max(wall - now.wall, TINY)
