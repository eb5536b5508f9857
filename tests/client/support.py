"""A worker played by hand, and a store that counts and fails on demand in front of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from tidemill import Tidemill
from tidemill.contract.store import Store
from tidemill.core.claims import Claimed, ClaimRequest, Settlement, Share
from tidemill.core.job import Group
from tidemill.core.outcomes import Done, Outcome
from tidemill.core.queues import Inserted


async def claim(store: Store, queue: str = "default", limit: int = 1, number: int = 1) -> list[Claimed]:
    request = ClaimRequest(
        worker="by hand", number=number, shares=(Share(queue, limit),), limit=limit, lease=30
    )
    return (await store.claim(request)).jobs


async def settle(store: Store, job: Claimed, outcome: Outcome) -> None:
    await store.settle([Settlement(job.id, job.fence, job.claim, outcome)])


async def run_one(app: Tidemill, queue: str = "default") -> None:
    """Claim one job and run its handler."""
    store = await app.client.store()
    (job,) = await claim(store, queue)
    task = app.tasks[job.task]
    args, kwargs = task.payload.decode(job.payload)
    result = task.handler(*args, **kwargs)
    if isinstance(result, Awaitable):
        result = await result
    await settle(store, job, Done(task.result.encode(result)))


class Watched:
    """Delegates everything to a real store. `before` runs in front of every insert and may
    raise or wait; `after` runs behind it, so that raising there loses a reply."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.inserts: list[Sequence[Group]] = []
        self.before: Callable[[], Awaitable[None]] | None = None
        self.after: Callable[[], Awaitable[None]] | None = None
        self.gate: asyncio.Event | None = None

    async def insert(self, groups: Sequence[Group]) -> list[list[Inserted]]:
        self.inserts.append(groups)
        if self.before is not None:
            await self.before()
        answers = await self.store.insert(groups)
        if self.after is not None:
            await self.after()
        return answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def as_store(self) -> Store:
        return cast("Store", self)
