"""A claim begins at the cursor of the last one (0001-4-fast-path.sql) and still takes jobs in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob, ClaimRequest, QueueShare, Settlement
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error, JobGroup, NewJob
from tidemill.core.operator_changes import ReprioritiseJobs, RetryJobs
from tidemill.core.outcomes import JobRelease, Outcome, RetryLater, Snooze, Success
from tidemill.stores.postgres import PostgresStore
from tidemill.testing.clocks import ManualClock

JOBS, AT_ONCE, FEW = 8000, 500, 10
_CLAIM = """
SELECT count(c.id)
FROM tidemill.claim_plain($1, $2, NULL, 'other', $3, '{q}', ARRAY[$4::integer], $4, 30, 7) AS c
"""
_PAGES_READ = "SELECT pg_stat_get_xact_blocks_fetched('tidemill.ready_pkey'::regclass)"
_SLIP_IN = """
WITH made AS (
    INSERT INTO tidemill.jobs (seq, id, queue, task, payload, state, priority, created, due)
    SELECT nextval('tidemill.job_seqs'), id, 'q', 't', '1', 'ready', 0, 1, 1 FROM unnest($1::text[]) AS id
    RETURNING *
)
INSERT INTO tidemill.ready (queue, lane, priority, due, seq, id, fence)
SELECT queue, lane, priority, due, seq, id, fence FROM made
"""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(prepared_postgres_url: str, clock: ManualClock) -> AsyncIterator[Store]:
    store = await PostgresStore(prepared_postgres_url, clock=clock).open()
    yield store
    assert await store.check() == ()
    await store.close()


@pytest.fixture
async def outsider(prepared_postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(prepared_postgres_url)
    yield connection
    await connection.close()


class CursorWorker:
    """A worker that claims jobs and keeps them."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self._number = 0
        self.held: dict[str, ClaimedJob] = {}
        self.has_more = False

    async def add(self, *ids: str, priority: int = 0) -> None:
        jobs = [NewJob(id=id_, task="t", payload=b"1", priority=priority) for id_ in ids]
        await self.store.insert([JobGroup("q", tuple(jobs))])

    async def take(self, limit: int = 2) -> list[str]:
        self._number += 1
        shares = (QueueShare("q", limit),)
        request = ClaimRequest(worker="w", number=self._number, shares=shares, limit=limit, lease=30.0)
        claims = await self.store.claim(request)
        self.held.update({job.id: job for job in claims.jobs})
        self.has_more = claims.more
        return [job.id for job in claims.jobs]

    async def settle(self, id_: str, outcome: Outcome) -> None:
        job = self.held.pop(id_)
        await self.store.settle([Settlement(job.id, job.fence, job.claim, outcome)])


@pytest.fixture
async def worker(store: Store, clock: ManualClock) -> CursorWorker:
    """Returns a worker whose claims have moved the cursor to `b`."""
    worker = CursorWorker(store, clock)
    await worker.add(*"abcdefgh")
    assert await worker.take() == ["a", "b"]
    return worker


async def pages_read(outsider: asyncpg.Connection, clock: ManualClock, number: int) -> int:
    """Returns how many pages of the index of `ready` a claim reads."""
    assert await outsider.fetchval(_CLAIM, clock.wall(), clock.boot(), number, FEW) == FEW
    return int(await outsider.fetchval(_PAGES_READ))


