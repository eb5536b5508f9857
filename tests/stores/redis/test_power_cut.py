"""`appendfsync everysec`: a power cut takes what was acknowledged last. That is noticed, and nothing is mixed
up: holders of lost claims are refused, and what is sent again with its id is accepted (I5, I6)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.servers.redis import Redis
from tidemill.core.claims import Claimed, ClaimRequest, Settlement, Share
from tidemill.core.job import Group, NewJob
from tidemill.core.outcomes import Answer, Done
from tidemill.core.states import State
from tidemill.stores.redis import RedisStore


async def claim(store: RedisStore, worker: str) -> Claimed:
    request = ClaimRequest(worker=worker, number=1, limit=1, lease=30.0, shares=(Share("q", 1),))
    (job,) = (await store.claim(request)).jobs
    return job


async def settle(store: RedisStore, job: Claimed) -> list[Answer]:
    return list((await store.settle([Settlement(job.id, job.fence, job.claim, Done())])).answers)


def jobs(name: str) -> list[Group]:
    return [Group("q", (NewJob(id=name, task="t", payload=b"1"),))]


def written(server: Redis) -> Path:
    """Every command is in its file; when that is on the disk is another matter. While the disk is busy with
    what came before, the server puts writing off, for two seconds at most."""
    with server.client() as client:
        info: dict[str, Any] = client.info("persistence")
        while info["aof_buffer_length"]:
            info = client.info("persistence")
    (file,) = server.folder.rglob("*.aof")
    return file


async def test_i5_i6_what_a_power_cut_took() -> None:
    """Cut in the middle of a command, as a disk is."""
    with Redis(appendonly="yes", appendfsync="everysec") as server:
        store = await RedisStore(server.url).open()
        await store.insert(jobs("kept"))
        size = written(server).stat().st_size
        lost = await claim(store, "first")
        await store.insert(jobs("taken"))
        file = written(server)
        server.kill()
        assert file.stat().st_size > size + 20
        os.truncate(file, size + 20)
        server.start()
        kept, taken = await store.get(["kept", "taken"])
        assert kept is not None
        assert kept.state is State.READY
        assert taken is None
        again = await claim(store, "second")
        assert again.fence > lost.fence + 1, "noticed: no fence that may have been given is given again"
        assert await settle(store, lost) == [Answer.STALE]
        assert await settle(store, again) == [Answer.OK]
        await store.insert(jobs("taken"))
        assert (await claim(store, "third")).id == "taken"
        assert await store.check() == ()
        await store.close()
