"""Flows and schedules: what the hot path notes of them, who waits for whom, and what is read for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.stores.postgres.test_plans import counted
from tidemill.contract.store import Store
from tidemill.core.claims import Claimed, ClaimRequest, Settlement, Share
from tidemill.core.courses import Advance, Kind, Made, Next
from tidemill.core.filters import Filter
from tidemill.core.flow_jobs import InFlow
from tidemill.core.job import NewJob
from tidemill.core.outcomes import Done
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.stores.postgres import PostgresStore

_SETTLE = """
SELECT stirred FROM tidemill.settle_plain(NULL, NULL, NULL, $1, ARRAY[$2::bigint], ARRAY[$3::bigint],
    '{done}', '{}', '{}', '{}', '{}', '{}')
"""
FLOWS, STEPS = 400, 3


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


def going(
    flow: str, expected: int = 0, steps: int = 0, taken: tuple[int, ...] = (), **more: float
) -> Advance:
    jobs = tuple(
        Made("q", NewJob(id=f"{flow}/{n}", task="t", payload=b"1", flow=InFlow(flow, "step", n)))
        for n in range(steps)
    )
    then = Next(name="dub", state="done" if more else "running", record=b"{}", **more)
    return Advance(kind=Kind.FLOW, id=flow, expected=expected, next=then, jobs=jobs, taken=taken)


async def take(store: Store, number: int = 1, limit: int = 5) -> list[Claimed]:
    request = ClaimRequest(worker="w", number=number, shares=(Share("q", limit),), limit=limit, lease=30.0)
    return (await store.claim(request)).jobs


def done(*jobs: Claimed) -> list[Settlement]:
    return [Settlement(job.id, job.fence, job.claim, Done()) for job in jobs]


async def ends(store: Store) -> list[tuple[str, State | None]]:
    return [(end.job, end.state) for one in (await store.agenda(Kind.FLOW)).stirred for end in one.ends]


async def test_f10_jobs_of_flows_are_claimed_together_and_their_ends_noted_by_the_hot_path(
    store: Store, outsider: asyncpg.Connection
) -> None:
    await store.advance([going("f", 0, 2)])
    jobs = await take(store)
    assert [job.flow for job in jobs] == [InFlow("f", "step", 0), InFlow("f", "step", 1)]
    assert await outsider.fetchval("SELECT open FROM tidemill.claims") == 2
    assert await outsider.fetchval(_SETTLE, [jobs[0].id], jobs[0].fence, jobs[0].claim)
    assert await ends(store) == [("f/0", State.DONE)]
    await store.settle(done(jobs[1]))
    assert await ends(store) == [("f/0", State.DONE), ("f/1", State.DONE)]


async def test_f10_flows_that_go_while_their_jobs_end_hold_nobody_up(store: Store) -> None:
    """Settlements of one claim, flows that end and are pruned, and readers, all at once."""
    flows = [f"f{n}" for n in range(40)]
    await store.advance([going(flow, 0, STEPS) for flow in flows])
    jobs = await take(store, limit=1000)
    assert len(jobs) == STEPS * len(flows)

    async def settle(some: list[Claimed]) -> None:
        for job in some:
            await store.settle(done(job))

    async def leave(some: list[str]) -> None:
        for flow in some:
            await store.advance([going(flow, 1, keep=0.0)])
            await store.agenda(Kind.FLOW)
            await store.prune()

    parts = [jobs[at::4] for at in range(4)]
    await asyncio.gather(*map(settle, parts), leave(flows[::4]), leave(flows[2::4]))
    while (await store.prune()).pruned:
        pass
    left = {job.id.split("/")[0] for job in (await store.find(Filter(), 1000)).jobs}
    assert left == set(flows[1::2])
    assert {one.course.id for one in (await store.agenda(Kind.FLOW)).stirred} == set(flows[1::2])


async def test_j83_what_pruning_and_looking_read_depends_on_who_is_meant(postgres_url: str) -> None:
    store = await PostgresStore(postgres_url).open()
    await store.declare({"q": QueueSettings(keep_done=Retention(count=1))})
    for start in range(0, FLOWS, 100):
        await store.advance([going(f"f{n}", 0, STEPS) for n in range(start, start + 100)])
    jobs = await take(store, limit=FLOWS * STEPS)
    await store.settle(done(*jobs))
    await store.advance([going("f7", 1, keep=0.0)])
    await store.close()
    before = await counted(postgres_url)
    store = await store.open()
    assert (await store.prune()).pruned == STEPS + 1
    assert len((await store.find(Filter(flow="f9"))).jobs) == STEPS
    assert len((await store.agenda(Kind.FLOW, 9, ["f9"])).stirred) == 1
    assert (await store.courses(Kind.FLOW, ["f7", "f9"]))[0] is None
    assert len((await store.find_courses(Kind.FLOW, states=["running"], limit=5)).courses) == 5
    assert len((await store.find_courses(Kind.FLOW, name="dub", limit=5)).courses) == 5
    assert (await store.backlog("q")).last_ended is not None
    await store.close()
    after = await counted(postgres_url)
    for table, most in (("jobs", 40 * STEPS), ("courses", 60), ("stirs", 40)):
        assert after.scans[table] == before.scans[table], table
        assert after.entries[table] - before.entries[table] < most, table
