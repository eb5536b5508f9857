"""The cost of verbs does not depend on the server's statistics.

A session plans a statement once. A plan made while a table was empty, or after an ANALYZE of it, must
work for a full one: statements that scan a table or index fell from 50 000 to 38 jobs a second in
trials. The test checks the server's read counters, not the plans."""

from __future__ import annotations

from typing import Any

import asyncpg
import msgspec
import pytest

from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob, ClaimRequest, Heartbeat, HeldJob, QueueShare, Settlement
from tidemill.core.filters import Filter
from tidemill.core.jobs import Error, JobGroup, NewJob
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import RetryLater, Success
from tidemill.core.queues import QueueSettings, Retention
from tidemill.stores.postgres import PostgresStore

JOBS, AT_ONCE = 2000, 50
MANY = """
INSERT INTO tidemill.jobs (seq, id, queue, task, payload, state, priority, created, due)
SELECT nextval('tidemill.job_seqs'), 'many' || n, 'q', 't', '1', 'ready', 5, 1, 1
FROM generate_series(1, 150000) AS n;
INSERT INTO tidemill.ready (queue, lane, priority, due, seq, id, fence)
SELECT queue, lane, priority, due, seq, id, fence FROM tidemill.jobs WHERE id LIKE 'many%'
"""
AGAIN = RetryLater(60.0, Error("ValueError", "oops"))


def jobs(name: str, count: int, **options: Any) -> JobGroup:
    return JobGroup(
        "q", tuple(NewJob(id=f"{name}{n}", task="t", payload=b"1", **options) for n in range(count))
    )


def keyed(name: str, count: int) -> JobGroup:
    new = (NewJob(id=f"{name}{n}", task="t", payload=b"1", key=f"key{n}") for n in range(count))
    return JobGroup("q", tuple(new))


class Worker:
    def __init__(self, store: Store) -> None:
        self._store, self._number = store, 0

    async def take(self) -> list[ClaimedJob]:
        return (await self._store.claim(self._request())).jobs

    async def drain(self, count: int) -> int:
        """Works like a worker: settles and claims in one round trip, with heartbeats between."""
        held, done = await self.take(), 0
        while held and done < count:
            await self._store.extend(
                Heartbeat(
                    worker="w",
                    received=self._number,
                    lease=30.0,
                    held=tuple(HeldJob(job=job.id, fence=job.fence, claim=job.claim) for job in held),
                )
            )
            outcomes = [AGAIN if done and not n else Success() for n in range(len(held))]
            settled = await self._store.settle(
                [
                    Settlement(job.id, job.fence, job.claim, outcome)
                    for job, outcome in zip(held, outcomes, strict=True)
                ],
                self._request(),
            )
            done += len(held)
            assert settled.claims is not None
            held = settled.claims.jobs
        return done

    def _request(self) -> ClaimRequest:
        self._number += 1
        return ClaimRequest(
            worker="w", number=self._number, shares=(QueueShare("q", AT_ONCE),), limit=AT_ONCE, lease=30.0
        )


async def analyse(url: str, *, emptied: bool) -> None:
    connection = await asyncpg.connect(url)
    try:
        if emptied:
            await connection.execute("DELETE FROM tidemill.jobs")
        for table in (
            *("jobs", "ready", "claims", "lanes", "queues", "workers"),
            *("known_ids", "reservations", "blocks", "documents", "worklist"),
        ):
            await connection.execute(f"VACUUM (ANALYZE) tidemill.{table}")
    finally:
        await connection.close()


class Counts(msgspec.Struct):
    """Counters of a table: `scans` of the whole table, `entries` read from all its indexes."""

    scans: dict[str, int]
    entries: dict[str, int]


async def counted(url: str) -> Counts:
    """Returns the counters. Sessions report their reads when they end."""
    connection = await asyncpg.connect(url)
    try:
        scans = await connection.fetch("SELECT relname, seq_scan FROM pg_stat_user_tables")
        entries = await connection.fetch(
            "SELECT relname, sum(idx_tup_read)::bigint FROM pg_stat_user_indexes GROUP BY 1"
        )
    finally:
        await connection.close()
    return Counts({name: count or 0 for name, count in scans}, {name: count or 0 for name, count in entries})


