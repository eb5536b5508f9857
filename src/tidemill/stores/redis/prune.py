"""prune: ended jobs leave by their queue's retention, expired ones end, old ids are forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from tidemill.contract import jobs as contract
from tidemill.contract.jobs import Pruned
from tidemill.contract.reader import HISTORY_KEPT
from tidemill.core import transitions, usage
from tidemill.core.ledger import PLACE
from tidemill.core.queues import HOUR
from tidemill.core.states import FINAL, PENDING
from tidemill.engine import plans, wants
from tidemill.engine.moves import move
from tidemill.engine.records import Records
from tidemill.stores.redis import keys, scripts
from tidemill.stores.redis.bounds import JOBS, fitting
from tidemill.stores.redis.prune_courses import prune_courses
from tidemill.stores.redis.queue_views import queues
from tidemill.stores.redis.records import seq_and_id
from tidemill.stores.redis.shard import Shard
from tidemill.stores.redis.slow import Slow
from tidemill.stores.redis.wire import Argument

PRUNE, FORGET = scripts.load("prune"), scripts.load("forget")


async def prune(slow: Slow, limit: int) -> Pruned:
    shard = slow.shard
    wall, _ = await shard.read_clock()
    expired = await _expire(slow, limit, wall)
    shelves: list[Argument] = []
    for queue in await queues(shard):
        for state in sorted(FINAL):
            kept = queue.settings.retention(state)
            bounds = ("" if bound is None else bound for bound in (kept.age, kept.count))
            shelves += (queue.name, state.value, *bounds)
    pruned, early = await _clear(shard, limit, shelves)
    pruned += await prune_courses(slow, limit - pruned, wall)
    oldest = (wall - HISTORY_KEPT) // 60 * 60
    forgotten = int(await shard.run(FORGET, limit, oldest, HOUR, repeatable=True))
    await _forget_resting(slow, limit, wall)
    return Pruned(pruned, expired, more=limit in (pruned, expired, forgotten), early=early)


async def _clear(shard: Shard, limit: int, shelves: Sequence[Argument]) -> tuple[int, dict[str, int]]:
    """Answers how many left, and by queue how many of them early."""
    pruned, goes_on = 0, bool(shelves)
    early: Counter[str] = Counter()
    while goes_on and pruned < limit:
        wanted = min(JOBS, limit - pruned)
        terms = (wanted, contract.MEMORY_OF_IDS, *shelves)
        dropped, goes_on, *rows = await shard.run(PRUNE, *terms, repeatable=True)
        pruned += dropped
        for queue, jobs in zip(rows[::2], rows[1::2], strict=True):
            early[queue.decode()] += jobs
    return pruned, dict(early)


async def _expire(slow: Slow, limit: int, wall: float) -> int:
    """The longest expired first."""
    shard = slow.shard
    over = await shard.ask("ZRANGEBYSCORE", shard.key(keys.EXPIRING), "-inf", wall, "LIMIT", 0, limit)
    ids, expired = [seq_and_id(member)[1] for member in over], 0
    while ids:
        count = await fitting(shard, ids)
        some, ids = ids[:count], ids[count:]
        expired += await slow.run(plans.change(some), partial(_expired, ids=some))
    return expired


def _expired(records: Records, ids: Sequence[str]) -> int:
    now, count = records.clock.wall(), 0
    for id_ in ids:
        job = records.jobs.get(id_)
        if job is not None and job.state in PENDING and transitions.is_expired(job, now):
            move(records, transitions.expired(job, now), now)
            count += 1
    return count


async def _forget_resting(slow: Slow, limit: int, wall: float) -> None:
    """Keys nobody uses any more: an account that is not there would answer the same."""
    shard, since = slow.shard, f"({wall - usage.UNUSED_FOR!r}"
    unused = await shard.ask("ZRANGEBYSCORE", shard.key(keys.LOOKED), "-inf", since, "LIMIT", 0, limit)
    for place in map(keys.place_of, unused):
        await _forget_if_at_rest(slow, place)


async def _forget_if_at_rest(slow: Slow, place: PLACE) -> None:
    source = slow.source()
    wanted = (wants.PoolOf(place[0]), wants.AccountOf(place), wants.ReservedAt(place))
    space = await source.space(wanted)
    books, pool = space.books, space.books.pools.get(place[0])
    at_rest = pool is None or usage.at_rest(*books.look_at(pool, place), books.now())
    if at_rest and not books.reservations(place):
        await source.forget_account(place, wanted)
    else:
        await slow.shard.ask("ZADD", slow.shard.key(keys.LOOKED), space.clock.wall(), keys.place(place))
