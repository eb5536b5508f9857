"""The queries of a page read a limited number of index entries (R3, R8, R11). The server counts them."""

from __future__ import annotations

import asyncpg
import pytest

from tests.stores.page_queries import LIMIT, PAGE_FILTERS, SCAN_LIMIT, fill
from tests.stores.postgres.test_query_plans import analyse, counted
from tidemill.core.states import State
from tidemill.stores.postgres import PostgresStore, find, reader

JOBS = 3000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "MAX_NEWEST_JOBS", SCAN_LIMIT)
    monkeypatch.setattr(find, "MAX_COLLECTED_JOBS", 500)
    monkeypatch.setattr(find, "MAX_COLLECTED_ROWS", 100)


async def test_r3_r8_r11_no_table_is_read_whole(postgres_url: str) -> None:
    """Each search reads the newest jobs first, then collects seqs or finds that there are too many."""
    store = await PostgresStore(postgres_url).open()
    await fill(store, JOBS)
    await store.close()
    await analyse(postgres_url, emptied=False)
    before = await counted(postgres_url)
    store = await store.open()
    for wanted in PAGE_FILTERS.values():
        await store.find(wanted, LIMIT, None, SCAN_LIMIT)
    await store.counts()
    await store.backlog("busy")
    await store.workers()
    await store.close()
    after = await counted(postgres_url)
    for table in ("jobs", "ready"):
        assert after.scans[table] == before.scans[table], "the table was read whole"
    read = after.entries["jobs"] - before.entries["jobs"]
    assert read < len(PAGE_FILTERS) * 1000, "each may read a few hundred, however many there are"


async def test_r3_counts_read_neither_jobs_nor_ready(postgres_url: str) -> None:
    store = await PostgresStore(postgres_url).open()
    await fill(store, JOBS)
    await store.close()
    before = await counted(postgres_url)
    store = await store.open()
    assert sum(sum(states.values()) for states in (await store.counts()).values()) == 2 * JOBS
    await store.close()
    after = await counted(postgres_url)
    for table in ("jobs", "ready"):
        assert (after.scans[table], after.entries[table]) == (before.scans[table], before.entries[table])


async def test_r3_many_count_rows_are_compacted_by_a_reader(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await PostgresStore(postgres_url).open()
    await fill(store, JOBS)
    expected = {"old": {State.READY: JOBS - 30, State.FAILED: 30}, "busy": {State.READY: JOBS}}
    assert await store.counts() == expected
    connection = await asyncpg.connect(postgres_url)
    many = await connection.fetchval("SELECT count(*) FROM tidemill.counts")
    monkeypatch.setattr(reader, "MAX_COUNT_ROWS", 3)
    assert await store.counts() == expected
    few = await connection.fetchval("SELECT count(*) FROM tidemill.counts")
    assert (few, many > few) == (3, True)
    assert await store.counts() == expected
    await connection.execute("UPDATE tidemill.counts SET jobs = jobs + 1 WHERE state = 'failed'")
    assert await store.check() == ("queue 'old' counts 31 failed jobs but has 30",)
    await connection.close()
    await store.close()
