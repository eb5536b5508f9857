"""Units of provider calls that are not covered by the reservation made at the claim. There are three kinds:

- Deferred units are reserved for a later call, which the handler asked for in an earlier attempt.
- A late request leaves later than its reservation allows.
- An extra request is made in addition to the reserved calls."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec.structs import replace

from tidemill.core import accounts, ledger, reservations
from tidemill.core.accounts import UnitDenial
from tidemill.core.batch_start import BatchJob, single_call_needs
from tidemill.core.jobs import PRIORITY_RANGE
from tidemill.core.ledger import ClaimDenial, HeldReservation, Ledger
from tidemill.core.needs import Need, Units, combine_needs
from tidemill.core.reservations import Reservation, UnitRequest
from tidemill.core.windows import Instant


class DeferringJob(BatchJob, Protocol):
    """A job that may start. `deferred_needs` are units that its handler asked for in an earlier attempt, for
    calls that it has not made yet."""

    @property
    def id(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def deferred_needs(self) -> tuple[Need, ...]: ...


def reserve_for_job(
    pool_ledger: Ledger, job: DeferringJob, now: Instant, lane: tuple[str, str] | None = None
) -> tuple[HeldReservation, ...] | ClaimDenial:
    """Reserves all units of a job that shares no call (P11, P18). Returns the reservations, or the denial of
    the first pool that denies. If the job is the next one of its lane, `lane` is the pair of queue and lane
    name."""
    needs = single_call_needs(job)
    if not job.deferred_needs:
        return ledger.reserve_all(pool_ledger, job.id, job.priority, needs, now, lane)
    answer = ledger.reserve_all(
        pool_ledger, job.id, job.priority, combine_needs(needs, job.deferred_needs), now, lane
    )
    if isinstance(answer, ClaimDenial):
        return answer
    own = {(need.pool, need.key): need for need in needs}
    deferred = {(need.pool, need.key) for need in job.deferred_needs}
    found: list[HeldReservation] = []
    for reserved in answer:
        if reserved.account_key in deferred:
            found += _split_deferred(pool_ledger, reserved, own.get(reserved.account_key), now)
        else:
            found.append(reserved)
    return tuple(found)


def exchange_deferred(
    pool_ledger: Ledger, held: HeldReservation, need: Need, job: str, now: Instant
) -> tuple[HeldReservation, HeldReservation | None] | UnitDenial:
    """Replaces deferred units by a reservation that counts from now, because the handler makes its call now.
    Returns the new reservation and the units that stay deferred, if any. If the pool denies the units,
    returns the denial and changes nothing.

    - `held`: the deferred reservation.
    - `need`: the units of the call."""
    known = pool_ledger.load(held.account_key)
    if known is None:
        raise LookupError(f"pool {held.pool!r} is gone")
    pool, account = known
    part, rest = reservations.split_reservation(pool, held.reservation, need.units)
    free = accounts.release_units(pool, account, part, now)
    if held.probe:
        free = accounts.record_call_end(free, job, now, is_success=False)
    # The job had its turn when it was claimed: with the most urgent priority, no hold delays its call.
    answer = accounts.request_units(pool, free, UnitRequest(job, need.units, PRIORITY_RANGE[0]), now)
    if isinstance(answer, UnitDenial):
        return answer
    ledger.save_account(pool_ledger, held.account_key, job, account, answer.account)
    taken = HeldReservation(held.pool, held.key, answer.reservation, answer.probe)
    return taken, None if rest is None else replace(held, reservation=rest, probe=False)


def _split_deferred(
    pool_ledger: Ledger, reserved: HeldReservation, own: Need | None, now: Instant
) -> list[HeldReservation]:
    """Splits a reservation in two and returns the parts: first the units that the job itself needs (`own`),
    if any, then the deferred units."""
    known = pool_ledger.load(reserved.account_key)
    if known is None:
        raise LookupError(f"pool {reserved.pool!r} is gone")
    pool, account = known
    found: list[HeldReservation] = []
    rest: Reservation | None = reserved.reservation
    if own is not None:
        part, rest = reservations.split_reservation(pool, reserved.reservation, own.units)
        found.append(replace(reserved, reservation=part))
    if rest is not None:
        account, reservation = accounts.defer_units(pool, account, rest, now)
        pool_ledger.save(reserved.account_key, account)
        probe = reserved.probe and own is None
        found.append(replace(reserved, reservation=reservation, probe=probe, deferred=True))
    return found


EXTRA_REQUEST_UNITS: Units = {"requests": 1.0, "jobs": 0.0, "concurrent": 0.0}
"""The units of an extra request. The attempt is one job, and its calls follow one another. Other units,
such as tokens, are booked at the settlement, when the answer has reported them."""


class Departure(StrEnum):
    """The kind of a request that its reservation does not cover (P21).

    - `late`: the request leaves later than its reservation allows.
    - `extra`: the request is made in addition to the reserved ones."""

    LATE = "late"
    EXTRA = "extra"


def find_late_reservation(held: Sequence[HeldReservation], need: Need) -> int | None:
    """Returns the index in `held` of the reservation whose request leaves late. Returns None if the claim has
    no reservation for the pool and key of `need`. `need` has the units of the late request."""
    account_key = (need.pool, need.key)
    candidates = [
        at
        for at, reserved in enumerate(held)
        if reserved.account_key == account_key and not reserved.deferred
    ]
    same_cost = [at for at in candidates if held[at].reservation.units == need.units]
    # A wrong choice does no harm: the pool still counts the other reservations of the claim.
    return next(iter(same_cost or candidates), None)


def reenter_late_request(pool_ledger: Ledger, late: HeldReservation, now: Instant) -> HeldReservation:
    """Counts the units of a reservation from now instead of from the claim. Returns the changed reservation,
    or the same one if the pool no longer exists."""
    known = pool_ledger.load(late.account_key)
    if known is None:
        return late
    pool, account = accounts.pool_with_learned_limits(*known, now), known[1]
    moved = reservations.reenter_units(pool, account.state, late.reservation, now)
    pool_ledger.save(late.account_key, replace(account, state=moved.state))
    return replace(late, reservation=moved.reservation)


def take_extra_request(pool_ledger: Ledger, need: Need, now: Instant) -> HeldReservation | None:
    """Reserves the units of an extra request without checking whether they fit. Returns None if the pool does
    not exist or cannot have the key of `need`."""
    account_key = (need.pool, need.key)
    known = pool_ledger.load(account_key)
    if known is None or known[0].keyed != (need.key is not None):
        return None
    pool, account = accounts.pool_with_learned_limits(*known, now), known[1]
    taken = reservations.take_unchecked(pool, account.state, need.units, now)
    pool_ledger.save(account_key, replace(account, state=taken.state))
    return HeldReservation(need.pool, need.key, taken.reservation)
