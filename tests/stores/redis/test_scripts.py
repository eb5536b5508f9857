"""The cost of scripts, and their reload after the server has flushed them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.servers.redis import Redis
from tidemill.core.claims import ClaimedJob, ClaimRequest, QueueShare, Settlement
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.outcomes import Success
from tidemill.core.states import State
from tidemill.stores.redis import RedisStore
from tidemill.stores.redis.shard import MAX_JOBS_PER_SCRIPT

PAYLOAD = b'{"text":"' + b"a" * 197 + b'"}'


@pytest.fixture
async def store(redis_url: str, redis_prefix: str) -> AsyncIterator[RedisStore]:
    opened = await RedisStore(redis_url, prefix=redis_prefix).open()
    yield opened
    await opened.close()


def group(*numbers: int, **options: Any) -> JobGroup:
    return JobGroup("q", tuple(NewJob(id=f"{n:032x}", task="t", payload=PAYLOAD, **options) for n in numbers))


def request(number: int, limit: int) -> ClaimRequest:
    return ClaimRequest(worker="w", number=number, limit=limit, lease=30.0, shares=(QueueShare("q", limit),))


def done(jobs: list[ClaimedJob]) -> list[Settlement]:
    return [Settlement(job.id, job.fence, job.claim, Success(None)) for job in jobs]


class CommandCounter:
    """Counts the commands that the server has run, inside scripts as well, except its own queries."""

    def __init__(self, server: Redis) -> None:
        self._server = server
        with server.client() as client:
            client.config_resetstat()

    def run(self) -> dict[str, int]:
        with self._server.client() as client:
            stats: dict[str, Any] = client.info("commandstats")
        own = ("info", "config|resetstat", "client|setinfo", "hello", "ping", "quit")
        found = {name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()}
        return {name: calls for name, calls in found.items() if name not in own}


async def test_a_lone_plain_job_takes_ten_commands(store: RedisStore, redis_server: Redis) -> None:
    await store.insert([group(1)])
    commands = CommandCounter(redis_server)
    await store.insert([group(2)])
    found = commands.run()
    assert found.pop("evalsha") == 1
    assert sum(found.values()) <= 10, found


@pytest.mark.parametrize("jobs", [10, MAX_JOBS_PER_SCRIPT])
async def test_many_plain_jobs_take_as_many_commands_as_few(
    store: RedisStore, redis_server: Redis, jobs: int
) -> None:
    """Except for pages of a hundred jobs, and for records, of which one command reads sixteen."""
    await store.insert([group(*range(jobs))])
    held = (await store.claim(request(1, jobs))).jobs
    await store.insert([group(*range(jobs, 2 * jobs))])
    commands = CommandCounter(redis_server)
    await store.settle(done(held), request(2, jobs))
    assert sum(commands.run().values()) <= 45 + 2 * jobs // 16
    commands = CommandCounter(redis_server)
    await store.insert([group(*range(2 * jobs, 3 * jobs))])
    assert sum(commands.run().values()) <= 20 + 3 * jobs // 100


async def test_an_idle_claim_is_one_command(store: RedisStore, redis_server: Redis) -> None:
    await store.insert([group(1)])
    await store.settle(done((await store.claim(request(1, 5))).jobs))
    commands = CommandCounter(redis_server)
    await store.claim(request(2, 5))
    found = commands.run()
    assert found.pop("evalsha") == 1
    assert sum(found.values()) <= 12, found


async def test_a_ready_job_takes_few_bytes(store: RedisStore, redis_server: Redis) -> None:
    """With a payload of 208 bytes: at most 560 bytes of memory on Valkey 8 or newer, 640 on Redis 7.

    Valkey keeps key, expiry and value in one allocation, Redis 7 in three."""

    def used() -> int:
        """Used memory without the replication backlog that another test's replica left behind."""
        with redis_server.client() as client:
            memory = client.info("memory")
            return int(memory["used_memory"] - memory["mem_replication_backlog"])

    with redis_server.client() as client:
        allowed = 560 if "valkey_version" in client.info("server") else 640

    await store.insert([group(*range(500))])
    before, jobs = used(), 20_000
    for start in range(500, 500 + jobs, 500):
        await store.insert([group(*range(start, start + 500))])
    assert (used() - before) / jobs <= allowed


async def test_scripts_flushed_during_a_verb_are_loaded_again(store: RedisStore, redis_server: Redis) -> None:
    for number in range(10):
        await store.insert([group(2 * number, 2 * number + 1), group(100 + number, key="k")])
        with redis_server.client() as client:
            client.script_flush()
        held = (await store.claim(request(number + 1, 10))).jobs
        with redis_server.client() as client:
            client.script_flush()
        await store.settle(done(held))
    assert await store.counts() == {"q": {State.DONE: 30}}
