"""Another handle's verb runs at the worst moment: between load and commit of a transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.servers.redis_keys import RedisKeys
from tidemill.core.claims import ClaimedJob, ClaimRequest, QueueShare, Settlement
from tidemill.core.filters import Filter
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import Success
from tidemill.core.pools import PoolSettings
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.errors import StoreUnavailable
from tidemill.stores.redis import RedisStore
from tidemill.stores.redis.engine_runner import RedisRowSource
from tidemill.testing.clocks import ManualClock

Verb = Callable[[], Awaitable[Any]]
Interleave = Callable[[Verb, Verb], Awaitable[int]]

ONE_AT_A_TIME = PoolSettings(limits=(Limit.concurrent(1),), keyed=True)
NEEDS = (Need("m", key="k"),)


@pytest.fixture
def interleave(monkeypatch: pytest.MonkeyPatch) -> Interleave:
    """Runs a verb, and another verb just before the first one commits. Returns the number of tries."""
    commit = RedisRowSource.commit

    async def interleave(verb: Verb, other: Verb) -> int:
        waiting, tries = [other], 0

        async def late(source: RedisRowSource, *given: Any) -> bool:
            nonlocal tries
            while waiting:
                await waiting.pop()()
            tries += 1
            return await commit(source, *given)

        monkeypatch.setattr(RedisRowSource, "commit", late)
        await verb()
        assert not waiting, "the transaction wrote nothing"
        monkeypatch.undo()
        return tries

    return interleave


def job(name: str, **options: Any) -> NewJob:
    return NewJob(id=name, task="t", payload=b"{}", **options)


async def claim(store: RedisStore, worker: str, number: int, queue: str = "q") -> list[ClaimedJob]:
    request = ClaimRequest(worker=worker, number=number, limit=5, lease=9e9, shares=(QueueShare(queue, 5),))
    return (await store.claim(request)).jobs


def done(held: ClaimedJob) -> list[Settlement]:
    return [Settlement(held.id, held.fence, held.claim, Success())]


async def test_p12_a_lane_emptied_and_refilled_at_once_is_not_blocked(
    store: RedisStore, interleave: Interleave
) -> None:
    """The lane's last job is cancelled while it waits for a pool, and another job is inserted."""
    await store.declare_pools({"m": ONE_AT_A_TIME})
    await store.insert([JobGroup("q", (job("1", needs=NEEDS), job("2", needs=NEEDS)))])
    (held,) = await claim(store, "w", 1)
    await interleave(
        lambda: store.amend(Filter(ids=("2",)), CancelJobs()),
        lambda: store.insert([JobGroup("q", (job("3", needs=NEEDS),))]),
    )
    await store.settle(done(held))
    assert [one.id for one in await claim(store, "w", 2)] == ["3"]


async def test_p12_a_lane_blocked_while_calls_end_is_opened(
    store: RedisStore, interleave: Interleave
) -> None:
    """The account already knows one waiting lane, so the second refusal does not change it."""
    await store.declare_pools({"m": PoolSettings(limits=(Limit.concurrent(2),), keyed=True)})
    groups = [JobGroup("p", (job("1", needs=NEEDS), job("2", needs=NEEDS)))]
    groups += [JobGroup("q", (job("3", needs=NEEDS),)), JobGroup("r", (job("4", needs=NEEDS),))]
    await store.insert(groups)
    held = await claim(store, "v", 1, "p")
    assert await claim(store, "w", 1, "q") == []
    ends = [end for one in held for end in done(one)]
    await interleave(lambda: store.settle(ends), lambda: claim(store, "w", 2, "r"))
    assert [one.id for one in await claim(store, "w", 3, "r")] == ["4"]


async def test_p12_a_more_urgent_job_inserted_while_a_lane_is_blocked_is_tried(
    store: RedisStore, interleave: Interleave
) -> None:
    pool = PoolSettings(limits=(Limit.concurrent(2),), keyed=True, reserved_share=0.5, urgent=-1)
    await store.declare_pools({"m": pool})
    await store.insert([JobGroup("q", (job("1", needs=NEEDS), job("2", needs=NEEDS)))])
    urgent = JobGroup("q", (job("3", needs=NEEDS, priority=-1),))
    assert await interleave(lambda: claim(store, "w", 1), lambda: store.insert([urgent])) == 3, (
        "twice, and the other"
    )
    (found,) = await store.get(["3"])
    assert found is not None
    assert found.state is State.RUNNING


