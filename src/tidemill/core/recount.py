"""Whether what an account counts for calls under way is what was reserved for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemill.core.limits import Limit
from tidemill.core.pools import PoolState, amount_of
from tidemill.core.reserving import Reservation
from tidemill.core.windows.concurrent import Concurrent
from tidemill.core.windows.window import TINY


def miscounted(
    at: str, limits: Sequence[Limit], state: PoolState, kept: Sequence[Reservation]
) -> Iterator[str]:
    """A sentence for every count that does not agree. `at` names the pool."""
    for limit in limits:
        counts, reserved = _under_way(state, limit), _reserved(kept, limit)
        if abs(counts - reserved) > TINY:
            yield f"pool {at!r} counts {counts:g} {limit.name} but {reserved:g} are reserved"
    unasked = sum(not one.asked for one in kept)
    if state.unasked != unasked:
        yield f"pool {at!r} counts {state.unasked} extra requests but {unasked} are reserved"


def _under_way(state: PoolState, limit: Limit) -> float:
    """What an account counts for calls that have not ended. What it entered for them passes by itself."""
    window = state.window(limit)
    return window.held if isinstance(window, Concurrent) else state.held.get(limit.name, 0.0)


def _reserved(kept: Sequence[Reservation], limit: Limit) -> float:
    if limit.per is None:
        return sum(amount_of(one.units, limit) or 0.0 for one in kept if limit.name in one.marks)
    return sum(one.held.get(limit.name, 0.0) for one in kept)
