"""Taking units of a pool for one call, and what becomes of them.

A reservation is taken with the claim and counts from then on: a handler starts within half of the jitter,
or its job is handed back and the reservation released. It ends once: settled with what was really used,
settled as unknown, released because no call was made, or counted anew because its worker fell silent
and may still make the call.

In most limits it is entered at once, since a provider counts a call when it arrives. What is counted when
the answer is complete (`Limit.held`) is held instead, which does not pass with time, and entered at the
end: entered at the claim it would be forgotten too early, by as long as the call took.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from tidemill.core.limits import Limit, Shape
from tidemill.core.pools import Hold, PoolSettings, PoolState, amount_of
from tidemill.core.units import Units, least, minus
from tidemill.core.windows import Instant, Kept
from tidemill.core.windows.window import LONG_AGO, TINY

HOLD_LAPSES = 10.0
"""Seconds after a call could have started in its place: whoever does not come then keeps others waiting for
nothing, because its queue is paused or its workers are gone."""
COMES_WITHIN = 0.5
"""When to look again whether a call has taken its place: most come at once."""


class Ask(msgspec.Struct, frozen=True):
    """`line` is where the job is next, if it stands in one: of a line only the next one ever asks."""

    job: str
    units: Units
    priority: int
    line: str = ""


class Reservation(msgspec.Struct, frozen=True):
    """`marks` tell by the limit's name where the units were entered, `boot` in which boot and `at` at what
    time of it, `left` what was left of it then. `held` are those, by the limit's name, that are not entered
    yet. `asked` is False for a request that is made in any case (P21): it belongs to a call that was granted
    before, and is no further call under way."""

    units: Units
    marks: dict[str, float]
    boot: str = ""
    held: Units = msgspec.field(default_factory=dict)
    left: Units = msgspec.field(default_factory=dict)
    at: float = LONG_AGO
    asked: bool = True


class Granted(msgspec.Struct, frozen=True):
    state: PoolState
    reservation: Reservation


class Refused(msgspec.Struct, frozen=True):
    """`limit` is the one that opens last, `wait` how long that takes if nobody takes any before: a hint
    for whoever sleeps, infinite when a call must end first."""

    state: PoolState
    limit: str
    wait: float


def reserve(pool: PoolSettings, state: PoolState, ask: Ask, now: Instant) -> Granted | Refused:
    """All limits or none. The state must be of this boot."""
    waits = {limit.name: _wait(pool, state, ask, limit.name, now) for limit in pool.limits}
    limit, wait = max(waits.items(), key=lambda item: item[1])
    hold = _standing(state.hold, now)
    if wait > 0:
        return Refused(replace(state, hold=_kept_for(pool, ask, hold, wait, now)), limit, wait)
    own = hold is not None and _is_own(hold, ask)
    granted = _taken(pool, replace(state, hold=None if own else hold), ask.units, now)
    if hold is not None and hold.firm and not own and ask.priority >= hold.priority:
        before, after = (_longest(pool, known, hold.units, now) for known in (state, granted.state))
        if after > before + TINY:
            return Refused(state, f"held for job {hold.job}", max(before, COMES_WITHIN))
    return granted


def settle(
    pool: PoolSettings, state: PoolState, kept: Reservation, used: Units | None, now: Instant
) -> PoolState:
    """The call ended. `used` says what it really cost, None that nobody knows: then all of it counts."""
    windows = dict(state.windows)
    freed = False
    for limit, need in _held(pool, kept):
        actual = need if used is None else used.get(limit.unit, need)
        windows[limit.name], _ = state.window(limit).taken(limit, actual, now, pool.guards)
        freed |= actual < need
    for limit, need, mark in _entered(pool, kept):
        actual = need if used is None else used.get(limit.unit, need)
        window = state.window(limit)
        if limit.per is None:
            windows[limit.name], freed = window.returned(limit, need, mark, now), True
        elif limit.charge == "reserved":
            continue
        elif actual < need and _is_known(state, kept, limit):
            windows[limit.name], freed = window.returned(limit, need - actual, mark, now), True
        elif actual > need:
            windows[limit.name], _ = window.taken(limit, actual - need, now, pool.guards)
    return _changed(_let_go(state, kept), windows, freed=freed)


def release(pool: PoolSettings, state: PoolState, kept: Reservation, now: Instant) -> PoolState:
    """No call was made: everything comes back."""
    windows = dict(state.windows)
    for limit, need, mark in _entered(pool, kept):
        if _is_known(state, kept, limit):
            windows[limit.name] = state.window(limit).returned(limit, need, mark, now)
    return _changed(_let_go(state, kept), windows, freed=True)


def count_anew(pool: PoolSettings, state: PoolState, kept: Reservation, now: Instant) -> PoolState:
    """The worker fell silent. It may have made the call long ago or make it yet, so its units count from
    now on as well; what it held at once is free."""
    windows = dict(state.windows)
    for limit, need in _held(pool, kept):
        windows[limit.name], _ = state.window(limit).taken(limit, need, now, pool.guards)
    for limit, need, mark in _entered(pool, kept):
        window = state.window(limit)
        if limit.per is None:
            windows[limit.name] = window.returned(limit, need, mark, now)
        else:
            windows[limit.name], _ = window.taken(limit, need, now, pool.guards)
    return _changed(_let_go(state, kept), windows, freed=True)


def withdrawn(state: PoolState, job: str) -> PoolState:
    """The job waits no more: the place that was kept for it is free."""
    if state.hold is None or state.hold.job != job:
        return state
    return replace(state, hold=None, revision=state.revision + 1)


def split(pool: PoolSettings, kept: Reservation, units: Units) -> tuple[Reservation, Reservation | None]:
    """As much of it as a call of that cost takes, and the rest, if there is any. Both stay entered where they
    were."""
    limits = [limit for limit in pool.limits if limit.name in kept.held]
    held = {limit.name: min(amount_of(units, limit) or 0.0, kept.held[limit.name]) for limit in limits}
    rest = minus(kept.units, units)
    left = {name: amount - held.get(name, 0.0) for name, amount in kept.held.items()}
    part = replace(kept, units=least(kept.units, units), held=held)
    return part, replace(kept, units=rest, held=left) if any(rest.values()) else None


def put_by(pool: PoolSettings, state: PoolState, kept: Reservation, now: Instant) -> Granted:
    """The call it was just taken for is made much later: what was entered would pass before, so it is held
    instead. A pace lets in one call after the other: holding one place would keep all others out, and the
    next is soon there."""
    windows, held, marks = dict(state.windows), dict(state.held), dict(kept.marks)
    own = dict(kept.held)
    for limit, need, mark in _entered(pool, kept):
        if limit.per is not None and limit.shape is not Shape.PACED:
            windows[limit.name] = state.window(limit).returned(limit, need, mark, now)
            held[limit.name] = held.get(limit.name, 0.0) + need
            own[limit.name] = need
            del marks[limit.name]
    return Granted(replace(state, windows=windows, held=held), replace(kept, marks=marks, held=own))


def enter_again(pool: PoolSettings, state: PoolState, kept: Reservation, now: Instant) -> Granted:
    """The call leaves only now: its units leave the place they were entered in and are entered at this
    moment. Units that are held, or that count until the call ends, stay as they are."""
    windows, marks = dict(state.windows), dict(kept.marks)
    for limit, need, mark in _entered(pool, kept):
        if limit.per is not None and need > 0:
            window = state.window(limit)
            if _is_known(state, kept, limit):
                window = window.returned(limit, need, mark, now)
            windows[limit.name], marks[limit.name] = window.taken(limit, need, now, pool.guards)
    return Granted(replace(state, windows=windows), replace(kept, marks=marks, boot=state.boot))


def take_anyway(pool: PoolSettings, state: PoolState, units: Units, now: Instant) -> Granted:
    """Takes units without asking whether they fit: the call is made in any case."""
    taken = _taken(pool, state, units, now)
    return Granted(replace(taken.state, unasked=state.unasked + 1), replace(taken.reservation, asked=False))


def redeclared(kept: Reservation, names: frozenset[str]) -> Reservation:
    """P1. What was entered in a limit that is gone is in none that is declared later."""
    marks = {name: mark for name, mark in kept.marks.items() if name in names}
    return replace(kept, marks=marks, held={name: kept.held[name] for name in kept.held if name in names})


def would_fit(pool: PoolSettings, state: PoolState, ask: Ask, now: Instant) -> bool:
    """Beside any hold."""
    return wait(pool, state, ask, now) <= 0


def wait(pool: PoolSettings, state: PoolState, ask: Ask, now: Instant) -> float:
    return max(_wait(pool, state, ask, limit.name, now) for limit in pool.limits)


def room(pool: PoolSettings, state: PoolState, now: Instant) -> Units:
    """What is left of every limit, by its name."""
    return {limit.name: state.room(limit, now, pool.guards) for limit in pool.limits}


def _wait(pool: PoolSettings, state: PoolState, ask: Ask, name: str, now: Instant) -> float:
    limit = next(limit for limit in pool.limits if limit.name == name)
    need = amount_of(ask.units, limit) or 0.0
    back = pool.back(limit, ask.priority)
    if need == 0 or need + back <= state.room(limit, now, pool.guards) + TINY:
        return 0.0
    # A call that would never fit beside what is held back may use it rather than wait for ever.
    wait = state.wait(limit, need + back, now, pool.guards)
    if math.isinf(wait) and limit.per is not None:
        wait = state.wait(limit, need, now, pool.guards)
    return wait


def _taken(pool: PoolSettings, state: PoolState, units: Units, now: Instant) -> Granted:
    windows: dict[str, Kept] = dict(state.windows)
    marks: dict[str, float] = {}
    held: Units = {}
    for limit in pool.limits:
        need = amount_of(units, limit) or 0.0
        if limit.held:
            held[limit.name] = need
            continue
        windows[limit.name], marks[limit.name] = state.window(limit).taken(limit, need, now, pool.guards)
    under_way = {name: state.held.get(name, 0.0) + need for name, need in held.items()}
    taken = replace(state, windows=windows, held=state.held | under_way)
    return Granted(taken, Reservation(units, marks, state.boot, held, at=now.boot))


def _entered(pool: PoolSettings, kept: Reservation) -> Iterator[tuple[Limit, float, float]]:
    """The limits the reservation was entered in; one that was declared since has none of it."""
    for limit in pool.limits:
        if limit.name in kept.marks:
            yield limit, amount_of(kept.units, limit) or 0.0, kept.marks[limit.name]


def _held(pool: PoolSettings, kept: Reservation) -> Iterator[tuple[Limit, float]]:
    for limit in pool.limits:
        if limit.name in kept.held:
            yield limit, kept.held[limit.name]


def _let_go(state: PoolState, kept: Reservation) -> PoolState:
    """What comes to nothing is not kept, or sums of fractions would leave crumbs for ever."""
    left = {name: units - kept.held.get(name, 0.0) for name, units in state.held.items()}
    held = {name: units for name, units in left.items() if units > TINY}
    return replace(state, held=held, unasked=state.unasked - (not kept.asked))


def _is_known(state: PoolState, kept: Reservation, limit: Limit) -> bool:
    """After another boot nobody knows how much of a window in seconds was used: all of it is taken as
    used, and nothing comes back. What is counted on disk does."""
    return kept.boot == state.boot or not isinstance(limit.per, float)


def _longest(pool: PoolSettings, state: PoolState, units: Units, now: Instant) -> float:
    return max(state.wait(limit, amount_of(units, limit) or 0.0, now, pool.guards) for limit in pool.limits)


def _standing(hold: Hold | None, now: Instant) -> Hold | None:
    return None if hold is None or now.boot >= hold.until else hold


def _kept_for(pool: PoolSettings, ask: Ask, hold: Hold | None, wait: float, now: Instant) -> Hold | None:
    """Whoever waits already keeps the place, unless this one is more urgent, or larger while nobody has
    been overtaken yet: else the first of many small ones would keep it from the large one, each time. A
    call that comes again and still does not fit was overtaken."""
    again = hold is not None and _is_own(hold, ask)
    if hold is not None and not again and hold.priority <= ask.priority:
        larger = _share(pool, ask.units) > _share(pool, hold.units)
        if hold.firm or hold.priority < ask.priority or not larger:
            return hold
    until = now.boot + (0.0 if math.isinf(wait) else wait) + HOLD_LAPSES
    return Hold(job=ask.job, line=ask.line, firm=again, units=ask.units, priority=ask.priority, until=until)


def _is_own(hold: Hold, ask: Ask) -> bool:
    """A job that was given back stands before the one it had made room for. If it had to wait for that one,
    both would wait for ever: the place is the line's, and its next one takes it. Not the more urgent, whom
    nobody's place holds up."""
    same_line = bool(ask.line) and hold.line == ask.line and ask.priority >= hold.priority
    return same_line or hold.job == ask.job


def _share(pool: PoolSettings, units: Units) -> float:
    """How much of a limit a call needs, of the one it needs most of."""
    return max((amount_of(units, limit) or 0.0) / limit.amount for limit in pool.limits)


def _changed(state: PoolState, windows: dict[str, Kept], *, freed: bool) -> PoolState:
    return replace(state, windows=windows, revision=state.revision + freed)