async def test_p12_inserts_into_one_lane_cause_no_retries(store: RedisStore, interleave: Interleave) -> None:
    await store.insert([JobGroup("q", (job("1", key="k"),))])
    two, three = (JobGroup("q", (job(name, key="k"),)) for name in "23")
    assert await interleave(lambda: store.insert([two]), lambda: store.insert([three])) == 2, "one each"


async def test_p1_new_limits_open_a_lane_blocked_at_the_same_time(
    store: RedisStore, interleave: Interleave
) -> None:
    await store.declare_pools({"m": ONE_AT_A_TIME})
    await store.insert([JobGroup("q", (job("1", needs=NEEDS), job("2", needs=NEEDS)))])
    two = PoolSettings(limits=(Limit.concurrent(2),), keyed=True)
    await interleave(lambda: store.declare_pools({"m": two}), lambda: claim(store, "w", 1))
    assert [one.id for one in await claim(store, "w", 2)] == ["2"]


async def test_j80_a_held_key_goes_with_its_job(
    store: RedisStore, clock: ManualClock, redis_keys: RedisKeys
) -> None:
    """Otherwise the key could never be used again: its holder would be a deleted job."""
    await store.declare({"q": QueueSettings(keep_done=Retention(age=1.0))})
    await store.insert([JobGroup("q", (job("1", unique=Unique("ü", period=60.0)),))])
    (held,) = await claim(store, "w", 1)
    await store.settle([Settlement(held.id, held.fence, held.claim, Success(b'"1"'))])
    clock.advance(61)
    assert (await store.prune()).pruned == 1
    assert not [key for key in redis_keys.left_over() if "unique:" in key]
    ((inserted,),) = await store.insert([JobGroup("q", (job("2", unique=Unique("ü", period=60.0)),))])
    assert inserted.id == "2"


async def test_r2_jobs_are_found_after_an_unused_sequence_number(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failed transaction allocated the first seq of a page and never wrote a job there."""
    await store.insert([JobGroup("q", tuple(job(f"a{number}") for number in range(99)))])

    async def commit_nothing(*_: Any) -> bool:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(RedisRowSource, "commit", commit_nothing)
        with pytest.raises(ConnectionError):
            await store.insert([JobGroup("q", (job("lost", key="k"),))])
    await store.insert([JobGroup("q", (job("b"),))])
    assert [one.id for one in (await store.find(Filter(), limit=1)).jobs] == ["b"]


async def test_j60_many_jobs_of_a_dead_worker_are_reclaimed_in_parts(
    store: RedisStore, clock: ManualClock
) -> None:
    """Their leases have ended as well: each job is found twice and counted once."""
    await store.insert([JobGroup("q", tuple(job(f"{number}") for number in range(600)))])
    for number in range(1, 4):
        request = ClaimRequest(
            worker="w", number=number, limit=200, lease=9.0, shares=(QueueShare("q", 200),)
        )
        assert len((await store.claim(request)).jobs) == 200
    clock.advance(10)
    taken = (await store.reclaim(("w",))).ready
    assert sorted(map(int, taken)) == list(range(600))
    assert await store.check() == ()


async def test_j35_only_claims_and_not_ends_of_jobs_cause_retries(
    store: RedisStore, interleave: Interleave
) -> None:
    """A run that ends frees capacity and invalidates no decision; a run that starts does."""
    await store.declare({"q": QueueSettings(concurrency=2)})
    await store.insert([JobGroup("q", (job("1"), job("2")))])
    held = await claim(store, "v", 1)
    assert len(held) == 2
    await store.settle(done(held[0]))
    await store.insert([JobGroup("q", tuple(job(f"k{number}", key=f"{number}") for number in range(3)))])
    assert await interleave(lambda: claim(store, "w", 1), lambda: store.settle(done(held[1]))) == 1
    assert await interleave(lambda: claim(store, "w", 2), lambda: claim(store, "x", 1)) == 3, "two and one"
    assert (await store.counts())["q"][State.RUNNING] == 2


async def test_i22_a_transaction_that_always_loses_raises_in_time(
    redis_url: str, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose_commit(*_: Any) -> bool:
        return False

    monkeypatch.setattr(RedisRowSource, "commit", lose_commit)
    store = await RedisStore(f"{redis_url}?timeout=0.3", prefix=redis_prefix).open()
    with pytest.raises(StoreUnavailable, match=r"for 0\.3 s others changed the same rows first; nothing was"):
        await store.insert([JobGroup("q", (job("1", key="k"),))])
    await store.close()
