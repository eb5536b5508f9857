"""Arrivals that other programs write to the stream, as `redis-cli XADD` does (J20, J21)."""

from __future__ import annotations

from redis import Redis

from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.stores.redis import RedisStore
from tidemill.tasks.definition import make_task_definition
from tidemill.worker.admitter import Admitter


async def add(number: int) -> int:
    return number


async def test_j20_entries_without_an_id_are_separate_jobs(redis_url: str) -> None:
    """Two arrivals without an id would otherwise be one job, and the second would be lost."""
    store = await RedisStore(redis_url).open()
    try:
        with Redis.from_url(redis_url) as server:
            for payload in ('{"number": 5}', '{"number": 5}', "{}"):
                server.xadd("{tidemill}:arrivals", {"task": "add", "payload": payload})
        await Admitter(store, {"add": make_task_definition(add, name="add")}).admit()
        jobs = (await store.find(Filter())).jobs
        assert [job.state for job in jobs] == [State.FAILED, State.READY, State.READY]
        assert len({job.id for job in jobs} - {""}) == len(jobs)
        assert await store.arrivals(9) == []
    finally:
        await store.close()
