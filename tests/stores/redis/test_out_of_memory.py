"""I24: a full server refuses new jobs and still runs the jobs it has; otherwise it would stay full."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.servers.redis import Redis
from tidemill.core.claims import ClaimedJob, ClaimRequest, Heartbeat, HeldJob, QueueShare, Settlement
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.outcomes import Success, WriteAnswer
from tidemill.core.queues import QueueSettings, Retention
from tidemill.errors import StoreFull
from tidemill.stores.redis import RedisStore
from tidemill.stores.redis.errors import RedisReplyError

KEEP_NONE = QueueSettings(keep_done=Retention(count=0))


@pytest.fixture
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
async def store(server: Redis) -> AsyncIterator[RedisStore]:
    opened = await RedisStore(server.url).open()
    yield opened
    await opened.close()


def fill_memory(server: Redis) -> None:
    """Fills the server. The next script also stores the agreed time, because that is due."""
    with server.client() as client:
        client.hdel("{tidemill}:shard", "agreed")
        client.config_set("maxmemory", 1)


def jobs(*names: str, key: str | None) -> JobGroup:
    return JobGroup("q", tuple(NewJob(id=name, task="t", payload=b"1", key=key) for name in names))


async def claim(store: RedisStore, number: int) -> list[ClaimedJob]:
    request = ClaimRequest(worker="w", number=number, limit=1, lease=30.0, shares=(QueueShare("q", 1),))
    return (await store.claim(request)).jobs


@pytest.mark.parametrize("key", [None, "k"])
async def test_i24_a_full_server_still_runs_its_jobs(
    server: Redis, store: RedisStore, key: str | None
) -> None:
    await store.declare({"q": KEEP_NONE})
    await store.insert([jobs("1", "2", key=key)])
    (first,) = await claim(store, 1)
    fill_memory(server)
    with pytest.raises(StoreFull, match="maxmemory"):
        await store.insert([jobs("3", key=key)])
    held = (HeldJob(job=first.id, fence=first.fence, claim=first.claim),)
    assert (await store.extend(Heartbeat(worker="w", received=1, lease=30.0, held=held))).lost == ()
    (second,) = await claim(store, 2)
    ends = [Settlement(one.id, one.fence, one.claim, Success()) for one in (first, second)]
    assert (await store.settle(ends)).answers == [WriteAnswer.OK, WriteAnswer.OK]
    assert (await store.lead(["chores"], "w", 5.0)).leads
    assert (await store.prune()).pruned == 2
    assert await store.counts() == {}


async def test_i24_a_full_server_accepts_connections_and_listeners(server: Redis, store: RedisStore) -> None:
    """A worker that could not arm its listener would claim without a pause."""
    fill_memory(server)
    listener = store.listen(["queue:q"])
    listener.arm()
    other = await store.new_handle().open()
    assert not await listener.wait(0.05)
    other.wake(["queue:q"])
    assert await listener.wait(5.0)
    listener.close()
    await other.close()


def test_refusals_inside_scripts_of_old_servers_are_recognised() -> None:
    before_7 = (
        "ERR Error running script (call to f_0b1): @user_script:7: @user_script: 7: -OOM command not allowed"
    )
    assert RedisReplyError(before_7).word == "OOM"
