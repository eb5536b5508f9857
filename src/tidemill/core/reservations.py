"""Reservations: taking units of a pool for one call, and returning them.

A claim makes the reservation, and its units count from then on. A reservation ends once, in one of four ways:

- It is settled with the real usage.
- It is settled with unknown usage.
- It is released, because no call was made.
- It is recounted, because its worker stopped answering and may still make the call.

Most limits count units at the claim. Some units are counted when the answer is complete (`Limit.held`). These
units are held during the call, because they would otherwise expire too early."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from tidemill.core.limits import Limit, Shape
from tidemill.core.needs import Units, least, minus
from tidemill.core.pools import PoolHold, PoolSettings, PoolState, call_amount
from tidemill.core.windows import Instant, WindowState
from tidemill.core.windows.base import LONG_AGO, TOLERANCE

HOLD_LAPSE_SECONDS = 10.0
"""Seconds after the held capacity could have been used. A job that has not come by then blocks others for
nothing, because its queue is paused or its workers are gone."""
HOLD_RECHECK_SECONDS = 0.5
"""Seconds until another job asks again whether held capacity was used: most jobs come at once."""


class UnitRequest(msgspec.Struct, frozen=True):
    """A request for units of a pool. `line` is a name for the jobs that wait together for the pool
    (`core.ledger.hold_scope`), '' for none. Of these jobs, only the first asks for units."""

    job: str
    units: Units
    priority: int
    line: str = ""


class Reservation(msgspec.Struct, frozen=True):
    """Units reserved for one call.

    - `marks`: by limit name, where in the window the units were counted (see `Window.taken`).
    - `boot`: the boot id of the reservation.
    - `held`: by limit name, units that no window counts yet.
    - `left`: by limit name, the units of the limit that were left at the reservation.
    - `at`: the boot-clock time of the reservation.
    - `checked`: False for an extra request (P21), which is not counted as another call in flight."""

    units: Units
    marks: dict[str, float]
    boot: str = ""
    held: Units = msgspec.field(default_factory=dict)
    left: Units = msgspec.field(default_factory=dict)
    at: float = LONG_AGO
    checked: bool = True


class ReservationGrant(msgspec.Struct, frozen=True):
    """The answer if units were reserved: the pool's state afterwards, and the reservation."""

    state: PoolState
    reservation: Reservation


class ReservationDenial(msgspec.Struct, frozen=True):
    """The answer if units were not reserved.

    - `state`: the state to save.
    - `limit`: the name of the limit with the longest wait, or "held for job …".
    - `wait`: the seconds until the call fits; infinite if another call must end first."""

    state: PoolState
    limit: str
    wait: float


def reserve_units(
    pool: PoolSettings, state: PoolState, ask: UnitRequest, now: Instant
) -> ReservationGrant | ReservationDenial:
    """Reserves the units of the request `ask` from all limits of the pool, or from none. `state` must belong
    to the current boot. Save the returned state after a denial too, because it may have a new hold."""
    waits = {limit.name: _limit_wait(pool, state, ask, limit.name, now) for limit in pool.limits}
    limit, wait = max(waits.items(), key=lambda item: item[1])
    hold = _live_hold(state.hold, now)
    if wait > 0:
        return ReservationDenial(replace(state, hold=_next_hold(pool, ask, hold, wait, now)), limit, wait)
    own = hold is not None and _is_own(hold, ask)
    granted = _take_units(pool, replace(state, hold=None if own else hold), ask.units, now)
    if hold is not None and hold.firm and not own and ask.priority >= hold.priority:
        before, after = (_longest_wait(pool, known, hold.units, now) for known in (state, granted.state))
        if after > before + TOLERANCE:
            return ReservationDenial(state, f"held for job {hold.job}", max(before, HOLD_RECHECK_SECONDS))
    return granted


def settle_reservation(
    pool: PoolSettings, state: PoolState, reservation: Reservation, used: Units | None, now: Instant
) -> PoolState:
    """Returns the state after a finished call. `used` is the real usage by unit. If it is None (unknown), all
    reserved units count."""
    windows = dict(state.windows)
    freed = False
    for limit, need in _held_limits(pool, reservation):
        actual = need if used is None else used.get(limit.unit, need)
        windows[limit.name], _ = state.window(limit).taken(limit, actual, now, pool.guards)
        freed |= actual < need
    for limit, need, mark in _entered_limits(pool, reservation):
        actual = need if used is None else used.get(limit.unit, need)
        window = state.window(limit)
        if limit.per is None:
            windows[limit.name], freed = window.returned(limit, need, mark, now), True
        elif limit.charge == "reserved":
            continue
        elif actual < need and _is_refundable(state, reservation, limit):
            windows[limit.name], freed = window.returned(limit, need - actual, mark, now), True
        elif actual > need:
            windows[limit.name], _ = window.taken(limit, actual - need, now, pool.guards)
    return _with_windows(_drop_held_units(state, reservation), windows, freed=freed)


