"""Documents: flows marked by the fast path, locks, and the rows that queries read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.stores.postgres.test_query_plans import counted
from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob, ClaimRequest, QueueShare, Settlement
from tidemill.core.documents import Advance, DocumentJob, DocumentKind, DocumentUpdate
from tidemill.core.filters import Filter
from tidemill.core.jobs import FlowPosition, NewJob
from tidemill.core.outcomes import Success
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.stores.postgres import PostgresStore

_SETTLE = """
SELECT marked FROM tidemill.settle_plain(NULL, NULL, NULL, $1, ARRAY[$2::bigint], ARRAY[$3::bigint],
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
        DocumentJob("q", NewJob(id=f"{flow}/{n}", task="t", payload=b"1", flow=FlowPosition(flow, "step", n)))
        for n in range(steps)
    )
    then = DocumentUpdate(name="dub", state="done" if more else "running", record=b"{}", **more)
    return Advance(kind=DocumentKind.FLOW, id=flow, expected=expected, next=then, jobs=jobs, taken=taken)


async def take(store: Store, number: int = 1, limit: int = 5) -> list[ClaimedJob]:
    request = ClaimRequest(
        worker="w", number=number, shares=(QueueShare("q", limit),), limit=limit, lease=30.0
    )
    return (await store.claim(request)).jobs


def done(*jobs: ClaimedJob) -> list[Settlement]:
    return [Settlement(job.id, job.fence, job.claim, Success()) for job in jobs]


async def ends(store: Store) -> list[tuple[str, State | None]]:
    return [
        (end.job, end.state)
        for one in (await store.worklist(DocumentKind.FLOW)).work_items
        for end in one.changes
    ]


async def test_f10_the_fast_path_claims_flow_jobs_and_marks_their_flow(
    store: Store, outsider: asyncpg.Connection
) -> None:
    await store.advance([going("f", 0, 2)])
    jobs = await take(store)
    assert [job.flow for job in jobs] == [FlowPosition("f", "step", 0), FlowPosition("f", "step", 1)]
    assert await outsider.fetchval("SELECT open_jobs FROM tidemill.claims") == 2
    assert await outsider.fetchval(_SETTLE, [jobs[0].id], jobs[0].fence, jobs[0].claim)
    assert await ends(store) == [("f/0", State.DONE)]
    await store.settle(done(jobs[1]))
    assert await ends(store) == [("f/0", State.DONE), ("f/1", State.DONE)]


async def test_f10_deleting_a_flow_does_not_block_settlements(store: Store) -> None:
    """Settlements of one claim, ending and pruned flows, and readers, all at once."""
    flows = [f"f{n}" for n in range(40)]
    await store.advance([going(flow, 0, STEPS) for flow in flows])
    jobs = await take(store, limit=1000)
    assert len(jobs) == STEPS * len(flows)

    async def settle(some: list[ClaimedJob]) -> None:
        for job in some:
            await store.settle(done(job))

    async def leave(some: list[str]) -> None:
        for flow in some:
            await store.advance([going(flow, 1, keep=0.0)])
            await store.worklist(DocumentKind.FLOW)
            await store.prune()

    parts = [jobs[at::4] for at in range(4)]
    await asyncio.gather(*map(settle, parts), leave(flows[::4]), leave(flows[2::4]))
    while (await store.prune()).pruned:
        pass
    left = {job.id.split("/")[0] for job in (await store.find(Filter(), 1000)).jobs}
    assert left == set(flows[1::2])
    assert {one.document.id for one in (await store.worklist(DocumentKind.FLOW)).work_items} == set(
        flows[1::2]
    )


async def test_j83_pruning_and_the_worklist_read_only_the_rows_they_need(postgres_url: str) -> None:
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
    assert len((await store.worklist(DocumentKind.FLOW, 9, ["f9"])).work_items) == 1
    assert (await store.documents(DocumentKind.FLOW, ["f7", "f9"]))[0] is None
    assert len((await store.find_documents(DocumentKind.FLOW, states=["running"], limit=5)).documents) == 5
    assert len((await store.find_documents(DocumentKind.FLOW, name="dub", limit=5)).documents) == 5
    assert (await store.backlog("q")).last_ended is not None
    await store.close()
    after = await counted(postgres_url)
    for table, most in (("jobs", 40 * STEPS), ("documents", 60), ("worklist", 40)):
        assert after.scans[table] == before.scans[table], table
        assert after.entries[table] - before.entries[table] < most, table
