"""A worker run by hand, and a store that counts and fails on demand in front of a real one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

from tidemill import Tidemill
from tidemill.contract.coordination import WakeupListener, worklist_topic
from tidemill.contract.store import Store
from tidemill.core.claims import ClaimedJob, ClaimRequest, QueueShare, Settlement
from tidemill.core.documents import DocumentKind
from tidemill.core.jobs import JobGroup
from tidemill.core.outcomes import Outcome, Success
from tidemill.core.queues import InsertResult


async def claim(store: Store, queue: str = "default", limit: int = 1, number: int = 1) -> list[ClaimedJob]:
    request = ClaimRequest(
        worker="by hand", number=number, shares=(QueueShare(queue, limit),), limit=limit, lease=30
    )
    return (await store.claim(request)).jobs


async def settle(store: Store, job: ClaimedJob, outcome: Outcome) -> None:
    await store.settle([Settlement(job.id, job.fence, job.claim, outcome)])


async def run_one(app: Tidemill, queue: str = "default", number: int = 1) -> None:
    """Claims one job and runs its handler."""
    store = await app.client.store()
    (job,) = await claim(store, queue, number=number)
    task = app.tasks[job.task]
    args, kwargs = task.payload.decode(job.payload)
    result = task.handler(*args, **kwargs)
    if isinstance(result, Awaitable):
        result = await result
    await settle(store, job, Success(task.result.encode(result)))


class FaultyStore:
    """Delegates everything to a real store.

    `before` runs before every insert and may raise or wait; `after` runs behind it, so raising there
    loses a reply."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.inserts: list[Sequence[JobGroup]] = []
        self.before: Callable[[], Awaitable[None]] | None = None
        self.after: Callable[[], Awaitable[None]] | None = None
        self.gate: asyncio.Event | None = None

    async def insert(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
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


class RecordingStore(FaultyStore):
    """Counts the listeners for jobs, and those that wait. May be called from any thread."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.listeners = self.most = self.waiting = 0
        self.changed = threading.Condition()

    def listen(self, topics: Iterable[str]) -> WakeupListener:
        topics = tuple(topics)
        if worklist_topic(DocumentKind.SCHEDULE) in topics:  # whoever leads
            return self.store.listen(topics)
        self.listeners += 1
        self.most = max(self.most, self.listeners)
        return _RecordingListener(self, self.store.listen(topics))

    def wait_for(self, listeners: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.waiting == listeners, timeout=30)

    def count(self, step: int) -> None:
        with self.changed:
            self.waiting += step
            self.changed.notify_all()


class _RecordingListener:
    def __init__(self, heard: RecordingStore, listener: WakeupListener) -> None:
        self.heard, self.listener = heard, listener
        self.arm, self.disarm = listener.arm, listener.disarm

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the contract's word
        self.heard.count(1)
        try:
            return await self.listener.wait(timeout)
        finally:
            self.heard.count(-1)

    def close(self) -> None:
        self.heard.listeners -= 1
        self.listener.close()
