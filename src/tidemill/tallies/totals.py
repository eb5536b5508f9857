"""What queues and pools did since there is a store.

A store keeps eight days minute by minute. Minutes that are older than a day are added to a record long before
they go, so that the sum of it and of what the store still has is all there ever was. A day, because a clock
may be set back by as much, and then minutes that were over grow once more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from tidemill.contract.pools import PoolMinute
from tidemill.contract.reader import Minute
from tidemill.contract.store import Store
from tidemill.core.pool_history import Remark
from tidemill.core.queues import DAY, HOUR
from tidemill.tallies.records import TOTALS, get, put

SETTLED = DAY + HOUR
"""A minute that is older does not grow any more."""
KEEP_EVERY = HOUR


class QueueTotal(msgspec.Struct, frozen=True):
    """What became of a queue's jobs since there is a store, those that were pruned or removed included.
    `failed` are those whose attempts were over, `retried` attempts that failed and were to be repeated,
    `reclaimed` those whose worker died, `dropped_early` jobs that left by count before their age was over."""

    done: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    reclaimed: int = 0
    dropped_early: int = 0

    def plus(self, minutes: Iterable[Minute]) -> QueueTotal:
        sums = [self.done, self.failed, self.cancelled, self.retried, self.reclaimed, self.dropped_early]
        for minute in minutes:
            sums[0] += minute.done
            sums[1] += minute.failed
            sums[2] += minute.cancelled
            sums[3] += minute.retried
            sums[4] += minute.reclaimed
            sums[5] += minute.dropped_early
        return QueueTotal(*sums)


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Of minutes before `through`; when it is read for showing, of all of them."""

    through: float = 0.0
    queues: dict[str, QueueTotal] = msgspec.field(default_factory=dict)
    pools: dict[str, Remark] = msgspec.field(default_factory=dict)


async def totals(store: Store, queues: Iterable[str], pools: Iterable[str]) -> Totals:
    _, kept = await get(store, TOTALS, Totals)
    return await _with_minutes(store, kept, queues, pools, before=math.inf)


async def keep(store: Store) -> None:
    """Harmless when two do it: one of them is too late, and changes nothing."""
    revision, kept = await get(store, TOTALS, Totals)
    before = ((await store.read_clock()).wall - SETTLED) // 60 * 60
    if before <= kept.through:
        return
    queues = [info.name for info in await store.queues()]
    pools = {view.name for view in await store.pools()}
    then = await _with_minutes(store, kept, queues, pools, before=before)
    if (then.queues, then.pools) != (kept.queues, kept.pools):
        await put(store, TOTALS, revision, then)


async def _with_minutes(
    store: Store, kept: Totals, queues: Iterable[str], pools: Iterable[str], *, before: float
) -> Totals:
    ended, spent = dict(kept.queues), dict(kept.pools)
    for queue in queues:
        if minutes := [one for one in await store.history(queue, kept.through) if one.at < before]:
            ended[queue] = ended.get(queue, QueueTotal()).plus(minutes)
    for pool in pools:
        if calls := [one for one in await store.pool_history(pool, kept.through) if one.at < before]:
            spent[pool] = _remarked(spent.get(pool, Remark()), calls)
    return Totals(through=before, queues=ended, pools=spent)


def _remarked(before: Remark, minutes: Iterable[PoolMinute]) -> Remark:
    total = before
    for one in minutes:
        total = total.plus(Remark(calls=one.calls, units=one.units, refusals=one.refusals))
    return total
