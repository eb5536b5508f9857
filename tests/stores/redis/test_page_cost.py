"""The cost of a page does not depend on the number of jobs (R3, R4, R8, R11): the tests count commands."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.servers.redis import Redis
from tests.stores.page_queries import LIMIT, PAGE_FILTERS, SCAN_LIMIT, fill
from tests.stores.redis.test_scripts import CommandCounter
from tidemill.contract.reader import QueueMinute
from tidemill.core.filters import Filter
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.operator_changes import CancelJobs
from tidemill.stores.redis import RedisStore, find, queues
from tidemill.stores.redis import find as redis_find
from tidemill.testing.clocks import ManualClock

JOBS = 4000


@pytest.fixture
async def store(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RedisStore]:
    monkeypatch.setattr(find, "MAX_NEWEST_JOBS", SCAN_LIMIT)
    monkeypatch.setattr(redis_find, "MAX_COLLECTED_JOBS", 500)
    opened = await RedisStore(redis_url).open()
    await fill(opened, JOBS)
    yield opened
    await opened.close()


async def test_r11_no_page_reads_more_records_than_the_scan_limit(
    store: RedisStore, redis_server: Redis
) -> None:
    read: dict[str, dict[str, int]] = {}
    for name, wanted in PAGE_FILTERS.items():
        commands = CommandCounter(redis_server)
        await store.find(wanted, LIMIT, None, SCAN_LIMIT)
        read[name] = commands.run()
    # The search examines the newest jobs first, then the members of an index.
    dear = {name: found for name, found in read.items() if found.get("hget", 0) > 2 * SCAN_LIMIT}
    assert not dear
    # Ten skipped ids count as one examined job.
    pages = {
        name: found["hgetall"]
        for name, found in read.items()
        if found.get("hgetall", 0) > 10 * SCAN_LIMIT / 100 + 5
    }
    assert not pages


async def test_r3_r8_counts_and_backlogs_read_no_record(store: RedisStore, redis_server: Redis) -> None:
    commands = CommandCounter(redis_server)
    await store.counts()
    await store.backlog("busy")
    await store.workers()
    found = commands.run()
    assert sum(found.values()) < 40, found


async def test_r4_a_day_of_minutes_is_read_by_name(redis_url: str, redis_server: Redis) -> None:
    """The same hash holds a week of minutes."""
    clock = ManualClock()
    store = await RedisStore(redis_url, clock=clock).open()
    minutes: list[QueueMinute] = []
    for _ in range(4):
        clock.advance(2 * 86_400.0)
        name = f"{clock.wall()}"
        await _end(store, name)
        minutes.append(QueueMinute(clock.wall() // 60 * 60, 0, 0, 1, 0, 0))
    assert await store.history("q", minutes[0].at) == minutes, "for weeks the whole hash is read"
    commands = CommandCounter(redis_server)
    assert await store.history("q", clock.wall() - 86_400.0) == minutes[-1:]
    found = commands.run()
    assert "hscan" not in found
    assert found["hmget"] == 3, "five hundred minutes each"
    assert queues.MAX_MINUTES_BY_NAME < 8 * 1440
    await store.close()


async def _end(store: RedisStore, name: str) -> None:
    await store.insert([JobGroup("q", (NewJob(id=name, task="t", payload=b"1"),))])
    await store.amend(Filter(ids=(name,)), CancelJobs())
