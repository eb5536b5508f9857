"""What happens between the look and the commit of a step: another handle's verb, at the worst moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.servers.keys import Keys
from tidemill.core.changes import Cancel
from tidemill.core.claims import Claimed, ClaimRequest, Settlement, Share
from tidemill.core.filters import Filter
from tidemill.core.job import Group, NewJob
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.outcomes import Done
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.core.uniqueness import Unique
from tidemill.errors import StoreUnavailable
from tidemill.stores.redis import RedisStore
from tidemill.stores.redis.source import RedisSource
from tidemill.testing.manual import ManualClock

Verb = Callable[[], Awaitable[Any]]
Meet = Callable[[Verb, Verb], Awaitable[int]]

ONE_AT_A_TIME = PoolSettings(limits=(Limit.concurrent(1),), keyed=True)
NEEDS = (Need("m", key="k"),)


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Meet:
    """Runs a verb, and another one just before the first writes what it decided. Answers how many tries
    there were in all."""
    commit = RedisSource.commit

    async def meet(verb: Verb, other: Verb) -> int:
        waiting, tries = [other], 0

        async def late(source: RedisSource, *given: Any) -> bool:
            nonlocal tries
            while waiting:
                await waiting.pop()()
            tries += 1
            return await commit(source, *given)

        monkeypatch.setattr(RedisSource, "commit", late)
        await verb()
        assert not waiting, "the step wrote nothing"
        monkeypatch.undo()
        return tries

    return meet


def job(name: str, **options: Any) -> NewJob:
    return NewJob(id=name, task="t", payload=b"{}", **options)


async def claim(store: RedisStore, worker: str, number: int, queue: str = "q") -> list[Claimed]:
    request = ClaimRequest(worker=worker, number=number, limit=5, lease=9e9, shares=(Share(queue, 5),))
    return (await store.claim(request)).jobs


def done(held: Claimed) -> list[Settlement]:
    return [Settlement(held.id, held.fence, held.claim, Done())]


async def test_p12_a_lane_that_is_left_and_entered_at_once_is_not_shut_for_ever(
    store: RedisStore, meet: Meet
) -> None:
    """Its last job is cancelled while it waits for a pool, and another comes in meanwhile."""
    await store.declare_pools({"m": ONE_AT_A_TIME})
    await store.insert([Group("q", (job("1", needs=NEEDS), job("2", needs=NEEDS)))])
    (held,) = await claim(store, "w", 1)
    await meet(
        lambda: store.amend(Filter(ids=("2",)), Cancel()),
        lambda: store.insert([Group("q", (job("3", needs=NEEDS),))]),
    )
    await store.settle(done(held))
    assert [one.id for one in await claim(store, "w", 2)] == ["3"]


async def test_p12_who_comes_to_wait_while_calls_end_is_let_in(store: RedisStore, meet: Meet) -> None:
    """The account knows of one that waits already: it is the same after another was refused."""
    await store.declare_pools({"m": PoolSettings(limits=(Limit.concurrent(2),), keyed=True)})
    groups = [Group("p", (job("1", needs=NEEDS), job("2", needs=NEEDS)))]
    groups += [Group("q", (job("3", needs=NEEDS),)), Group("r", (job("4", needs=NEEDS),))]
    await store.insert(groups)
    held = await claim(store, "v", 1, "p")
    assert await claim(store, "w", 1, "q") == []
    ends = [end for one in held for end in done(one)]
    await meet(lambda: store.settle(ends), lambda: claim(store, "w", 2, "r"))
    assert [one.id for one in await claim(store, "w", 3, "r")] == ["4"]


async def test_p12_a_more_urgent_job_that_comes_while_a_lane_is_shut_is_asked_for(
    store: RedisStore, meet: Meet
) -> None:
    pool = PoolSettings(limits=(Limit.concurrent(2),), keyed=True, held_back=0.5, urgent=-1)
    await store.declare_pools({"m": pool})
    await store.insert([Group("q", (job("1", needs=NEEDS), job("2", needs=NEEDS)))])
    urgent = Group("q", (job("3", needs=NEEDS, priority=-1),))
    assert await meet(lambda: claim(store, "w", 1), lambda: store.insert([urgent])) == 3, (
        "twice, and the other"
    )
    (found,) = await store.get(["3"])
    assert found is not None
    assert found.state is State.RUNNING


async def test_p12_jobs_that_come_to_one_lane_are_in_nobodys_way(store: RedisStore, meet: Meet) -> None:
    await store.insert([Group("q", (job("1", key="k"),))])
    two, three = (Group("q", (job(name, key="k"),)) for name in "23")
    assert await meet(lambda: store.insert([two]), lambda: store.insert([three])) == 2, "one each"


async def test_p1_other_limits_reach_who_comes_to_wait_meanwhile(store: RedisStore, meet: Meet) -> None:
    await store.declare_pools({"m": ONE_AT_A_TIME})
    await store.insert([Group("q", (job("1", needs=NEEDS), job("2", needs=NEEDS)))])
    two = PoolSettings(limits=(Limit.concurrent(2),), keyed=True)
    await meet(lambda: store.declare_pools({"m": two}), lambda: claim(store, "w", 1))
    assert [one.id for one in await claim(store, "w", 2)] == ["2"]


async def test_j80_a_key_that_was_held_for_a_time_goes_with_its_job(
    store: RedisStore, clock: ManualClock, redis_keys: Keys
) -> None:
    """Else nobody could ever use it again: whoever asked who holds it would be told of a job that is gone."""
    await store.declare({"q": QueueSettings(keep_done=Retention(age=1.0))})
    await store.insert([Group("q", (job("1", unique=Unique("ü", period=60.0)),))])
    (held,) = await claim(store, "w", 1)
    await store.settle([Settlement(held.id, held.fence, held.claim, Done(b'"1"'))])
    clock.advance(61)
    assert (await store.prune()).pruned == 1
    assert not [key for key in redis_keys.left_over() if "unique:" in key]
    ((inserted,),) = await store.insert([Group("q", (job("2", unique=Unique("ü", period=60.0)),))])
    assert inserted.id == "2"


async def test_r2_jobs_are_found_beside_a_step_that_came_to_nothing(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given the first place of a page, and never wrote a job there."""
    await store.insert([Group("q", tuple(job(f"a{number}") for number in range(99)))])

    async def give_up(*_: Any) -> bool:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(RedisSource, "commit", give_up)
        with pytest.raises(ConnectionError):
            await store.insert([Group("q", (job("lost", key="k"),))])
    await store.insert([Group("q", (job("b"),))])
    assert [one.id for one in (await store.find(Filter(), limit=1)).jobs] == ["b"]


