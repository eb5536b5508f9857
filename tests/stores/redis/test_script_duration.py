"""No script blocks Redis for more than 20 ms.

The tests limit the words and bytes of each request and reply, which are equal on every machine. They
also measure the CPU time of the server between a request and its reply. Elapsed time would say little,
because the machine runs other tests. Calls run one at a time, so that the CPU time belongs to one of
them. Cold caches still cost something: a scenario that was too slow runs again, and the best try counts.

`make chaos` runs the full size, with TIDEMILL_FAN_OUT=10000."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest
import redis

from tests.servers.redis import Redis
from tidemill import Tidemill
from tidemill.client.request import JobRequest, split_requests
from tidemill.core.claims import ClaimedJob, ClaimRequest, Heartbeat, HeldJob, QueueShare, Settlement
from tidemill.core.filters import Filter
from tidemill.core.jobs import NewJob
from tidemill.core.operator_changes import CancelJobs, DeleteJobs
from tidemill.core.outcomes import Success
from tidemill.core.queues import QueueSettings, Retention
from tidemill.core.states import State
from tidemill.stores.redis import RedisStore
from tidemill.stores.redis.shard import Shard
from tidemill.testing import ManualClock

LONGEST = 0.02
WORDS, BYTES = 1000, 4 * 1024 * 1024
"""Limits of words and bytes for a request and for a reply."""
MORE_WORDS = {"insert": 2100, "extend": 3500, "worklist": 1600, "load": 4500, "commit": 8000}
"""Scripts that do little work per word."""
_NUMBERS = count(1)
TRIES = 4
WIDE = int(os.environ.get("TIDEMILL_FAN_OUT", "1000"))


class ScriptWatch:
    """The most CPU seconds that one run of each script took; `large` lists requests and replies that were
    too large."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._alone = asyncio.Lock()
        self._best: dict[str, float] = {}
        self._longest: dict[str, float] = defaultdict(float)
        self.large: dict[str, tuple[int, int]] = {}

    def used(self) -> float:
        cpu: Any = self._client.info("cpu")
        return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])

    async def measure(self, name: str, call: Awaitable[Any]) -> Any:
        async with self._alone:
            before = self.used()
            answer = await call
            self._longest[name] = max(self._longest[name], self.used() - before)
            return answer

    def weigh(self, name: str, value: Any) -> None:
        words, size = measure_words(value)
        if words > MORE_WORDS.get(name, WORDS) or size > BYTES:
            self.large[name] = max(self.large.get(name, (0, 0)), (words, size))

    async def run_scenario(self, scenario: Callable[[], Awaitable[None]]) -> None:
        for _ in range(TRIES):
            self._longest.clear()
            await scenario()
            for name, seconds in self._longest.items():
                self._best[name] = min(self._best.get(name, seconds), seconds)
            if not self.slow:
                return

    @property
    def slow(self) -> dict[str, float]:
        return {name: seconds for name, seconds in self._best.items() if seconds > LONGEST}


def measure_words(value: Any) -> tuple[int, int]:
    """Returns the number of words and bytes."""
    if isinstance(value, list | tuple):
        weights = [measure_words(one) for one in value]
        return sum(words for words, _ in weights), sum(size for _, size in weights)
    return 1, len(value) if isinstance(value, bytes | str) else 8


@pytest.fixture
def script_watch(redis_server: Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptWatch]:
    with redis_server.client() as client:
        script_watch, run = ScriptWatch(client), Shard.run

        async def measured(shard: Shard, script: Any, *args: Any, **options: Any) -> Any:
            script_watch.weigh(script.name, args)
            answer = await script_watch.measure(script.name, run(shard, script, *args, **options))
            script_watch.weigh(script.name, answer)
            return answer

        monkeypatch.setattr(Shard, "run", measured)
        yield script_watch


