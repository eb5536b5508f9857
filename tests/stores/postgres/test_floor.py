"""A claim begins where the last one ended (0004-plain.sql), and still takes the jobs in their order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from tidemill.contract.store import Store
from tidemill.core.changes import Reprioritise, RetryNow
from tidemill.core.claims import Claimed, ClaimRequest, Settlement, Share
from tidemill.core.filters import Filter
from tidemill.core.job import Error, Group, NewJob
from tidemill.core.outcomes import Done, Outcome, Release, Retrying, Snooze
from tidemill.stores.postgres import PostgresStore
from tidemill.testing.manual import ManualClock

JOBS, AT_ONCE, FEW = 8000, 500, 10
_CLAIM = """
SELECT count(c.id)
FROM tidemill.claim_plain($1, $2, NULL, 'other', $3, '{q}', ARRAY[$4::integer], $4, 30, 7) AS c
"""
_PAGES_READ = "SELECT pg_stat_get_xact_blocks_fetched('tidemill.ready_pkey'::regclass)"
_SLIP_IN = """
WITH made AS (
    INSERT INTO tidemill.jobs (seq, id, queue, task, payload, state, priority, created, due)
    SELECT nextval('tidemill.places'), id, 'q', 't', '1', 'ready', 0, 1, 1 FROM unnest($1::text[]) AS id
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


class Taking:
    """A worker that takes jobs and keeps them."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self._number = 0
        self.held: dict[str, Claimed] = {}
        self.says_more = False

    async def add(self, *ids: str, priority: int = 0) -> None:
        jobs = [NewJob(id=id_, task="t", payload=b"1", priority=priority) for id_ in ids]
        await self.store.insert([Group("q", tuple(jobs))])

    async def take(self, limit: int = 2) -> list[str]:
        self._number += 1
        shares = (Share("q", limit),)
        request = ClaimRequest(worker="w", number=self._number, shares=shares, limit=limit, lease=30.0)
        claims = await self.store.claim(request)
        self.held.update({job.id: job for job in claims.jobs})
        self.says_more = claims.more
        return [job.id for job in claims.jobs]

    async def settle(self, id_: str, outcome: Outcome) -> None:
        job = self.held.pop(id_)
        await self.store.settle([Settlement(job.id, job.fence, job.claim, outcome)])


@pytest.fixture
async def taking(store: Store, clock: ManualClock) -> Taking:
    """The floor is at `b`."""
    taking = Taking(store, clock)
    await taking.add(*"abcdefgh")
    assert await taking.take() == ["a", "b"]
    return taking


async def pages_read(outsider: asyncpg.Connection, clock: ManualClock, number: int) -> int:
    """Of the index of the line, by a claim."""
    assert await outsider.fetchval(_CLAIM, clock.wall(), clock.boot(), number, FEW) == FEW
    return int(await outsider.fetchval(_PAGES_READ))


async def test_a_claim_does_not_walk_over_what_was_taken_while_a_snapshot_is_open(
    prepared_postgres_url: str, store: Store, outsider: asyncpg.Connection, clock: ManualClock
) -> None:
    taking = Taking(store, clock)
    snapshot = await asyncpg.connect(prepared_postgres_url)
    try:
        async with snapshot.transaction(isolation="repeatable_read"):
            await snapshot.fetch("SELECT FROM tidemill.queues")
            await taking.add(*(f"{n:06}" for n in range(JOBS)))
            for _ in range(JOBS // AT_ONCE - 1):
                assert len(await taking.take(AT_ONCE)) == AT_ONCE
            async with outsider.transaction():
                assert await pages_read(outsider, clock, 1) < 20
            async with outsider.transaction():
                await outsider.execute("UPDATE tidemill.lanes SET floor = NULL")
                assert await pages_read(outsider, clock, 2) > 30
    finally:
        await snapshot.close()


async def an_urgent_job_arrives(taking: Taking) -> None:
    await taking.add("early", priority=-1)


async def a_job_arrives_after_the_clock_was_put_back(taking: Taking) -> None:
    taking.clock.step_wall(-0.5)
    await taking.add("early")
    taking.clock.advance(0.75)


async def a_job_is_made_more_urgent(taking: Taking) -> None:
    await taking.add("early", priority=1)
    await taking.store.amend(Filter(ids=("early",)), Reprioritise(-1))


async def a_job_is_made_as_urgent_as_younger_ones(taking: Taking) -> None:
    await taking.add("early", priority=1)
    taking.clock.advance(0.25)
    await taking.add(*"xy", priority=-1)
    assert await taking.take() == ["x", "y"]
    await taking.store.amend(Filter(ids=("early",)), Reprioritise(-1))


@pytest.mark.parametrize(
    "come",
    [
        *(an_urgent_job_arrives, a_job_arrives_after_the_clock_was_put_back, a_job_is_made_more_urgent),
        a_job_is_made_as_urgent_as_younger_ones,
    ],
)
async def test_whoever_comes_before_the_floor_is_next(
    taking: Taking, come: Callable[[Taking], Awaitable[None]]
) -> None:
    await come(taking)
    assert await taking.take(limit=3) == ["early", "c", "d"]


@pytest.mark.parametrize(
    "outcome", [Release(), Snooze(0.0), Retrying(0.0, Error("E", "")), Retrying(0.0, Error("E", ""), -1)]
)
async def test_a_job_that_comes_back_before_the_floor_is_next(taking: Taking, outcome: Outcome) -> None:
    await taking.settle("b", outcome)
    assert await taking.take() == ["b", "c"]


async def test_a_retry_that_is_due_is_next_when_it_is_more_urgent(taking: Taking) -> None:
    await taking.settle("b", Retrying(0.25, Error("E", ""), -1))
    assert await taking.take() == ["c", "d"]
    taking.clock.advance(0.25)
    assert await taking.take() == ["b", "e"]


async def test_jobs_that_are_reclaimed_are_next(taking: Taking) -> None:
    await taking.store.reclaim(["w"])
    assert await taking.take(limit=3) == ["a", "b", "c"]


async def test_an_ended_job_that_is_retried_by_hand_is_next(taking: Taking) -> None:
    await taking.settle("a", Done())
    await taking.store.amend(Filter(ids=("a",)), RetryNow())
    assert await taking.take() == ["a", "c"]


@pytest.mark.parametrize(("seconds", "next_"), [(0.5, ["c", "d"]), (1.5, ["early", "c"])])
async def test_what_slips_in_before_the_floor_is_found_within_a_second(
    taking: Taking, outsider: asyncpg.Connection, seconds: float, next_: list[str]
) -> None:
    await outsider.execute(_SLIP_IN, ["early"])
    taking.clock.advance(seconds)
    assert await taking.take() == next_


async def test_what_slips_in_before_the_floor_is_taken_at_once_when_there_are_too_few(
    taking: Taking, outsider: asyncpg.Connection
) -> None:
    await outsider.execute(_SLIP_IN, ["early"])
    async with outsider.transaction():  # somebody else is at the floor just now, and it stays
        await outsider.execute("SELECT FROM tidemill.lanes FOR UPDATE")
        assert sorted(await taking.take(limit=7)) == ["c", "d", "e", "early", "f", "g", "h"]
    assert await taking.take() == []


async def test_what_is_left_before_the_floor_is_told_and_taken_next(
    taking: Taking, outsider: asyncpg.Connection
) -> None:
    await outsider.execute(_SLIP_IN, ["early", "too"])
    assert sorted(await taking.take(limit=7)) == ["c", "d", "e", "early", "f", "g", "h"]
    assert taking.says_more
    assert await taking.take() == ["too"]
    assert not taking.says_more