@pytest.mark.parametrize("analysed", ["empty", "full"])
async def test_plain_jobs_are_found_by_index_whenever_it_was_analysed(
    postgres_url: str, analysed: str
) -> None:
    store = await PostgresStore(postgres_url).open()
    await store.insert([jobs("first", 2)])
    worker = Worker(store)
    assert await worker.drain(2) == 2
    if analysed == "empty":
        await analyse(postgres_url, emptied=True)
    for round_ in range(8):  # all cached plans are made by now
        await store.insert([jobs(f"early{round_}-", 3)])
        await worker.drain(3)
    await store.insert([jobs("many", JOBS)])
    if analysed == "full":
        await analyse(postgres_url, emptied=False)
    await store.close()
    before = await counted(postgres_url)
    store = await store.open()
    assert await worker.drain(JOBS // 2) >= JOBS // 2
    for n in range(20):
        await store.insert([jobs(f"lone{n}", 1)])
    await store.close()
    after = await counted(postgres_url)
    for table in ("jobs", "ready"):
        assert after.scans[table] == before.scans[table], "the table was read whole"
        # Each job is read by its claim, its heartbeat (three times) and its settlement; dead entries are
        # read again.
        assert after.entries[table] - before.entries[table] < 12 * JOBS


async def test_many_ready_jobs_are_not_sorted_for_a_few_claimed_ones(postgres_url: str) -> None:
    """A server without statistics assumes that few rows have to be sorted."""
    store = await PostgresStore(postgres_url).open()
    await store.insert([jobs("first", 1), keyed("slow", 1)])
    await store.close()
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(MANY)
    await connection.close()
    before = await counted(postgres_url)
    store = await store.open()
    worker = Worker(store)
    assert len(await worker.take()) == AT_ONCE
    await store.amend(Filter(ids=("slow0",)), CancelJobs())
    assert len(await worker.take()) == AT_ONCE
    await store.close()
    after = await counted(postgres_url)
    assert after.entries["ready"] - before.entries["ready"] < 10 * AT_ONCE


@pytest.mark.parametrize("analysed", ["empty", "full"])
async def test_lanes_are_found_by_index_whenever_it_was_analysed(postgres_url: str, analysed: str) -> None:
    store = await PostgresStore(postgres_url).open()
    await store.insert([jobs("first", 1)])
    if analysed == "empty":
        await analyse(postgres_url, emptied=False)
    worker = Worker(store)
    for round_ in range(8):
        await store.insert([keyed(f"early{round_}-", 2)])
        await worker.drain(2)
    for part in range(4):
        await store.insert([keyed(f"many{part}-", JOBS // 4)])
    if analysed == "full":
        await analyse(postgres_url, emptied=False)
    await store.close()
    before = await counted(postgres_url)
    store = await store.open()
    assert await worker.drain(3 * AT_ONCE) >= 3 * AT_ONCE
    await store.close()
    after = await counted(postgres_url)
    for table in ("jobs", "ready", "lanes"):
        assert after.scans[table] == before.scans[table]
        assert after.entries[table] - before.entries[table] < 30 * JOBS, table


async def test_j80_pruning_reads_only_the_jobs_it_deletes(postgres_url: str) -> None:
    store = await PostgresStore(postgres_url).open()
    await store.declare({"q": QueueSettings(keep_done=Retention(count=JOBS - 100))})
    worker = Worker(store)
    await store.insert([jobs("many", JOBS)])
    assert await worker.drain(JOBS) == JOBS
    await store.close()
    before = await counted(postgres_url)
    store = await store.open()
    assert (await store.prune(20)).pruned == 20
    await store.close()
    after = await counted(postgres_url)
    assert after.entries["jobs"] - before.entries["jobs"] < JOBS // 4
