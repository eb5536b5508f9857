"""A bulk claim is one row for all its jobs (0001-3-bulk-claims.sql); each job leaves it once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob, ClaimRequest, Heartbeat, HeldJob, QueueShare, Settlement
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error, Job, JobGroup, NewJob
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import FinalFailure, JobRelease, Success, WriteAnswer
from tidemill.core.states import State
from tidemill.stores.postgres import PostgresStore

_WAIT_FOR_ROWS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event IN ('transactionid', 'tuple')"
_CLAIM = """
SELECT id, fence FROM tidemill.claim_plain(NULL, NULL, NULL, 'other', 1, '{q}', '{5}', 5, 30, 7) WHERE id > ''
"""
_SETTLE = """
SELECT unsettled FROM tidemill.settle_plain(NULL, NULL, NULL, $1, ARRAY[$2::bigint], ARRAY[$3::bigint],
    '{done}', '{}', '{}', '{}', '{}', '{}')
"""


@pytest.fixture
async def store(prepared_postgres_url: str) -> AsyncIterator[Store]:
    store = await PostgresStore(prepared_postgres_url).open()
    yield store
    assert await store.check() == ()
    await store.close()


@pytest.fixture
async def outsider(prepared_postgres_url: str, store: Store) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(prepared_postgres_url)
    yield connection
    await connection.close()


def request(number: int, worker: str = "w", limit: int = 5) -> ClaimRequest:
    return ClaimRequest(
        worker=worker, number=number, shares=(QueueShare("q", limit),), limit=limit, lease=30.0
    )


async def claimed(store: Store, *ids: str, **options: Any) -> list[ClaimedJob]:
    await store.insert(
        [JobGroup("q", tuple(NewJob(id=id_, task="t", payload=b"1", **options) for id_ in ids))]
    )
    claims = await store.claim(request(1))
    assert [job.id for job in claims.jobs] == list(ids)
    return claims.jobs


def done(*jobs: ClaimedJob) -> list[Settlement]:
    return [Settlement(job.id, job.fence, job.claim, Success()) for job in jobs]


def heartbeat(*jobs: ClaimedJob) -> Heartbeat:
    held = tuple(HeldJob(job=job.id, fence=job.fence, claim=job.claim) for job in jobs)
    return Heartbeat(worker="w", received=1, lease=30.0, held=held)


async def until_somebody_waits(outsider: asyncpg.Connection) -> None:
    while not await outsider.fetchval(_WAIT_FOR_ROWS):
        pass


async def open_claims(outsider: asyncpg.Connection) -> list[int]:
    return [row[0] for row in await outsider.fetch("SELECT open_jobs FROM tidemill.claims ORDER BY fence")]


async def states(store: Store, *ids: str) -> list[State | None]:
    return [None if job is None else job.state for job in await store.get(ids)]


async def test_a_bulk_claim_is_one_row_and_reads_do_not_expand_it(
    store: Store, outsider: asyncpg.Connection
) -> None:
    jobs = await claimed(store, "a", "b", "c")
    shown: list[list[Job | None]] = [
        await store.get(["a", "b", "c"]),
        list(reversed((await store.find(Filter())).jobs)),
        list(reversed((await store.find(Filter(states=(State.RUNNING,)))).jobs)),
        list(reversed((await store.find(Filter(states=(State.RUNNING, State.READY)))).jobs)),
        [one.job for one in await store.copy_jobs()],
    ]
    for found in shown:
        assert [(job.id, job.state, job.fence, job.worker) for job in found if job] == [
            (job.id, State.RUNNING, job.fence, "w") for job in jobs
        ]
    assert (await store.find(Filter(states=(State.READY,)))).jobs == ()
    assert await store.counts() == {"q": {State.RUNNING: 3}}
    assert await store.ahead("a") is None
    assert await open_claims(outsider) == [3]
    await store.settle(done(*jobs[:2]))
    assert await open_claims(outsider) == [1]
    await store.settle(done(jobs[2]))
    assert await open_claims(outsider) == []


async def test_i5_a_settlement_that_waited_for_an_expansion_succeeds(
    store: Store, outsider: asyncpg.Connection
) -> None:
    """The server checks the condition again on the changed row, and the job leaves its claim only once."""
    jobs = await claimed(store, "a", "b", "c")
    async with outsider.transaction():
        await outsider.execute("SELECT tidemill.lock_jobs('{b}')")  # of the three only this one
        settle = asyncio.create_task(store.settle(done(*jobs)))
        await until_somebody_waits(outsider)
    assert (await settle).answers == [WriteAnswer.OK] * 3
    assert await states(store, "a", "b", "c") == [State.DONE] * 3
    assert await open_claims(outsider) == []


async def test_i5_a_settlement_that_waited_for_the_expansion_of_its_claim_succeeds(
    store: Store, outsider: asyncpg.Connection
) -> None:
    jobs = await claimed(store, "a", "b", "c")
    async with outsider.transaction():
        await outsider.execute("SELECT tidemill.lock_running_jobs('{w}')")
        settle = asyncio.create_task(store.settle(done(*jobs[:2])))
        await until_somebody_waits(outsider)
    assert (await settle).answers == [WriteAnswer.OK] * 2
    assert await states(store, "a", "b", "c") == [State.DONE, State.DONE, State.RUNNING]
    assert await open_claims(outsider) == []


async def test_j50_a_heartbeat_skips_a_locked_job_without_reporting_it_lost(
    store: Store, outsider: asyncpg.Connection
) -> None:
    jobs = await claimed(store, "a", "b", "c")
    async with outsider.transaction():
        await outsider.execute("SELECT FROM tidemill.jobs WHERE id = 'b' FOR UPDATE")
        assert (await store.extend(heartbeat(*jobs))).lost == ()
    assert await open_claims(outsider) == [1]
    assert await states(store, "a", "b", "c") == [State.RUNNING] * 3
    assert (await store.settle(done(*jobs))).answers == [WriteAnswer.OK] * 3


async def test_j50_a_heartbeat_and_a_settlement_lock_claims_in_the_same_order(
    store: Store, outsider: asyncpg.Connection, prepared_postgres_url: str
) -> None:
    """Otherwise each waits for a claim that the other holds, until the server ends one of them after a
    second."""
    (first,) = await claimed(store, "a")
    await store.insert([JobGroup("q", tuple(NewJob(id=id_, task="t", payload=b"1") for id_ in "bc"))])
    second, third = (await store.claim(request(2))).jobs
    settling = await asyncpg.connect(prepared_postgres_url)
    transaction = settling.transaction()
    await transaction.start()  # what a settlement of `a` and `b` does, with a pause between the claims
    await settling.execute("SELECT FROM tidemill.jobs WHERE id IN ('a', 'b') ORDER BY id FOR UPDATE")
    await settling.execute("SELECT tidemill.shrink_claim($1, 1)", first.fence)
    held = replace(heartbeat(first, second, third), received=2)
    beating = asyncio.create_task(store.extend(held))
    await until_somebody_waits(outsider)
    await settling.execute("SET lock_timeout = '300ms'")
    await settling.execute("SELECT tidemill.shrink_claim($1, 1)", second.fence)
    await transaction.rollback()
    await settling.close()
    assert (await beating).lost == ()


async def test_i5_a_heartbeat_and_a_settlement_take_the_same_job_out_of_its_claim_once(
    store: Store, outsider: asyncpg.Connection
) -> None:
    jobs = await claimed(store, "a", "b", "c")
    async with outsider.transaction():
        await outsider.execute(_SETTLE, ["b"], jobs[0].fence, jobs[0].claim)
        extend = asyncio.create_task(store.extend(heartbeat(*jobs)))
        await until_somebody_waits(outsider)
    assert (await extend).lost == ("b",)
    assert await states(store, "a", "b", "c") == [State.RUNNING, State.DONE, State.RUNNING]
    assert await open_claims(outsider) == []


async def test_i5_a_settlement_that_is_rolled_back_leaves_its_jobs_in_the_claim(
    store: Store, outsider: asyncpg.Connection
) -> None:
    jobs = await claimed(store, "a", "b")
    transaction = outsider.transaction()
    await transaction.start()
    await outsider.execute(_SETTLE, ["a", "b"], jobs[0].fence, jobs[0].claim)
    await transaction.rollback()
    assert await open_claims(outsider) == [2]
    assert (await store.settle(done(*jobs))).answers == [WriteAnswer.OK] * 2


async def test_j71_a_change_of_a_job_waits_for_a_concurrent_claim(
    store: Store, outsider: asyncpg.Connection
) -> None:
    await store.insert([JobGroup("q", (NewJob(id="a", task="t", payload=b"1"),))])
    async with outsider.transaction():
        ((_, fence),) = await outsider.fetch(_CLAIM)
        cancel = asyncio.create_task(store.amend(Filter(ids=("a",)), CancelJobs()))
        await until_somebody_waits(outsider)
    assert (await cancel).changed == ("a",)
    assert await states(store, "a") == [State.CANCELLED]
    assert (await store.settle([Settlement("a", fence, 7, Success())])).answers == [WriteAnswer.STALE]


async def test_j71_a_job_that_is_being_changed_is_not_claimed(
    store: Store, outsider: asyncpg.Connection
) -> None:
    await store.insert([JobGroup("q", tuple(NewJob(id=id_, task="t", payload=b"1") for id_ in "ab"))])
    async with outsider.transaction():
        await outsider.execute("SELECT tidemill.lock_jobs('{a}')")
        assert [job.id for job in (await store.claim(request(1))).jobs] == ["b"]
    assert [job.id for job in (await store.claim(request(2))).jobs] == ["a"]


async def test_i5_a_job_claimed_again_is_not_settled_by_its_first_worker(
    store: Store, outsider: asyncpg.Connection
) -> None:
    """The first claim is still open: it holds another job."""
    first, other = await claimed(store, "a", "b")
    await store.settle([Settlement("a", first.fence, first.claim, JobRelease())])
    (second,) = (await store.claim(request(1, "v"))).jobs
    assert second.fence > first.fence
    assert await open_claims(outsider) == [1, 1]
    assert (await store.settle(done(first))).answers == [WriteAnswer.STALE]
    assert (await store.settle(done(second, other))).answers == [WriteAnswer.OK] * 2
    assert (await store.settle(done(first))).answers == [WriteAnswer.STALE]


async def test_j36_a_running_job_past_its_expiry_keeps_claims_on_the_fast_path(
    store: Store, outsider: asyncpg.Connection
) -> None:
    await claimed(store, "a", expires=3600.0)
    await outsider.execute("UPDATE tidemill.jobs SET expires = 1")
    await store.insert([JobGroup("q", (NewJob(id="b", task="t", payload=b"1"),))])
    assert [job.id for job in (await store.claim(request(2))).jobs] == ["b"]
    assert await open_claims(outsider) == [1, 1], "the engine makes no bulk claims"


async def test_i5_another_claim_id_does_not_settle_an_expanded_job(store: Store) -> None:
    """After a restore a fence may be used twice; then only the claim id differs."""
    jobs = await claimed(store, "a", "b")
    await store.extend(heartbeat(*jobs))
    others = [replace(job, claim=job.claim + 1) for job in jobs]
    assert (await store.settle(done(*others))).answers == [WriteAnswer.STALE] * 2
    failed = FinalFailure(Error("ValueError", "oops"))
    other = Settlement("a", others[0].fence, others[0].claim, failed)
    assert (await store.settle([other])).answers == [WriteAnswer.STALE]
    assert await states(store, "a", "b") == [State.RUNNING] * 2
    assert (await store.settle(done(*jobs))).answers == [WriteAnswer.OK] * 2


async def test_i7_a_worker_with_a_bulk_claim_is_not_pruned(
    store: Store, outsider: asyncpg.Connection
) -> None:
    """The claim names the worker of its jobs: without the worker's row they could not be reclaimed."""
    await claimed(store, "a", "b")
    await outsider.execute("UPDATE tidemill.workers SET lease = 0")
    await outsider.execute("UPDATE tidemill.claims SET lease = 0")
    await store.prune()
    assert await outsider.fetchval("SELECT count(*) FROM tidemill.workers WHERE id = 'w'") == 1
    assert sorted((await store.reclaim()).ready) == ["a", "b"]
    await store.prune()
    assert await outsider.fetchval("SELECT count(*) FROM tidemill.workers WHERE id = 'w'") == 0


async def test_j33_a_repeated_claim_returns_its_unsettled_jobs(store: Store) -> None:
    jobs = await claimed(store, "a", "b", "c")
    await store.settle(done(jobs[1]))
    again = (await store.claim(request(1))).jobs
    assert [(job.id, job.fence, job.claim) for job in again] == [
        (job.id, job.fence, job.claim) for job in (jobs[0], jobs[2])
    ]
