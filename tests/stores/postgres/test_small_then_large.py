"""What a worker planned while there was little does for what comes after.

Sessions last for days, and the server plans anew only when it has analysed a table: a rush is met with the
plans for the few jobs there were before, for a minute or more. So the blocks of indexes that verbs read are
counted in the very sessions that have planned. The server counts for all sessions together, so nobody else
may be at these tables.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from tests.stores.postgres.test_courses import done, going
from tests.stores.postgres.test_plans import analyse
from tidemill.contract.store import Store
from tidemill.core.changes import Cancel
from tidemill.core.claims import Claimed, ClaimRequest, Heartbeat, Held, Settlement, Share
from tidemill.core.courses import Kind
from tidemill.core.filters import Filter
from tidemill.core.job import Error, Group, NewJob
from tidemill.core.outcomes import Retrying
from tidemill.core.states import State
from tidemill.core.uniqueness import Unique
from tidemill.stores.postgres import PostgresStore

RUSH = """
INSERT INTO tidemill.courses (kind, id, name, state, created, revision, record)
SELECT 'flow', 'many' || n, 'dub', 'running', n, 1, '{}' FROM generate_series(1, 20000) AS n;
INSERT INTO tidemill.stirs (kind, course, job)
SELECT 'flow', 'many' || n, '' FROM generate_series(1, 20000) AS n;
INSERT INTO tidemill.jobs
    (seq, id, queue, task, payload, state, priority, created, due, finished, attempts, flow, in_flow)
SELECT nextval('tidemill.places'), 'many' || n || '/step/0', 'q', 't', '1', 'done', 5, 1, 1, 2, 1,
    'many' || n, '{}'
FROM generate_series(1, 20000) AS n;
INSERT INTO tidemill.queues (name, declared, inserts, gives, rings) VALUES ('other', '{}', true, true, false);
INSERT INTO tidemill.lanes (queue, lane, grp, served)
SELECT 'other', 'many' || n, '', 0 FROM generate_series(1, 20000) AS n
"""
TABLES = ("jobs", "lanes", "courses", "stirs")
FEW = 60
"""Blocks that a verb about a few rows may read of all indexes of a table; one alone has twice as many."""


class Worker:
    def __init__(self, store: Store) -> None:
        self.store, self._number = store, 0
        self.held: list[Claimed] = []

    async def take(self) -> None:
        self._number += 1
        share = (Share("q", 10),)
        request = ClaimRequest(worker="w", number=self._number, shares=share, limit=10, lease=30.0)
        self.held = (await self.store.claim(request)).jobs

    async def beat(self, *jobs: Claimed) -> None:
        held = tuple(Held(job=job.id, fence=job.fence, claim=job.claim, note="goes on") for job in jobs)
        await self.store.extend(Heartbeat(worker="w", received=self._number, lease=30.0, held=held))


async def insert(store: Store, name: str, **options: Any) -> None:
    await store.insert([Group("q", (NewJob(id=name, task="t", payload=b"1", **options),))])


async def verbs(worker: Worker, round_: str) -> AsyncIterator[tuple[str, Callable[[], Awaitable[Any]]]]:
    """Each verb with its name: whoever gets it calls it."""
    store, flow = worker.store, f"flow{round_}"
    yield "advance", lambda: store.advance([going(flow, 0, 3)])
    yield "claim", worker.take
    one, two, three = worker.held
    yield "extend, of a folded claim", lambda: worker.beat(one, two, three)
    yield "extend", lambda: worker.beat(one, two, three)
    yield "settle", lambda: store.settle(done(one))
    again = Settlement(two.id, two.fence, two.claim, Retrying(0.0, Error("ValueError", "oops")))
    yield "settle, not as done", lambda: store.settle([again])
    yield "amend", lambda: store.amend(Filter(flow=flow, states=(State.READY,)), Cancel())
    yield "reclaim", lambda: store.reclaim(["w"])
    await worker.take()
    await store.settle(done(*worker.held))
    yield "agenda", lambda: store.agenda(Kind.FLOW, 9, [flow])
    ends = (await store.agenda(Kind.FLOW, 9, [flow])).stirred[0].ends
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
async def test_plans_for_a_small_table_do_for_a_large_one(
    postgres_url: str, outsider: asyncpg.Connection, jobs: int
) -> None:
    store = PostgresStore(f"{postgres_url}?connections=1")
    await store.open()
    for table in TABLES:  # whoever vacuums it meanwhile reads its indexes, too
        await outsider.execute(f"ALTER TABLE tidemill.{table} SET (autovacuum_enabled = off)")
    worker = Worker(store)
    for n in range(jobs):
        await insert(store, f"later{n}", delay=90_000.0)
    await analyse(postgres_url, emptied=False)
    for round_ in range(8):  # whatever is planned for good is planned by now
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