class Scenario:
    """Runs every verb that moves many jobs."""

    def __init__(self, store: RedisStore, clock: ManualClock, size: int, *, keyed: bool) -> None:
        self._store, self._clock = store, clock
        self._size, self._keyed = size, keyed

    def _request(self, limit: int) -> ClaimRequest:
        number, shares = next(_NUMBERS), (QueueShare("q", limit),)
        return ClaimRequest(worker="w", number=number, limit=limit, lease=30.0, shares=shares)

    async def insert(self, jobs: int, **options: Any) -> None:
        """Inserts jobs like `enqueue_many`."""
        payload, made = b'"' + b"a" * self._size + b'"', list[JobRequest[Any]]()
        for _ in range(jobs):
            id_ = f"{next(_NUMBERS):032}"
            key = id_ if self._keyed else None
            made.append(JobRequest("q", NewJob(id=id_, task="t", payload=payload, key=key, **options)))
        for chunk in split_requests(made):
            await self._store.insert(chunk.groups)

    async def claim(self, jobs: int) -> list[ClaimedJob]:
        found: list[ClaimedJob] = []
        while len(found) < jobs:
            claims = await self._store.claim(self._request(jobs - len(found)))
            assert claims.jobs
            assert claims.more or len(found) + len(claims.jobs) == jobs
            found += claims.jobs
        return found

    async def settle(self, jobs: Sequence[ClaimedJob], then: int = 0) -> list[ClaimedJob]:
        settlements = [Settlement(job.id, job.fence, job.claim, Success(b"1")) for job in jobs]
        settled = await self._store.settle(settlements, self._request(then) if then else None)
        assert {*settled.answers} == {"ok"}
        return [] if settled.claims is None else settled.claims.jobs

    async def heartbeat(self, jobs: Sequence[ClaimedJob]) -> None:
        held = tuple(HeldJob(job=job.id, fence=job.fence, claim=job.claim) for job in jobs)
        heartbeat = Heartbeat(worker="w", received=0, lease=30.0, held=held)
        assert (await self._store.extend(heartbeat)).lost == ()

    async def run_all_verbs(self, jobs: int) -> None:
        store = self._store
        await store.declare({"q": QueueSettings(keep_done=Retention(count=1))})
        await self.insert(2 * jobs)
        held = await self.claim(jobs)
        await self.heartbeat(held)
        held = await self.settle(held, then=jobs)
        held += await self.claim(jobs - len(held))
        while (await store.prune()).more:
            pass
        assert len((await store.reclaim(["w"])).ready) == jobs
        await store.pause("q")
        await store.resume("q")
        await self.insert(jobs, delay=5.0)
        self._clock.advance(6.0)
        held = await self.claim(jobs)
        everything = Filter(queue="q")
        assert len((await store.amend(everything, CancelJobs("no"), 3 * jobs)).changed) >= 2 * jobs
        while (await store.amend(everything, DeleteJobs(), 1000)).changed:
            pass
        assert await store.counts() == {}


@pytest.mark.parametrize(
    ("jobs", "size", "keyed"),
    [(510, 200, False), (120, 20_000, False), (4, 1_000_000, False), (200, 200, True)],
)
async def test_no_script_blocks_the_server(  # noqa: PLR0917 - the cases
    store: RedisStore, clock: ManualClock, script_watch: ScriptWatch, jobs: int, size: int, keyed: bool
) -> None:
    await script_watch.run_scenario(lambda: Scenario(store, clock, size, keyed=keyed).run_all_verbs(jobs))
    assert (script_watch.large, script_watch.slow) == ({}, {})


async def test_a_heartbeat_of_thousands_of_jobs_takes_several_scripts(
    store: RedisStore, script_watch: ScriptWatch
) -> None:
    """The worker has lost all of them."""
    held = tuple(HeldJob(job=f"{number}", fence=1, claim=1) for number in range(2500))
    lost = (await store.extend(Heartbeat(worker="w", received=0, lease=30.0, held=held))).lost
    assert lost == tuple(one.job for one in held)
    assert script_watch.large == {}


async def test_a_wide_flow_into_a_queue_for_half_of_it(
    redis_url: str, redis_prefix: str, script_watch: ScriptWatch
) -> None:
    """1 → 10 000 → 1 into a queue that takes 5 000, with payloads of 5 kB."""
    app = Tidemill(store=RedisStore(redis_url, prefix=redis_prefix))
    app.queue("studio", max_length=WIDE // 2)
    ran: list[int] = []

    @app.task(queue="studio")
    async def cut(pieces: int) -> list[int]:
        return [*range(pieces)]

    @app.task(queue="studio")
    async def speak(piece: int, voice: str) -> int:
        ran.append(piece)
        return len(voice)

    @app.task(queue="studio")
    async def join(spoken: list[int]) -> int:
        return sum(spoken)

    keys = count()

    async def scenario() -> None:
        ran.clear()
        flow = app.flow("dub", key=str(next(keys)))
        flow.add(join, spoken=flow.map(speak, piece=flow.add(cut, pieces=WIDE), voice="a" * 5000))
        handle = await flow.enqueue()
        await app.worker(until_idle=True, heartbeat_thread=False, isolation=False).run()
        assert await handle.result(timeout=1) == 5000 * WIDE
        assert sorted(ran) == [*range(WIDE)]

    async with app:
        await script_watch.run_scenario(scenario)
        assert State.READY not in (await app.store.counts())["studio"]
    assert (script_watch.large, script_watch.slow) == ({}, {})