def release_reservation(
    pool: PoolSettings, state: PoolState, reservation: Reservation, now: Instant
) -> PoolState:
    """Returns the state with all units of the reservation given back, because no call was made."""
    windows = dict(state.windows)
    for limit, need, mark in _entered_limits(pool, reservation):
        if _is_refundable(state, reservation, limit):
            windows[limit.name] = state.window(limit).returned(limit, need, mark, now)
    return _with_windows(_drop_held_units(state, reservation), windows, freed=True)


def recount_units(pool: PoolSettings, state: PoolState, reservation: Reservation, now: Instant) -> PoolState:
    """Returns the state after the worker of a reservation stopped answering. The units count again from now
    on, because the worker may still make its call."""
    windows = dict(state.windows)
    for limit, need in _held_limits(pool, reservation):
        windows[limit.name], _ = state.window(limit).taken(limit, need, now, pool.guards)
    for limit, need, mark in _entered_limits(pool, reservation):
        window = state.window(limit)
        if limit.per is None:
            windows[limit.name] = window.returned(limit, need, mark, now)
        else:
            windows[limit.name], _ = window.taken(limit, need, now, pool.guards)
    return _with_windows(_drop_held_units(state, reservation), windows, freed=True)


def drop_hold(state: PoolState, job: str) -> PoolState:
    """Returns the state without the capacity held for `job`, which does not wait any more."""
    if state.hold is None or state.hold.job != job:
        return state
    return replace(state, hold=None, revision=state.revision + 1)


def split_reservation(
    pool: PoolSettings, reservation: Reservation, units: Units
) -> tuple[Reservation, Reservation | None]:
    """Splits a reservation in two. Returns the part for a call with these `units`, and the remaining part,
    None if nothing remains."""
    limits = [limit for limit in pool.limits if limit.name in reservation.held]
    held = {
        limit.name: min(call_amount(units, limit) or 0.0, reservation.held[limit.name]) for limit in limits
    }
    rest = minus(reservation.units, units)
    left = {name: amount - held.get(name, 0.0) for name, amount in reservation.held.items()}
    part = replace(reservation, units=least(reservation.units, units), held=held)
    return part, replace(reservation, units=rest, held=left) if any(rest.values()) else None


def defer_units(
    pool: PoolSettings, state: PoolState, reservation: Reservation, now: Instant
) -> ReservationGrant:
    """Takes the units of a reservation out of the windows and holds them for a later call. Units of paced
    limits stay in their window."""
    windows, held, marks = dict(state.windows), dict(state.held), dict(reservation.marks)
    own = dict(reservation.held)
    for limit, need, mark in _entered_limits(pool, reservation):
        # Holding units of a paced limit would block all calls.
        if limit.per is not None and limit.shape is not Shape.PACED:
            windows[limit.name] = state.window(limit).returned(limit, need, mark, now)
            held[limit.name] = held.get(limit.name, 0.0) + need
            own[limit.name] = need
            del marks[limit.name]
    deferred = replace(reservation, marks=marks, held=own)
    return ReservationGrant(replace(state, windows=windows, held=held), deferred)


def reenter_units(
    pool: PoolSettings, state: PoolState, reservation: Reservation, now: Instant
) -> ReservationGrant:
    """Counts the units of a reservation from now on, because the call leaves only now. Returns the new state
    and reservation."""
    windows, marks = dict(state.windows), dict(reservation.marks)
    for limit, need, mark in _entered_limits(pool, reservation):
        if limit.per is not None and need > 0:
            window = state.window(limit)
            if _is_refundable(state, reservation, limit):
                window = window.returned(limit, need, mark, now)
            windows[limit.name], marks[limit.name] = window.taken(limit, need, now, pool.guards)
    return ReservationGrant(
        replace(state, windows=windows), replace(reservation, marks=marks, boot=state.boot)
    )


def take_unchecked(pool: PoolSettings, state: PoolState, units: Units, now: Instant) -> ReservationGrant:
    """Reserves units without checking whether they fit, because the call is made in any case."""
    taken = _take_units(pool, state, units, now)
    return ReservationGrant(
        replace(taken.state, unchecked=state.unchecked + 1), replace(taken.reservation, checked=False)
    )


def redeclare_reservation(reservation: Reservation, names: frozenset[str]) -> Reservation:
    """Returns the reservation without its units in limits that no longer exist (P1). `names` are the limits
    that still exist."""
    marks = {name: mark for name, mark in reservation.marks.items() if name in names}
    return replace(
        reservation,
        marks=marks,
        held={name: reservation.held[name] for name in reservation.held if name in names},
    )


def would_fit(pool: PoolSettings, state: PoolState, ask: UnitRequest, now: Instant) -> bool:
    """True if the request fits into all limits now. Capacity held for other jobs is ignored."""
    return seconds_until_fit(pool, state, ask, now) <= 0


def seconds_until_fit(pool: PoolSettings, state: PoolState, ask: UnitRequest, now: Instant) -> float:
    return max(_limit_wait(pool, state, ask, limit.name, now) for limit in pool.limits)


