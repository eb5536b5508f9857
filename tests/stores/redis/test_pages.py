"""What a page asks for costs the same however many jobs there are (R3, R4, R8, R11): commands are counted."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.servers.redis import Redis
from tests.stores.questions import LIMIT, LOOKS, SEARCHES, fill
from tests.stores.redis.test_scripts import Commands
from tidemill.contract.reader import Minute
from tidemill.core.changes import Cancel
from tidemill.core.filters import Filter
from tidemill.core.job import Group, NewJob
from tidemill.stores.redis import RedisStore, few, find, queue_views
from tidemill.testing.manual import ManualClock

JOBS = 4000


@pytest.fixture
async def store(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RedisStore]:
    monkeypatch.setattr(find, "NEWEST", LOOKS)
    monkeypatch.setattr(few, "COLLECTED", 500)
    opened = await RedisStore(redis_url).open()
    await fill(opened, JOBS)
    yield opened
    await opened.close()


async def test_r11_no_page_reads_more_records_than_were_to_be_looked_at(
    store: RedisStore, redis_server: Redis
) -> None:
    read: dict[str, dict[str, int]] = {}
    for name, wanted in SEARCHES.items():
        commands = Commands(redis_server)
        await store.find(wanted, LIMIT, None, LOOKS)
        read[name] = commands.run()
    # The newest are looked at first, and then so many of those that an order has.
    dear = {name: found for name, found in read.items() if found.get("hget", 0) > 2 * LOOKS}
    assert not dear
    # Ten ids are passed over for a look.
    pages = {
        name: found["hgetall"]
        for name, found in read.items()
        if found.get("hgetall", 0) > 10 * LOOKS / 100 + 5
    }
    assert not pages


async def test_r3_r8_counts_and_backlogs_read_no_record(store: RedisStore, redis_server: Redis) -> None:
    commands = Commands(redis_server)
    await store.counts()
    await store.backlog("busy")
    await store.workers()
    found = commands.run()
    assert sum(found.values()) < 40, found


async def test_r4_a_day_of_minutes_is_asked_for_by_name(redis_url: str, redis_server: Redis) -> None:
    """A week of them is in the same hash."""
    clock = ManualClock()
    store = await RedisStore(redis_url, clock=clock).open()
    minutes: list[Minute] = []
    for _ in range(4):
        clock.advance(2 * 86_400.0)
        name = f"{clock.wall()}"
        await _end(store, name)
        minutes.append(Minute(clock.wall() // 60 * 60, 0, 0, 1, 0, 0))
    assert await store.history("q", minutes[0].at) == minutes, "of weeks the whole hash is read"
    commands = Commands(redis_server)
    assert await store.history("q", clock.wall() - 86_400.0) == minutes[-1:]
    found = commands.run()
    assert "hscan" not in found
    assert found["hmget"] == 3, "five hundred minutes each"
    assert queue_views.FEW_MINUTES < 8 * 1440
    await store.close()


async def _end(store: RedisStore, name: str) -> None:
    await store.insert([Group("q", (NewJob(id=name, task="t", payload=b"1"),))])
    await store.amend(Filter(ids=(name,)), Cancel())
