"""J1: the reply to a write is lost. Sending the same call again changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.servers.program import HOST
from tests.servers.proxy import Proxy
from tests.servers.redis import Redis
from tidemill.core.claims import ClaimRequest, QueueShare, Settlement
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.outcomes import Success, WriteAnswer
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import InsertVerdict
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.errors import StoreUnavailable
from tidemill.stores.redis import RedisStore
from tidemill.stores.redis.scripts import LuaScript
from tidemill.stores.redis.shard import Shard

LoseReply = Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[None]]


@pytest.fixture
async def proxy(redis_server: Redis) -> AsyncIterator[Proxy]:
    async with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: Proxy, redis_prefix: str) -> AsyncIterator[RedisStore]:
    opened = await RedisStore(f"redis://{HOST}:{proxy.port}", prefix=redis_prefix).open()
    await opened.declare_pools({"m": PoolSettings(limits=(Limit.concurrent(1),))})
    yield opened
    await opened.close()


@pytest.fixture
def lose_reply(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> LoseReply:
    """Runs a verb and cuts the connection after the named script has run."""
    run = Shard.run

    async def lose_reply(script: str, verb: Callable[[], Awaitable[Any]]) -> None:
        lost: list[Any] = []

        async def cut(shard: Shard, given: LuaScript, *args: Any, **options: Any) -> Any:
            if given.name == script and not lost:
                lost.append(proxy.cut_after(0))
            return await run(shard, given, *args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(Shard, "run", cut)
            if script == "commit":
                with pytest.raises(StoreUnavailable, match="may or may not have been executed"):
                    await verb()
            else:
                await verb()
        assert lost, "the script was not run"
        assert lost[0].done()

    return lose_reply


KINDS: list[dict[str, Any]] = [{}, {"key": "k"}, {"needs": (Need("m"),)}, {"unique": Unique("u")}]


@pytest.mark.parametrize("options", KINDS)
async def test_j1_every_verb_of_a_job_can_be_repeated(
    store: RedisStore, lose_reply: LoseReply, options: dict[str, Any]
) -> None:
    groups = [JobGroup("q", (NewJob(id="1", task="t", payload=b"1", **options),))]
    request = ClaimRequest(worker="w", number=1, limit=2, lease=30.0, shares=(QueueShare("q", 2),))

    await lose_reply("commit" if options else "insert_one", lambda: store.insert(groups))
    ((inserted,),) = await store.insert(groups)
    assert (inserted.verdict, inserted.id) == (InsertVerdict.ACCEPTED, "1")
    assert await store.counts() == {"q": {State.READY: 1}}

    in_lane = "key" in options or "needs" in options
    await lose_reply("commit" if in_lane else "claim", lambda: store.claim(request))
    (held,) = (await store.claim(request)).jobs
    assert await store.counts() == {"q": {State.RUNNING: 1}}

    ends = [Settlement(held.id, held.fence, held.claim, Success())]
    await lose_reply("commit" if in_lane else "settle", lambda: store.settle(ends))
    assert (await store.settle(ends)).answers == [WriteAnswer.AGAIN]
    assert await store.counts() == {"q": {State.DONE: 1}}
    assert await store.check() == ()
    assert [view.reservations for view in await store.pools()] == [0]
