"""I24: a server without memory refuses new jobs, and works off those it has: else it would stay full."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.servers.redis import Redis
from tidemill.core.claims import Claimed, ClaimRequest, Heartbeat, Held, Settlement, Share
from tidemill.core.job import Group, NewJob
from tidemill.core.outcomes import Answer, Done
from tidemill.core.queues import QueueSettings, Retention
from tidemill.errors import StoreFull
from tidemill.stores.redis import RedisStore
from tidemill.stores.redis.faults import Said

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


def fill(server: Redis) -> None:
    """It has not agreed on the time for a while: that is noted with the next script."""
    with server.client() as client:
        client.hdel("{tidemill}:shard", "agreed")
        client.config_set("maxmemory", 1)


def jobs(*names: str, key: str | None) -> Group:
    return Group("q", tuple(NewJob(id=name, task="t", payload=b"1", key=key) for name in names))


async def claim(store: RedisStore, number: int) -> list[Claimed]:
    request = ClaimRequest(worker="w", number=number, limit=1, lease=30.0, shares=(Share("q", 1),))
    return (await store.claim(request)).jobs


@pytest.mark.parametrize("key", [None, "k"])
async def test_i24_a_full_server_works_off_what_it_has(
    server: Redis, store: RedisStore, key: str | None
) -> None:
    await store.declare({"q": KEEP_NONE})
    await store.insert([jobs("1", "2", key=key)])
    (first,) = await claim(store, 1)
    fill(server)
    with pytest.raises(StoreFull, match="maxmemory"):
        await store.insert([jobs("3", key=key)])
    held = (Held(job=first.id, fence=first.fence, claim=first.claim),)
    assert (await store.extend(Heartbeat(worker="w", received=1, lease=30.0, held=held))).lost == ()
    (second,) = await claim(store, 2)
    ends = [Settlement(one.id, one.fence, one.claim, Done()) for one in (first, second)]
    assert (await store.settle(ends)).answers == [Answer.OK, Answer.OK]
    assert (await store.lead(["chores"], "w", 5.0)).leads
    assert (await store.prune()).pruned == 2
    assert await store.counts() == {}


async def test_i24_a_full_server_is_connected_to_and_listened_to(server: Redis, store: RedisStore) -> None:
    """A worker that could not park would ask for jobs without a pause."""
    fill(server)
    listener = store.listen(["queue:q"])
    listener.arm()
    other = await store.another().open()
    assert not await listener.wait(0.05)
    other.ring(["queue:q"])
    assert await listener.wait(5.0)
    listener.close()
    await other.close()


def test_a_script_that_is_refused_is_told_as_any_other_by_old_servers() -> None:
    before_7 = (
        "ERR Error running script (call to f_0b1): @user_script:7: @user_script: 7: -OOM command not allowed"
    )
    assert Said(before_7).word == "OOM"
