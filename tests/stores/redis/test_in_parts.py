"""A verb that goes in several scripts and fails between any two of them: sent again, it does the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tidemill.core.changes import Cancel
from tidemill.core.claims import Claimed, ClaimRequest, Heartbeat, Held, Settled, Settlement, Share
from tidemill.core.filters import Filter
from tidemill.core.job import Error, Group, NewJob
from tidemill.core.outcomes import Answer, Done, Outcome, Release, Retrying
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State
from tidemill.errors import StoreUnavailable
from tidemill.stores.redis import RedisStore, bounds
from tidemill.stores.redis import settle as settling
from tidemill.stores.redis.shard import Shard

JOBS, NEXT = 11, 4
WRITES = ("settle", "claim", "commit")
OUTCOMES: list[Outcome] = [Done(), Release(unknown=True), Retrying(5.0, Error("E", "no")), Done(b"1")]


@pytest.fixture
async def store(
    redis_url: str, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RedisStore]:
    monkeypatch.setattr(settling, "JOBS", 3)
    monkeypatch.setattr(bounds, "STEPPED", 2)
    opened = await RedisStore(redis_url, prefix=redis_prefix).open()
    yield opened
    assert await opened.check() == ()
    await opened.close()


class Faults:
    """The `number`th script that writes is not run, or its reply is lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number, self.is_done, self.names = 0, False, list[str]()
        run = Shard.run

        async def unreliable(shard: Shard, script: Any, *args: Any, **options: Any) -> Any:
            if script.name not in WRITES:
                return await run(shard, script, *args, **options)
            self.names.append(script.name)
            fails = len(self.names) == self.number
            if fails and not self.is_done:
                raise StoreUnavailable("away")
            answer = await run(shard, script, *args, **options)
            if fails:
                raise StoreUnavailable("the reply was lost")
            return answer

        monkeypatch.setattr(Shard, "run", unreliable)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


def wanted(number: int, limit: int) -> ClaimRequest:
    return ClaimRequest(worker="w", number=number, limit=limit, lease=30.0, shares=(Share("q", limit),))


async def held(store: RedisStore) -> list[Claimed]:
    jobs = (NewJob(id=f"{number:02}", task="t", payload=b"1") for number in range(JOBS + NEXT))
    await store.insert([Group("q", tuple(jobs))])
    return list((await store.claim(wanted(1, JOBS))).jobs)


def settlements(jobs: list[Claimed], outcome: Callable[[int], Outcome]) -> list[Settlement]:
    """The fifth is another's."""
    return [Settlement(job.id, job.fence + (at == 4), job.claim, outcome(at)) for at, job in enumerate(jobs)]


def by_turns(at: int) -> Outcome:
    return OUTCOMES[at % len(OUTCOMES)]


async def insist(store: RedisStore, items: list[Settlement]) -> Settled:
    """As a worker does."""
    try:
        return await store.settle(items, wanted(2, NEXT))
    except StoreUnavailable:
        return await store.settle(items, wanted(2, NEXT))


CASES = [(by_turns, number) for number in range(7)] + [(lambda _: Done(), number) for number in range(5)]


@pytest.mark.parametrize(("outcome", "number"), CASES)
@pytest.mark.parametrize("is_done", [False, True], ids=["not run", "reply lost"])
async def test_j33_settled_in_parts_and_claimed_once(
    store: RedisStore, faults: Faults, outcome: Callable[[int], Outcome], number: int, *, is_done: bool
) -> None:
    items = settlements(await held(store), outcome)
    faults.names.clear()
    faults.number, faults.is_done = number, is_done
    settled = await insist(store, items)
    assert len(faults.names) >= max(number, 4), "there is so much that may fail"
    assert settled.answers[4] is Answer.STALE
    assert {*settled.answers[:4], *settled.answers[5:]} <= {Answer.OK, Answer.AGAIN}
    assert settled.claims is not None
    assert [job.id for job in settled.claims.jobs] == [f"{at:02}" for at in range(JOBS, JOBS + NEXT)]
    assert len({(job.fence, job.claim) for job in settled.claims.jobs}) == 1
    expected = {Done: State.DONE, Retrying: State.SCHEDULED, Release: State.SCHEDULED}
    for item, job in zip(items, await store.get([item.job for item in items]), strict=True):
        assert job is not None
        assert job.state is (State.RUNNING if item is items[4] else expected[type(item.outcome)]), item


async def test_amended_in_parts_each_is_counted_once(store: RedisStore, faults: Faults) -> None:
    jobs = await held(store)
    await store.settle(settlements(jobs[:3], lambda _: Done()))
    faults.names.clear()
    found = await store.amend(Filter(ids=tuple(f"{at:02}" for at in range(10))), Cancel("no"), 9)
    assert (len(found.changed) + len(found.unchanged), faults.names) == (9, ["commit"] * 4), (
        "the first two had ended"
    )
    assert len({*found.changed, *found.unchanged}) == 9


async def test_j52_what_was_seen_to_in_an_earlier_part_is_not_taken_back(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes a megabyte of records, here two of them; one that is not listed goes back."""
    for id_ in "abcde":
        await store.insert([Group("q", (NewJob(id=id_, task="t", payload=b"1" * 600_000),))])
    jobs = list[Claimed]()
    while len(jobs) < 5:
        jobs += (await store.claim(wanted(len(jobs) + 1, 5))).jobs
    parts, run = list[int](), Shard.run

    async def noted(shard: Shard, script: Any, *args: Any, **options: Any) -> Any:
        answer = await run(shard, script, *args, **options)
        if script.name == "extend" and isinstance(answer, list):
            parts.append(answer[0])
        return answer

    monkeypatch.setattr(Shard, "run", noted)

    async def beat(jobs: list[Claimed]) -> list[State]:
        held = tuple(Held(job=job.id, fence=job.fence, claim=job.claim) for job in jobs)
        extended = await store.extend(Heartbeat(worker="w", received=9, lease=30.0, held=held))
        assert extended.lost == ()
        return [job.state for job in await store.get(list("abcde")) if job is not None]

    assert await beat(jobs) == [State.RUNNING] * 5
    assert parts == [2, 2, 1]
    assert await beat(jobs[:-1]) == [State.RUNNING] * 4 + [State.READY]


async def test_the_claim_comes_behind_every_outcome(store: RedisStore) -> None:
    """Also behind those that only the engine knows: they make room where a queue runs so many at once."""
    await store.declare({"q": QueueSettings(concurrency=2)})
    jobs = await held(store)
    assert len(jobs) == 2
    settled = await store.settle(settlements(jobs, by_turns), wanted(2, NEXT))
    assert settled.claims is not None
    assert [job.id for job in settled.claims.jobs] == ["02", "03"]
