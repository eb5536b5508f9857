"""Requests that leave late, or without a reservation.

A provider counts a request when it arrives. The windows allow `jitter` seconds between the claim and that
moment. A client that can see when a request leaves asks for one of two corrections before it lets it go:

- LATE: the units were taken long ago. They are entered again at this moment, in one step. They counted
  from the claim until now and count from now on, so there is no gap in which another call could take
  their place.
- EXTRA: the request is one more than was reserved, such as a client library's own retry. The client makes
  it in any case, so its units are entered even where the limit has no room for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec.structs import replace

from tidemill.core import accounts, reserving
from tidemill.core.ledger import Ledger, Reserved
from tidemill.core.needs import Need
from tidemill.core.units import Units
from tidemill.core.windows import Instant

ONE_REQUEST: Units = {"requests": 1.0, "jobs": 0.0, "concurrent": 0.0}
"""The units of an extra request. The attempt is one job, and its calls follow one another. Other units, such
as tokens, are booked at the settlement, when the answer has told them."""


class Departure(StrEnum):
    LATE = "late"
    EXTRA = "extra"


def late_one(held: Sequence[Reserved], need: Need) -> int | None:
    """The index of the reservation whose request leaves late; None when the claim holds none of that pool.

    The caller names the units and not the reservation. Among equals the oldest is right: of two calls of
    the same cost it does not matter which entry belongs to which, as long as the later entry stays."""
    place = (need.pool, need.key)
    candidates = [at for at, one in enumerate(held) if one.place == place and not one.extra]
    same_cost = [at for at in candidates if held[at].reservation.units == need.units]
    return next(iter(same_cost or candidates), None)


def enter_late(books: Ledger, late: Reserved, now: Instant) -> Reserved:
    """Enters the units of a reservation again, at this moment."""
    known = books.load(late.place)
    if known is None:
        return late
    pool, account = accounts.believed(*known, now), known[1]
    moved = reserving.enter_again(pool, account.state, late.reservation, now)
    books.save(late.place, replace(account, state=moved.state))
    return replace(late, reservation=moved.reservation)


def book_extra(books: Ledger, need: Need, now: Instant) -> Reserved | None:
    """Takes the units of a request that is made in any case. None when the pool or the key does not exist."""
    place = (need.pool, need.key)
    known = books.load(place)
    if known is None or known[0].keyed != (need.key is not None):
        return None
    pool, account = accounts.believed(*known, now), known[1]
    taken = reserving.take_anyway(pool, account.state, need.units, now)
    books.save(place, replace(account, state=taken.state))
    return Reserved(need.pool, need.key, taken.reservation)
