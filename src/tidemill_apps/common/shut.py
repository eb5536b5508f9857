"""Why no call is made through a pool: a person closed it, or its breaker did."""

from __future__ import annotations

from msgspec import Struct

from tidemill import PoolStatus, Tidemill


class Shut(Struct, frozen=True):
    """Why no call is made, and until when (wall); None: until a person acts."""

    reason: str
    until: float | None

    def outlasts(self, moment: float) -> bool:
        return self.until is None or self.until > moment


def by_hand(pool: PoolStatus, now: float) -> Shut | None:
    closed = pool.closed
    if closed is None or not closed.holds(now):
        return None
    return Shut(closed.reason or f"the pool {pool.name} was closed by {closed.by}", closed.until)


def by_breaker(pool: PoolStatus, now: float) -> Shut | None:
    """Of several reasons, the one that holds longest."""
    holding = [closure for closure in pool.closures if closure.holds(now)]
    if not holding:
        return None
    longest = max(holding, key=lambda closure: float("inf") if closure.until is None else closure.until)
    return Shut(longest.text or longest.reason.value, longest.until)


async def shut(app: Tidemill, pool: str) -> Shut | None:
    """As of now; a pool that no process has declared yet is shut by nobody."""
    now = app.clock.wall()
    for found in await app.inspect.pools(sparing=True):
        if found.name == pool:
            return by_hand(found, now) or by_breaker(found, now)
    return None
