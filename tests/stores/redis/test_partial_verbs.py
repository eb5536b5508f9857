"""A verb of several scripts fails between any two of them: sent again, it does the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tidemill.core.claims import (
    ClaimedJob,
    ClaimRequest,
    Heartbeat,
    HeldJob,
    QueueShare,
    Settlement,
    SettleResult,
)
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error, JobGroup, NewJob
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import JobRelease, Outcome, RetryLater, Success, WriteAnswer
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State
from tidemill.errors import StoreUnavailable
from tidemill.stores.redis import RedisStore
from tidemill.stores.redis import settle as settling
from tidemill.stores.redis import shard as redis_shard
from tidemill.stores.redis.shard import Shard

JOBS, NEXT = 11, 4
WRITES = ("settle", "claim", "commit")
OUTCOMES: list[Outcome] = [
    Success(),
    JobRelease(unknown=True),
    RetryLater(5.0, Error("E", "no")),
    Success(b"1"),
]


@pytest.fixture
async def store(
    redis_url: str, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RedisStore]:
    monkeypatch.setattr(settling, "MAX_JOBS_PER_SCRIPT", 3)
    monkeypatch.setattr(redis_shard, "MAX_JOBS_PER_TRANSACTION", 2)
    opened = await RedisStore(redis_url, prefix=redis_prefix).open()
    yield opened
    assert await opened.check() == ()
    await opened.close()


class ScriptFaults:
    """The `number`th writing script does not run, or its reply is lost."""

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
def faults(monkeypatch: pytest.MonkeyPatch) -> ScriptFaults:
    return ScriptFaults(monkeypatch)


def wanted(number: int, limit: int) -> ClaimRequest:
    return ClaimRequest(worker="w", number=number, limit=limit, lease=30.0, shares=(QueueShare("q", limit),))


async def held(store: RedisStore) -> list[ClaimedJob]:
    jobs = (NewJob(id=f"{number:02}", task="t", payload=b"1") for number in range(JOBS + NEXT))
    await store.insert([JobGroup("q", tuple(jobs))])
    return list((await store.claim(wanted(1, JOBS))).jobs)


def settlements(jobs: list[ClaimedJob], outcome: Callable[[int], Outcome]) -> list[Settlement]:
    """Settlements of the jobs; the fifth has another worker's claim."""
    return [Settlement(job.id, job.fence + (at == 4), job.claim, outcome(at)) for at, job in enumerate(jobs)]


def alternating_outcome(at: int) -> Outcome:
    return OUTCOMES[at % len(OUTCOMES)]


async def settle_until_done(store: RedisStore, items: list[Settlement]) -> SettleResult:
    """Settles until it succeeds, like a worker."""
    try:
        return await store.settle(items, wanted(2, NEXT))
    except StoreUnavailable:
        return await store.settle(items, wanted(2, NEXT))


CASES = [(alternating_outcome, number) for number in range(7)] + [
    (lambda _: Success(), number) for number in range(5)
]


@pytest.mark.parametrize(("outcome", "number"), CASES)
@pytest.mark.parametrize("is_done", [False, True], ids=["not run", "reply lost"])
async def test_j33_settled_in_parts_and_claimed_once(
    store: RedisStore, faults: ScriptFaults, outcome: Callable[[int], Outcome], number: int, *, is_done: bool
) -> None:
    items = settlements(await held(store), outcome)
    faults.names.clear()
    faults.number, faults.is_done = number, is_done
    settled = await settle_until_done(store, items)
    assert len(faults.names) >= max(number, 4), "enough scripts ran for the fault"
    assert settled.answers[4] is WriteAnswer.STALE
    assert {*settled.answers[:4], *settled.answers[5:]} <= {WriteAnswer.OK, WriteAnswer.AGAIN}
    assert settled.claims is not None
    assert [job.id for job in settled.claims.jobs] == [f"{at:02}" for at in range(JOBS, JOBS + NEXT)]
    assert len({(job.fence, job.claim) for job in settled.claims.jobs}) == 1
    expected = {Success: State.DONE, RetryLater: State.SCHEDULED, JobRelease: State.SCHEDULED}
    for item, job in zip(items, await store.get([item.job for item in items]), strict=True):
        assert job is not None
        assert job.state is (State.RUNNING if item is items[4] else expected[type(item.outcome)]), item


async def test_an_amend_in_parts_counts_each_job_once(store: RedisStore, faults: ScriptFaults) -> None:
    jobs = await held(store)
    await store.settle(settlements(jobs[:3], lambda _: Success()))
    faults.names.clear()
    found = await store.amend(Filter(ids=tuple(f"{at:02}" for at in range(10))), CancelJobs("no"), 9)
    assert (len(found.changed) + len(found.unchanged), faults.names) == (9, ["commit"] * 4), (
        "the first two had ended"
    )
    assert len({*found.changed, *found.unchanged}) == 9


async def test_j52_jobs_extended_by_an_earlier_script_are_not_returned(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One script reads a megabyte of records, here two jobs. A job that is not listed is returned."""
    for id_ in "abcde":
        await store.insert([JobGroup("q", (NewJob(id=id_, task="t", payload=b"1" * 600_000),))])
    jobs = list[ClaimedJob]()
    while len(jobs) < 5:
        jobs += (await store.claim(wanted(len(jobs) + 1, 5))).jobs
    parts, run = list[int](), Shard.run

    async def record_script(shard: Shard, script: Any, *args: Any, **options: Any) -> Any:
        answer = await run(shard, script, *args, **options)
        if script.name == "extend" and isinstance(answer, list):
            parts.append(answer[0])
        return answer

    monkeypatch.setattr(Shard, "run", record_script)

    async def heartbeat(jobs: list[ClaimedJob]) -> list[State]:
        held = tuple(HeldJob(job=job.id, fence=job.fence, claim=job.claim) for job in jobs)
        extended = await store.extend(Heartbeat(worker="w", received=9, lease=30.0, held=held))
        assert extended.lost == ()
        return [job.state for job in await store.get(list("abcde")) if job is not None]

    assert await heartbeat(jobs) == [State.RUNNING] * 5
    assert parts == [2, 2, 1]
    assert await heartbeat(jobs[:-1]) == [State.RUNNING] * 4 + [State.READY]


async def test_the_claim_comes_after_every_settlement(store: RedisStore) -> None:
    """Also after outcomes that need the engine, because these free capacity of a limited queue."""
    await store.declare({"q": QueueSettings(concurrency=2)})
    jobs = await held(store)
    assert len(jobs) == 2
    settled = await store.settle(settlements(jobs, alternating_outcome), wanted(2, NEXT))
    assert settled.claims is not None
    assert [job.id for job in settled.claims.jobs] == ["02", "03"]