def remaining_units(pool: PoolSettings, state: PoolState, now: Instant) -> Units:
    """Returns the units that are left of every limit, by limit name."""
    return {limit.name: state.room(limit, now, pool.guards) for limit in pool.limits}


def _limit_wait(pool: PoolSettings, state: PoolState, ask: UnitRequest, name: str, now: Instant) -> float:
    limit = next(limit for limit in pool.limits if limit.name == name)
    need = call_amount(ask.units, limit) or 0.0
    back = pool.back(limit, ask.priority)
    if need == 0 or need + back <= state.room(limit, now, pool.guards) + TOLERANCE:
        return 0.0
    # A call that would never fit beside the reserved share may use the share instead of waiting for ever.
    wait = state.wait(limit, need + back, now, pool.guards)
    if math.isinf(wait) and limit.per is not None:
        wait = state.wait(limit, need, now, pool.guards)
    return wait


def _take_units(pool: PoolSettings, state: PoolState, units: Units, now: Instant) -> ReservationGrant:
    windows: dict[str, WindowState] = dict(state.windows)
    marks: dict[str, float] = {}
    held: Units = {}
    for limit in pool.limits:
        need = call_amount(units, limit) or 0.0
        if limit.held:
            held[limit.name] = need
            continue
        windows[limit.name], marks[limit.name] = state.window(limit).taken(limit, need, now, pool.guards)
    under_way = {name: state.held.get(name, 0.0) + need for name, need in held.items()}
    taken = replace(state, windows=windows, held=state.held | under_way)
    return ReservationGrant(taken, Reservation(units, marks, state.boot, held, at=now.boot))


def _entered_limits(pool: PoolSettings, reservation: Reservation) -> Iterator[tuple[Limit, float, float]]:
    """Yields each limit whose window counts the reservation, with the counted units and their mark (see
    `Window.taken`)."""
    for limit in pool.limits:
        if limit.name in reservation.marks:
            yield limit, call_amount(reservation.units, limit) or 0.0, reservation.marks[limit.name]


def _held_limits(pool: PoolSettings, reservation: Reservation) -> Iterator[tuple[Limit, float]]:
    for limit in pool.limits:
        if limit.name in reservation.held:
            yield limit, reservation.held[limit.name]


def _drop_held_units(state: PoolState, reservation: Reservation) -> PoolState:
    """Returns the state without the held units of the reservation."""
    left = {name: units - reservation.held.get(name, 0.0) for name, units in state.held.items()}
    # Amounts close to zero are rounding errors.
    held = {name: units for name, units in left.items() if units > TOLERANCE}
    return replace(state, held=held, unchecked=state.unchecked - (not reservation.checked))


def _is_refundable(state: PoolState, reservation: Reservation, limit: Limit) -> bool:
    """True if unused units can be given back to the limit. After a restart, this is not possible for windows
    measured in seconds."""
    return reservation.boot == state.boot or not isinstance(limit.per, float)


def _longest_wait(pool: PoolSettings, state: PoolState, units: Units, now: Instant) -> float:
    return max(state.wait(limit, call_amount(units, limit) or 0.0, now, pool.guards) for limit in pool.limits)


def _live_hold(hold: PoolHold | None, now: Instant) -> PoolHold | None:
    return None if hold is None or now.boot >= hold.until else hold


def _next_hold(
    pool: PoolSettings, ask: UnitRequest, hold: PoolHold | None, wait: float, now: Instant
) -> PoolHold | None:
    """Returns the pool's hold after the request `ask` was denied. `hold` is the current hold, if any.

    A more urgent request replaces the hold. A larger request of the same priority replaces it unless the hold
    is firm. A hold becomes firm if its job asks again and still does not fit."""
    is_own = hold is not None and _is_own(hold, ask)
    if hold is not None and not is_own and hold.priority <= ask.priority:
        # Small calls must not take the hold away from a large call.
        larger = _largest_limit_share(pool, ask.units) > _largest_limit_share(pool, hold.units)
        if hold.firm or hold.priority < ask.priority or not larger:
            return hold
    until = now.boot + (0.0 if math.isinf(wait) else wait) + HOLD_LAPSE_SECONDS
    return PoolHold(
        job=ask.job, line=ask.line, firm=is_own, units=ask.units, priority=ask.priority, until=until
    )


def _is_own(hold: PoolHold, ask: UnitRequest) -> bool:
    """True if the hold does not delay the request, because both belong to the same job or the same `line`. A
    request that is more urgent than the hold of another job gives False."""
    # Two jobs of the same line would otherwise wait for each other.
    same_line = bool(ask.line) and hold.line == ask.line and ask.priority >= hold.priority
    return same_line or hold.job == ask.job


def _largest_limit_share(pool: PoolSettings, units: Units) -> float:
    """Returns the largest share of a limit that a call with these `units` needs; 1 is a whole limit."""
    return max((call_amount(units, limit) or 0.0) / limit.amount for limit in pool.limits)


def _with_windows(state: PoolState, windows: dict[str, WindowState], *, freed: bool) -> PoolState:
    return replace(state, windows=windows, revision=state.revision + freed)
