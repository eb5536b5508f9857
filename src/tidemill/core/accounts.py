"""One pool, or one key of it, as a store keeps it, and what each verb makes of it.

A store loads an account, calls one of these functions in the same step as what it does to the job, and
saves what comes back. All arithmetic is in `core.reserving`, all closing in `core.breaker`.
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from tidemill.core import breaker as breakers
from tidemill.core import reserving
from tidemill.core.breaker import Breaker, Shut
from tidemill.core.closing import Seen, day_used
from tidemill.core.pools import PoolSettings, PoolState, since_boot
from tidemill.core.reserving import Ask, Reservation
from tidemill.core.spending import Observation
from tidemill.core.units import Units
from tidemill.core.windows import Instant
from tidemill.core.windows.window import TINY


class HandClosure(msgspec.Struct, frozen=True, kw_only=True):
    """A person's mark: only a person, or its time (wall), ends it."""

    by: str
    since: float
    until: float | None = None
    reason: str | None = None

    def holds(self, wall: float) -> bool:
        return self.until is None or wall < self.until


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """`foreign` is what others were seen to use of each limit in the window that runs."""

    state: PoolState = PoolState()
    breaker: Breaker = Breaker()
    closed: HandClosure | None = None
    foreign: Units = msgspec.field(default_factory=dict)


class Taken(msgspec.Struct, frozen=True):
    """`probe`: this call tries alone for the others."""

    account: Account
    reservation: Reservation
    probe: bool = False


class Denied(msgspec.Struct, frozen=True):
    """`cause` is a limit's name, "closed", a reason of the breaker, or "held for job …". `wait` is in
    seconds, infinite when only a call that ends or a person can change it."""

    account: Account
    cause: str
    wait: float


def at_boot(pool: PoolSettings, account: Account, boot: str, now: Instant) -> Account:
    """What an account of another boot is worth now."""
    if account.state.boot == boot:
        return account
    known = bool(account.state.boot)
    state = since_boot(pool, account.state, boot, now)
    return replace(
        account, state=state, breaker=breakers.rebooted(account.breaker) if known else account.breaker
    )


def redeclared(account: Account, names: frozenset[str]) -> Account:
    """P1. Only what goes on is kept, see `core.pools.going_on`: a limit that comes back starts unused."""
    windows = {name: window for name, window in account.state.windows.items() if name in names}
    foreign = {name: units for name, units in account.foreign.items() if name in names}
    state = replace(account.state, windows=windows, revision=account.state.revision + 1)
    return replace(account, state=state, foreign=foreign)


def ask(pool: PoolSettings, account: Account, wanted: Ask, now: Instant) -> Taken | Denied:
    if account.closed is not None and account.closed.holds(now.wall):
        return Denied(account, "closed", _until(account.closed.until, now))
    gate = breakers.gate(account.breaker, wanted.units, now)
    if isinstance(gate, Shut):
        return Denied(account, gate.closure.reason, _until(gate.until, now))
    limited = breakers.restrained(pool, account.breaker, now)
    answer = reserving.reserve(limited, account.state, wanted, now)
    account = replace(account, state=answer.state)
    if isinstance(answer, reserving.Refused):
        return Denied(account, answer.limit, answer.wait)
    if gate.probe:
        account = replace(account, breaker=breakers.probing(account.breaker, wanted.job, now))
    return Taken(account, answer.reservation, gate.probe)


def settled(
    pool: PoolSettings, account: Account, kept: Reservation, used: Units | None, now: Instant
) -> Account:
    return replace(account, state=reserving.settle(pool, account.state, kept, used, now))


def released(pool: PoolSettings, account: Account, kept: Reservation, now: Instant) -> Account:
    return replace(account, state=reserving.release(pool, account.state, kept, now))


def counted_anew(pool: PoolSettings, account: Account, kept: Reservation, now: Instant) -> Account:
    return replace(account, state=reserving.count_anew(pool, account.state, kept, now))


def heard(account: Account, job: str, now: Instant, *, well: bool) -> Account:
    """A call of that job ended: its answer may open what it probed."""
    told = breakers.answered(account.breaker, job, now) if well else breakers.unprobed(account.breaker, job)
    return _with(account, told)


def observed(
    pool: PoolSettings,
    account: Account,
    seen: Observation,
    job: str | None,
    now: Instant,
    *,
    chance: float,
    running: int,
) -> Account:
    """What a provider said: less left than we know of was used by others, and is taken as used."""
    account = _with_foreign(pool, account, seen.remaining, now)
    if seen.refusal is None:
        return account
    probe = account.breaker.probe
    known = Seen(
        chance=chance,
        probe=probe is not None and probe.job == job,
        day_used=day_used(pool, account.state, seen.refusal.unit, now),
        running=running,
    )
    return _with(account, breakers.refused(pool, account.breaker, seen.refusal, now, known))


def closed(account: Account, mark: HandClosure) -> Account:
    return replace(account, closed=mark)


def opened(account: Account) -> Account:
    """By hand: whoever closed it, it is open, without probe or ramp."""
    state = replace(account.state, revision=account.state.revision + 1)
    return replace(account, state=state, breaker=breakers.reopened(), closed=None)


def _with(account: Account, told: Breaker) -> Account:
    """A breaker that changed may have opened: whoever waits for it must ask again."""
    if told == account.breaker:
        return account
    state = replace(account.state, revision=account.state.revision + 1)
    return replace(account, breaker=told, state=state)


def _with_foreign(pool: PoolSettings, account: Account, remaining: Units, now: Instant) -> Account:
    """Our calls under way may or may not be among what the provider counted, so only what is missing
    beyond all of ours is somebody else's."""
    windows, foreign = dict(account.state.windows), dict(account.foreign)
    for limit in pool.limits:
        said = remaining.get(limit.name)
        if said is None or limit.per is None:
            continue
        window = account.state.window(limit)
        beyond = window.room(limit, now, pool.guards) - said
        if beyond > TINY:
            windows[limit.name], _ = window.taken(limit, beyond, now, pool.guards)
            foreign[limit.name] = foreign.get(limit.name, 0.0) + beyond
    return replace(account, state=replace(account.state, windows=windows), foreign=foreign)


def _until(wall: float | None, now: Instant) -> float:
    return math.inf if wall is None else max(wall - now.wall, TINY)