async def test_a_claim_does_not_read_past_dead_rows_while_a_snapshot_is_open(
    prepared_postgres_url: str, store: Store, outsider: asyncpg.Connection, clock: ManualClock
) -> None:
    worker = CursorWorker(store, clock)
    snapshot = await asyncpg.connect(prepared_postgres_url)
    try:
        async with snapshot.transaction(isolation="repeatable_read"):
            await snapshot.fetch("SELECT FROM tidemill.queues")
            await worker.add(*(f"{n:06}" for n in range(JOBS)))
            for _ in range(JOBS // AT_ONCE - 1):
                assert len(await worker.take(AT_ONCE)) == AT_ONCE
            async with outsider.transaction():
                assert await pages_read(outsider, clock, 1) < 20
            async with outsider.transaction():
                await outsider.execute("UPDATE tidemill.lanes SET claim_cursor = NULL")
                assert await pages_read(outsider, clock, 2) > 30
    finally:
        await snapshot.close()


async def an_urgent_job_arrives(worker: CursorWorker) -> None:
    await worker.add("early", priority=-1)


async def a_job_arrives_after_the_clock_was_put_back(worker: CursorWorker) -> None:
    worker.clock.step_wall(-0.5)
    await worker.add("early")
    worker.clock.advance(0.75)


async def a_job_is_made_more_urgent(worker: CursorWorker) -> None:
    await worker.add("early", priority=1)
    await worker.store.amend(Filter(ids=("early",)), ReprioritiseJobs(-1))


async def a_job_is_made_as_urgent_as_younger_ones(worker: CursorWorker) -> None:
    await worker.add("early", priority=1)
    worker.clock.advance(0.25)
    await worker.add(*"xy", priority=-1)
    assert await worker.take() == ["x", "y"]
    await worker.store.amend(Filter(ids=("early",)), ReprioritiseJobs(-1))


@pytest.mark.parametrize(
    "come",
    [
        *(an_urgent_job_arrives, a_job_arrives_after_the_clock_was_put_back, a_job_is_made_more_urgent),
        a_job_is_made_as_urgent_as_younger_ones,
    ],
)
async def test_a_job_added_before_the_cursor_is_next(
    worker: CursorWorker, come: Callable[[CursorWorker], Awaitable[None]]
) -> None:
    await come(worker)
    assert await worker.take(limit=3) == ["early", "c", "d"]


@pytest.mark.parametrize(
    "outcome",
    [JobRelease(), Snooze(0.0), RetryLater(0.0, Error("E", "")), RetryLater(0.0, Error("E", ""), -1)],
)
async def test_a_job_that_returns_before_the_cursor_is_next(worker: CursorWorker, outcome: Outcome) -> None:
    await worker.settle("b", outcome)
    assert await worker.take() == ["b", "c"]


async def test_a_retry_that_is_due_is_next_when_it_is_more_urgent(worker: CursorWorker) -> None:
    await worker.settle("b", RetryLater(0.25, Error("E", ""), -1))
    assert await worker.take() == ["c", "d"]
    worker.clock.advance(0.25)
    assert await worker.take() == ["b", "e"]


async def test_jobs_that_are_reclaimed_are_next(worker: CursorWorker) -> None:
    await worker.store.reclaim(["w"])
    assert await worker.take(limit=3) == ["a", "b", "c"]


async def test_an_ended_job_that_is_retried_by_hand_is_next(worker: CursorWorker) -> None:
    await worker.settle("a", Success())
    await worker.store.amend(Filter(ids=("a",)), RetryJobs())
    assert await worker.take() == ["a", "c"]


@pytest.mark.parametrize(("seconds", "next_"), [(0.5, ["c", "d"]), (1.5, ["early", "c"])])
async def test_a_job_missed_before_the_cursor_is_found_within_a_second(
    worker: CursorWorker, outsider: asyncpg.Connection, seconds: float, next_: list[str]
) -> None:
    await outsider.execute(_SLIP_IN, ["early"])
    worker.clock.advance(seconds)
    assert await worker.take() == next_


async def test_a_job_missed_before_the_cursor_is_claimed_if_there_are_too_few(
    worker: CursorWorker, outsider: asyncpg.Connection
) -> None:
    await outsider.execute(_SLIP_IN, ["early"])
    async with outsider.transaction():  # another transaction has locked the lane, so the cursor stays
        await outsider.execute("SELECT FROM tidemill.lanes FOR UPDATE")
        assert sorted(await worker.take(limit=7)) == ["c", "d", "e", "early", "f", "g", "h"]
    assert await worker.take() == []


async def test_jobs_left_before_the_cursor_are_reported_and_claimed_next(
    worker: CursorWorker, outsider: asyncpg.Connection
) -> None:
    await outsider.execute(_SLIP_IN, ["early", "too"])
    assert sorted(await worker.take(limit=7)) == ["c", "d", "e", "early", "f", "g", "h"]
    assert worker.has_more
    assert await worker.take() == ["too"]
    assert not worker.has_more
