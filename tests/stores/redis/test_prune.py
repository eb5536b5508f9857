"""J80: ended jobs that still hold a unique key stay, however many there are, and do not slow pruning."""

from __future__ import annotations

from tests.servers.redis import Redis
from tests.servers.redis_keys import RedisKeys
from tidemill.core.claims import ClaimRequest, QueueShare, Settlement
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.outcomes import Success
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.unique_keys import Unique
from tidemill.stores.redis import RedisStore
from tidemill.testing.clocks import ManualClock

HELD = 1500


async def end_all(store: RedisStore, jobs: tuple[NewJob, ...], number: int) -> None:
    await store.insert([JobGroup("q", jobs)])
    request = ClaimRequest(
        worker="w", number=number, limit=len(jobs), lease=9.0, shares=(QueueShare("q", 1),)
    )
    held = (await store.claim(request)).jobs
    await store.settle([Settlement(one.id, one.fence, one.claim, Success()) for one in held])


def job(number: int, unique: Unique | None = None) -> NewJob:
    return NewJob(id=f"{number}", task="t", payload=b"1", unique=unique)


async def test_j80_a_prune_skips_some_held_jobs_and_continues_later(
    store: RedisStore, clock: ManualClock, redis_server: Redis, redis_keys: RedisKeys
) -> None:
    await store.declare({"q": QueueSettings(keep_done=Retention(age=1.0))})
    for start in range(0, HELD, 250):
        some = (job(number, Unique(f"{number}", period=60.0)) for number in range(start, start + 250))
        await end_all(store, tuple(some), start + 1)
    await end_all(store, (job(HELD),), HELD)
    clock.advance(2)
    with redis_server.client() as client:
        client.config_resetstat()
        assert (await store.prune()).pruned == 0
        assert client.info("commandstats")["cmdstat_zrange"]["calls"] <= 5
    assert sum([(await store.prune()).pruned for _ in range(3)]) == 1
    clock.advance(60)
    assert sum([(await store.prune()).pruned for _ in range(3)]) == HELD
    assert not [key for key in redis_keys.left_over() if key.endswith(":passed")]
    assert await store.check() == ()