async def test_j60_many_jobs_of_a_dead_worker_are_taken_back_in_several_steps(
    store: RedisStore, clock: ManualClock
) -> None:
    """Their leases are over too: each is met twice, and counted once."""
    await store.insert([Group("q", tuple(job(f"{number}") for number in range(600)))])
    for number in range(1, 4):
        request = ClaimRequest(worker="w", number=number, limit=200, lease=9.0, shares=(Share("q", 200),))
        assert len((await store.claim(request)).jobs) == 200
    clock.advance(10)
    taken = (await store.reclaim(("w",))).ready
    assert sorted(map(int, taken)) == list(range(600))
    assert await store.check() == ()


async def test_j35_a_limit_holds_while_others_claim_and_nobody_waits_for_those_that_end(
    store: RedisStore, meet: Meet
) -> None:
    """A run that ends makes room: nothing is to be decided anew. One that begins takes it."""
    await store.declare({"q": QueueSettings(concurrency=2)})
    await store.insert([Group("q", (job("1"), job("2")))])
    held = await claim(store, "v", 1)
    assert len(held) == 2
    await store.settle(done(held[0]))
    await store.insert([Group("q", tuple(job(f"k{number}", key=f"{number}") for number in range(3)))])
    assert await meet(lambda: claim(store, "w", 1), lambda: store.settle(done(held[1]))) == 1
    assert await meet(lambda: claim(store, "w", 2), lambda: claim(store, "x", 1)) == 3, "two and one"
    assert (await store.counts())["q"][State.RUNNING] == 2


async def test_i22_who_is_always_overtaken_is_told_so_in_time(
    redis_url: str, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def overtaken(*_: Any) -> bool:
        return False

    monkeypatch.setattr(RedisSource, "commit", overtaken)
    store = await RedisStore(f"{redis_url}?timeout=0.3", prefix=redis_prefix).open()
    with pytest.raises(StoreUnavailable, match=r"for 0\.3 s others changed the same rows first; nothing was"):
        await store.insert([Group("q", (job("1", key="k"),))])
    await store.close()
