"""Loads the jobs whose ids an application has stored, and says why a pool makes no provider calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from tidemill import Filter, Job, PoolStatus, State, Tidemill
from tidemill_apps.common.database import slice_items

WAITING_STATES = (State.SCHEDULED, State.READY, State.WAITING)
LIVE_STATES = (*WAITING_STATES, State.RUNNING)
MAX_JOBS_PER_QUERY = 200


async def load_jobs(
    app: Tidemill, ids: Iterable[str], states: tuple[State, ...] | None = None
) -> dict[str, Job]:
    """Returns a mapping from job id to job. Ids of jobs that do not exist are left out. If `states` is given,
    only jobs in one of these states are returned."""
    found: dict[str, Job] = {}
    for some in slice_items(list(ids), MAX_JOBS_PER_QUERY):
        wanted = Filter(ids=tuple(some), states=states)
        page = await app.inspect.find(wanted, limit=MAX_JOBS_PER_QUERY, scan_limit=None)
        found |= {job.id: job for job in page.jobs}
    return found


async def count_jobs(app: Tidemill, queue: str, states: Collection[State]) -> int:
    counts = (await app.inspect.counts()).get(queue, {})
    return sum(counts.get(state, 0) for state in states)


class ProviderCallBlock(Struct, frozen=True):
    """The reason why no provider calls are made. `until` is the wall time at which calls continue. It is None
    if they continue only after an operator acts."""

    reason: str
    until: float | None

    def outlasts(self, moment: float) -> bool:
        return self.until is None or self.until > moment


def operator_block(pool: PoolStatus, now: float) -> ProviderCallBlock | None:
    closed = pool.closed
    if closed is None or not closed.holds(now):
        return None
    return ProviderCallBlock(closed.reason or f"the pool {pool.name} was closed by {closed.by}", closed.until)


def breaker_block(pool: PoolStatus, now: float) -> ProviderCallBlock | None:
    """Returns the reason why the breaker closes the pool, or None if it does not. If several closures apply,
    returns the closure that ends last. `now` is the wall time."""
    holding = [closure for closure in pool.closures if closure.holds(now)]
    if not holding:
        return None
    longest = max(holding, key=lambda closure: float("inf") if closure.until is None else closure.until)
    return ProviderCallBlock(longest.text or longest.reason.value, longest.until)


async def find_call_block(app: Tidemill, pool: str) -> ProviderCallBlock | None:
    """Returns why the pool named `pool` makes no calls now, or None if it is open or not declared yet. An
    operator's reason comes before the breaker's reason."""
    now = app.clock.wall()
    for found in await app.inspect.pools(cached=True):
        if found.name == pool:
            return operator_block(found, now) or breaker_block(found, now)
    return None
