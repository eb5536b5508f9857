"""What others write into the stream of arrivals, as `redis-cli XADD` does (J20, J21)."""

from __future__ import annotations

from redis import Redis

from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.stores.redis import RedisStore
from tidemill.tasks.definition import define
from tidemill.worker.admitter import Admitter


async def add(number: int) -> int:
    return number


async def test_j20_an_entry_without_an_id_is_a_job_of_its_own(redis_url: str) -> None:
    """Two of them would otherwise be one, and the second be lost."""
    store = await RedisStore(redis_url).open()
    try:
        with Redis.from_url(redis_url) as server:
            for payload in ('{"number": 5}', '{"number": 5}', "{}"):
                server.xadd("{tidemill}:arrivals", {"task": "add", "payload": payload})
        await Admitter(store, {"add": define(add, name="add")}).admit()
        jobs = (await store.find(Filter())).jobs
        assert [job.state for job in jobs] == [State.FAILED, State.READY, State.READY]
        assert len({job.id for job in jobs} - {""}) == len(jobs)
        assert await store.arrivals(9) == []
    finally:
        await store.close()
