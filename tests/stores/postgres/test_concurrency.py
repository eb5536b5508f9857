"""Many handles at once: the fast path beside engine transactions, and limits that hold."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob, ClaimRequest, ClaimResult, QueueShare, Settlement
from tidemill.core.filters import Filter
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import JobRelease, Success, WriteAnswer
from tidemill.core.queues import InsertVerdict, QueueSettings
from tidemill.core.states import State
from tidemill.stores.postgres import PostgresStore

HANDLES = 4


@pytest.fixture
async def handles(postgres_url: str) -> AsyncIterator[list[Store]]:
    """Returns handles with separate connections, like separate processes."""
    first = await PostgresStore(postgres_url).open()
    opened: list[Store] = [first, *[await first.new_handle().open() for _ in range(HANDLES - 1)]]
    yield opened
    for store in opened:
        await store.close()


def new(id_: str, key: str | None = None) -> NewJob:
    return NewJob(id=id_, task="t", payload=b"1", key=key)


def request(worker: str, number: int, limit: int = 5) -> ClaimRequest:
    return ClaimRequest(
        worker=worker, number=number, shares=(QueueShare("q", limit),), limit=limit, lease=30.0
    )


class ClaimingWorker:
    """A worker that claims until nothing is left. It first releases every third job."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name, self._number = store, name, 0
        self.done: list[str] = []
        self.fences: list[tuple[str, int]] = []
        self._seen: Counter[str] = Counter()

    async def work(self, until: asyncio.Event) -> None:
        claims = await self._claim()
        while claims.jobs or claims.more or not until.is_set():
            settlements = [self._settlement(job) for job in claims.jobs]
            self._number += 1
            settled = await self._store.settle(settlements, request(self._name, self._number))
            for item, answer in zip(settlements, settled.answers, strict=True):
                if isinstance(item.outcome, Success) and answer is WriteAnswer.OK:
                    self.done.append(item.job)
            assert settled.claims is not None
            claims = settled.claims
            self._note(claims)

    async def _claim(self) -> ClaimResult:
        self._number += 1
        claims = await self._store.claim(request(self._name, self._number))
        self._note(claims)
        return claims

    def _note(self, claims: ClaimResult) -> None:
        self.fences += [(job.id, job.fence) for job in claims.jobs]

    def _settlement(self, job: ClaimedJob) -> Settlement:
        self._seen[job.id] += 1
        given_back = self._seen[job.id] == 1 and int(job.id.rsplit("-", maxsplit=1)[-1]) % 3 == 0
        return Settlement(job.id, job.fence, job.claim, JobRelease() if given_back else Success())


async def test_i5_many_workers_run_plain_and_keyed_jobs_once_each(handles: list[Store]) -> None:
    """Keyed jobs move the claims of the queue to the engine and back, while plain jobs come and go."""
    hands = [ClaimingWorker(store, f"w{n}") for n, store in enumerate(handles)]
    over = asyncio.Event()

    ids: list[str] = []

    async def produce() -> None:
        for n in range(25):
            plain = [new(f"plain-{n}-{i}") for i in range(6)]
            with_key = [new(f"keyed-{n}-{i}", key=f"k{i}") for i in range(2)] if n % 5 == 0 else []
            for jobs in (plain, with_key):
                await handles[n % HANDLES].insert([JobGroup("q", (job,)) for job in jobs])
                ids.extend(job.id for job in jobs)
        over.set()

    await asyncio.gather(produce(), *(one.work(over) for one in hands))
    done = Counter(job for one in hands for job in one.done)
    assert done == Counter(ids)
    fences = [fence for one in hands for fence in one.fences]
    assert len(set(fences)) == len(fences), "a job was in two hands with one fence"
    assert await handles[0].counts() == {"q": {State.DONE: len(ids)}}


async def test_j71_a_cancelled_job_never_starts_on_the_fast_path(handles: list[Store]) -> None:
    await handles[0].insert([JobGroup("q", tuple(new(f"job-{n}") for n in range(120)))])
    hands = [ClaimingWorker(store, f"w{n}") for n, store in enumerate(handles[1:])]
    over = asyncio.Event()

    cancelled: set[str] = set()

    async def cancel() -> None:
        for n in range(0, 120, 12):
            wanted = Filter(ids=tuple(f"job-{m}" for m in range(n, n + 6)))
            cancelled.update((await handles[0].amend(wanted, CancelJobs())).changed)
        over.set()

    await asyncio.gather(cancel(), *(one.work(over) for one in hands))
    done = {job for one in hands for job in one.done}
    assert not done & cancelled
    assert len(done) + len(cancelled) == 120


async def test_j12_a_length_holds_under_concurrency(handles: list[Store]) -> None:
    await handles[0].declare({"q": QueueSettings(max_length=20)})
    verdicts = await asyncio.gather(
        *(
            store.insert([JobGroup("q", tuple(new(f"{n}-{i}-{j}") for j in range(3)))])
            for n, store in enumerate(handles)
            for i in range(3)
        )
    )
    accepted = sum(one.verdict is InsertVerdict.ACCEPTED for ((*group,),) in verdicts for one in group)
    assert accepted == 18
    assert await handles[0].counts() == {"q": {State.READY: 18}}


async def test_j35_a_concurrency_holds_under_concurrency(handles: list[Store]) -> None:
    await handles[0].declare({"q": QueueSettings(concurrency=3)})
    await handles[0].insert([JobGroup("q", tuple(new(f"job-{n}") for n in range(20)))])
    claims = await asyncio.gather(*(store.claim(request(f"w{n}", 1)) for n, store in enumerate(handles)))
    assert sum(len(one.jobs) for one in claims) == 3


async def test_j33_a_claim_sent_twice_at_once_claims_once(handles: list[Store]) -> None:
    """The first request may still run when its sender gives up and repeats it."""
    await handles[0].insert([JobGroup("q", tuple(new(f"job-{n}") for n in range(50)))])
    one, two = await asyncio.gather(*(store.claim(request("w", 1)) for store in handles[:2]))
    assert {(job.id, job.fence) for job in one.jobs} == {(job.id, job.fence) for job in two.jobs}
    assert len(one.jobs) == 5


async def test_j11_an_id_sent_by_many_at_once_is_one_job(handles: list[Store]) -> None:
    group = JobGroup("q", tuple(new(f"job-{n}") for n in range(10)))
    answers = await asyncio.gather(*(store.insert([group]) for store in handles for _ in range(3)))
    assert all(one.verdict is InsertVerdict.ACCEPTED for ((*results,),) in answers for one in results)
    assert await handles[0].counts() == {"q": {State.READY: 10}}
