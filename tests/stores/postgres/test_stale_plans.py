"""Plans made while a table was small also work when it is large.

Sessions last for days, and the server plans again only after an ANALYZE: a sudden load is handled with
plans for few jobs for a minute or more. The test counts the index blocks that verbs read in the same
sessions that made the plans. The server counts for all sessions together, so no other session may use
these tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from tests.stores.postgres.test_documents import done, going
from tests.stores.postgres.test_query_plans import analyse
from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob, ClaimRequest, Heartbeat, HeldJob, QueueShare, Settlement
from tidemill.core.documents import DocumentKind
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error, JobGroup, NewJob
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import RetryLater
from tidemill.core.states import State
from tidemill.core.unique_keys import Unique
from tidemill.stores.postgres import PostgresStore

RUSH = """
INSERT INTO tidemill.documents (kind, id, name, state, created, revision, record)
SELECT 'flow', 'many' || n, 'dub', 'running', n, 1, '{}' FROM generate_series(1, 20000) AS n;
INSERT INTO tidemill.worklist (kind, document, job)
SELECT 'flow', 'many' || n, '' FROM generate_series(1, 20000) AS n;
INSERT INTO tidemill.jobs
    (seq, id, queue, task, payload, state, priority, created, due, finished, attempts, flow, in_flow)
SELECT nextval('tidemill.job_seqs'), 'many' || n || '/step/0', 'q', 't', '1', 'done', 5, 1, 1, 2, 1,
    'many' || n, '{}'
FROM generate_series(1, 20000) AS n;
INSERT INTO tidemill.queues (name, declared, fast_insert, fast_claim, wakes_on_end)
VALUES ('other', '{}', true, true, false);
INSERT INTO tidemill.lanes (queue, lane, pool_set, served)
SELECT 'other', 'many' || n, '', 0 FROM generate_series(1, 20000) AS n
"""
TABLES = ("jobs", "lanes", "documents", "worklist")
FEW = 60
"""Index blocks of a table that a verb about a few rows may read; a single index may read twice as many."""


class Worker:
    def __init__(self, store: Store) -> None:
        self.store, self._number = store, 0
        self.held: list[ClaimedJob] = []

    async def take(self) -> None:
        self._number += 1
        share = (QueueShare("q", 10),)
        request = ClaimRequest(worker="w", number=self._number, shares=share, limit=10, lease=30.0)
        self.held = (await self.store.claim(request)).jobs

    async def beat(self, *jobs: ClaimedJob) -> None:
        held = tuple(HeldJob(job=job.id, fence=job.fence, claim=job.claim, note="goes on") for job in jobs)
        await self.store.extend(Heartbeat(worker="w", received=self._number, lease=30.0, held=held))


async def insert(store: Store, name: str, **options: Any) -> None:
    await store.insert([JobGroup("q", (NewJob(id=name, task="t", payload=b"1", **options),))])


async def verbs(worker: Worker, round_: str) -> AsyncIterator[tuple[str, Callable[[], Awaitable[Any]]]]:
    """Yields each verb with its name; the caller runs it."""
    store, flow = worker.store, f"flow{round_}"
    yield "advance", lambda: store.advance([going(flow, 0, 3)])
    yield "claim", worker.take
    one, two, three = worker.held
    yield "extend, of a bulk claim", lambda: worker.beat(one, two, three)
    yield "extend", lambda: worker.beat(one, two, three)
    yield "settle", lambda: store.settle(done(one))
    again = Settlement(two.id, two.fence, two.claim, RetryLater(0.0, Error("ValueError", "oops")))
    yield "settle, not as done", lambda: store.settle([again])
    yield "amend", lambda: store.amend(Filter(flow=flow, states=(State.READY,)), CancelJobs())
    yield "reclaim", lambda: store.reclaim(["w"])
    await worker.take()
    await store.settle(done(*worker.held))
    yield "worklist", lambda: store.worklist(DocumentKind.FLOW, 9, [flow])
    ends = (await store.worklist(DocumentKind.FLOW, 9, [flow])).work_items[0].changes
    taken = going(flow, 1, keep=0.0, taken=tuple(end.number for end in ends))
    yield "advance, to the end", lambda: store.advance([taken])
    yield "prune", store.prune
    yield "insert, with a unique key", lambda: insert(store, f"unique{round_}", unique=Unique(key="k"))
    await worker.take()
    (unique,) = worker.held
    yield "settle, with a unique key", lambda: store.settle(done(unique))


@pytest.fixture
async def outsider(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def blocks(store: PostgresStore, outsider: asyncpg.Connection) -> dict[str, int]:
    for fetch in (store._connection.fetch, outsider.fetch):
        await fetch("SELECT pg_stat_force_next_flush()")
    rows = await outsider.fetch(
        "SELECT relname, sum(idx_blks_read + idx_blks_hit)::bigint FROM pg_statio_user_indexes GROUP BY 1"
    )
    return {name: count or 0 for name, count in rows}


@pytest.mark.parametrize("jobs", [0, 20], ids=["none", "few"])
async def test_plans_made_for_a_small_table_work_for_a_large_one(
    postgres_url: str, outsider: asyncpg.Connection, jobs: int
) -> None:
    store = PostgresStore(f"{postgres_url}?connections=1")
    await store.open()
    for table in TABLES:  # a concurrent vacuum reads its indexes, too
        await outsider.execute(f"ALTER TABLE tidemill.{table} SET (autovacuum_enabled = off)")
    worker = Worker(store)
    for n in range(jobs):
        await insert(store, f"later{n}", delay=90_000.0)
    await analyse(postgres_url, emptied=False)
    for round_ in range(8):  # all cached plans are made by now
        async for _, verb in verbs(worker, str(round_)):
            await verb()
    await outsider.execute(RUSH)
    read: dict[str, dict[str, int]] = {}
    async for name, verb in verbs(worker, "last"):
        before = await blocks(store, outsider)
        await verb()
        after = await blocks(store, outsider)
        counts = {table: after[table] - before[table] for table in TABLES}
        read[name] = {table: count for table, count in counts.items() if count > FEW}
    await store.close()
    assert {name: counts for name, counts in read.items() if counts} == {}
