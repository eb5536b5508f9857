"""A replica takes over while jobs are enqueued and run. Only writes that the old primary acknowledged and
had not replicated are lost.

Calls end in time, holders of lost claims are refused, and jobs that are sent again with the same ids
exist once (I1, I3, I5, I6, I22)."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.servers.program import HOST
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_sentinel import RedisSentinel
from tidemill import Filter, Job, JobRequest, State, Tidemill
from tidemill.errors import StoreError

AT_LENGTH = "TIDEMILL_CHAOS_SECONDS" in os.environ
ROUNDS = 10 if AT_LENGTH else 1
JOB_COUNT = 30
SLOW, SOON = 2.0, 0.2
"""Seconds that a job runs to outlast a failover, and seconds after which it starts."""
DEADLINE = 5.0

pytestmark = [pytest.mark.alone, pytest.mark.timeout(60 + 30 * ROUNDS)]


class FailoverTraffic:
    """Sends jobs without a pause, and records every accepted request."""

    def __init__(self, url: str) -> None:
        self.app = Tidemill(url)
        self.accepted: dict[str, JobRequest[Any]] = {}
        self.runs: Counter[float] = Counter()
        self.lost: set[str] = set()
        self.longest = 0.0
        self._over = False

        @self.app.task(name="work")
        async def work(number: int, seconds: float = 0.0) -> None:
            self.runs[number] += 1
            await asyncio.sleep(seconds)

        self.work = work
        self.worker = self.app.worker(concurrency=20, lease=DEADLINE, poll=0.5, reclaim_every=0.5)

    async def send(self, request: JobRequest[Any]) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            (handle,) = await self.app.enqueue_many([request])
            self.accepted[handle.id] = request
        except StoreError:
            pass
        self.longest = max(self.longest, clock() - began)

    async def wait_for_progress(self) -> set[str]:
        """Waits until more jobs are accepted; returns them."""
        before = set(self.accepted)
        while len(self.accepted) < len(before) + JOB_COUNT:  # noqa: ASYNC110 - the store recovers by itself, or never
            await asyncio.sleep(0.01)
        return self.accepted.keys() - before

    async def _keep_sending(self) -> None:
        number = 0
        while not self._over:
            number += 1
            await self.send(self.work.job(number))
            await asyncio.sleep(0.002)

    @asynccontextmanager
    async def under_way(self) -> AsyncIterator[None]:
        async with self.app, asyncio.TaskGroup() as group:
            sending = group.create_task(self._keep_sending())
            running = group.create_task(self.worker.run())
            yield
            self._over = True
            await sending
            self.lost = self.accepted.keys() - {job.id for job in await self._jobs()}
            for name in self.lost:
                await self.send(self.accepted[name])
            while {job.state for job in await self._jobs()} != {State.DONE}:  # noqa: ASYNC110 - the store recovers by itself
                await asyncio.sleep(0.05)
            self.worker.stop()
            await running
            await self._check()

    async def _jobs(self) -> Sequence[Job]:
        return (await self.app.store.find(Filter(), limit=1_000_000)).jobs

    async def _check(self) -> None:
        jobs = await self._jobs()
        assert {job.id for job in jobs} == self.accepted.keys()
        assert {(job.state, job.crashes) for job in jobs} == {(State.DONE, 0)}
        assert await self.app.store.check() == ()
        assert self.longest < DEADLINE + 1, "a call was neither answered nor refused in time"


async def _lose_a_primary(watched: RedisSentinel, traffic: FailoverTraffic) -> set[str]:
    """Kills the primary; returns the jobs that may be lost."""
    for number in range(5):
        await traffic.send(traffic.work.using(delay=SOON).job(-1 - number, SLOW))
    copied = set(traffic.accepted)
    with watched.primary.client() as client:
        client.ping()
        assert client.wait(1, 5000) == 1
        # Without its replica, the primary continues for a while: its acknowledged writes are then lost.
        watched.replica.pause()
        client.client_kill_filter(_type="slave")
    begun = sum(traffic.runs[-1 - number] for number in range(5))
    while sum(traffic.runs[-1 - number] for number in range(5)) < begun + 5:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await traffic.wait_for_progress()
    watched.primary.kill()
    watched.replica.resume()
    await asyncio.to_thread(watched.fail_over)
    risked = traffic.accepted.keys() - copied
    await traffic.wait_for_progress()
    return risked


async def test_sentinels_fail_over_under_load() -> None:
    with RedisSentinel(sentinels=3 if AT_LENGTH else 1) as watched:
        sentinels = ",".join(f"{HOST}:{sentinel.port}" for sentinel in watched.sentinels)
        traffic = FailoverTraffic(f"redis+sentinel://{sentinels}/{watched.name}")
        risked: set[str] = set()
        async with asyncio.timeout(30 + 20 * ROUNDS), traffic.under_way():
            for number in range(ROUNDS):
                await traffic.wait_for_progress()
                risked |= await _lose_a_primary(watched, traffic)
                if number + 1 < ROUNDS:
                    await asyncio.to_thread(watched.come_back)
    stats = traffic.worker.stats
    print(f"{len(traffic.accepted)} accepted, {len(traffic.lost)} lost in {ROUNDS} failovers, {stats}")
    assert traffic.lost
    assert traffic.lost <= risked
    assert stats.stale + stats.gone + stats.lost > 0, "who held a lost claim was not refused"


if AT_LENGTH:  # four servers, and a quarter of a minute

    async def test_a_node_of_a_cluster_is_lost_under_load() -> None:
        """The other nodes promote its replica; the URL names a node that stays."""
        with RedisCluster() as cluster:
            owner = cluster.node_of("{load}:")
            stays = next(node for node in cluster.nodes if node is not owner)
            await asyncio.to_thread(cluster.add_replica, owner)
            traffic = FailoverTraffic(f"redis+cluster://{HOST}:{stays.port}?prefix=load")
            async with asyncio.timeout(60), traffic.under_way():
                copied = await traffic.wait_for_progress()
                with owner.client() as client:
                    client.ping()
                    assert client.wait(1, 5000) == 1
                owner.kill()
                await traffic.wait_for_progress()
        assert not traffic.lost & copied
