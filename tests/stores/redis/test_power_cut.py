"""With `appendfsync everysec` a power cut loses the last acknowledged writes.

The store notices that: it refuses holders of lost claims, and accepts jobs that are sent again (I5, I6)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.servers.redis import Redis
from tidemill.core.claims import ClaimedJob, ClaimRequest, QueueShare, Settlement
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.outcomes import Success, WriteAnswer
from tidemill.core.states import State
from tidemill.stores.redis import RedisStore


async def claim(store: RedisStore, worker: str) -> ClaimedJob:
    request = ClaimRequest(worker=worker, number=1, limit=1, lease=30.0, shares=(QueueShare("q", 1),))
    (job,) = (await store.claim(request)).jobs
    return job


async def settle(store: RedisStore, job: ClaimedJob) -> list[WriteAnswer]:
    return list((await store.settle([Settlement(job.id, job.fence, job.claim, Success())])).answers)


def jobs(name: str) -> list[JobGroup]:
    return [JobGroup("q", (NewJob(id=name, task="t", payload=b"1"),))]


def wait_for_append(server: Redis) -> Path:
    """Waits until every command is in the append-only file, though perhaps not on the disk yet.

    While the disk is busy, the server delays writing for up to two seconds."""
    with server.client() as client:
        info: dict[str, Any] = client.info("persistence")
        while info["aof_buffer_length"]:
            info = client.info("persistence")
    (file,) = server.folder.rglob("*.aof")
    return file


async def test_i5_i6_claims_lost_in_a_power_cut_are_refused() -> None:
    """The file is cut in the middle of a command."""
    with Redis(appendonly="yes", appendfsync="everysec") as server:
        store = await RedisStore(server.url).open()
        await store.insert(jobs("kept"))
        size = wait_for_append(server).stat().st_size
        lost = await claim(store, "first")
        await store.insert(jobs("taken"))
        file = wait_for_append(server)
        server.kill()
        assert file.stat().st_size > size + 20
        os.truncate(file, size + 20)
        server.start()
        kept, taken = await store.get(["kept", "taken"])
        assert kept is not None
        assert kept.state is State.READY
        assert taken is None
        again = await claim(store, "second")
        assert again.fence > lost.fence + 1, "the restart is noticed, so no fence is given twice"
        assert await settle(store, lost) == [WriteAnswer.STALE]
        assert await settle(store, again) == [WriteAnswer.OK]
        await store.insert(jobs("taken"))
        assert (await claim(store, "third")).id == "taken"
        assert await store.check() == ()
        await store.close()
