"""One session per loop: opened when needed, closed once, and informed of queues declared late."""

from __future__ import annotations

import asyncio

from tests.client.support import FaultyStore
from tidemill import Limit, QueueFull, State, Tidemill
from tidemill.stores.memory import MemoryStore


class SlowClosingStore(FaultyStore):
    """A store that takes until `open_gate` to close, and does not answer afterwards."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.closing, self.open_gate, self.is_open = asyncio.Event(), asyncio.Event(), False
        self.before = self._refuse_when_closed

    async def open(self) -> None:
        self.is_open = True
        await self.store.open()

    async def close(self) -> None:
        self.closing.set()
        await self.open_gate.wait()
        self.is_open = False

    async def _refuse_when_closed(self) -> None:
        assert self.is_open


async def test_an_enqueue_while_closing_opens_the_store_again() -> None:
    store = SlowClosingStore()
    app = Tidemill(store=store.as_store())

    @app.task
    def work() -> None: ...

    await work.enqueue()
    closing = asyncio.create_task(app.close())
    await store.closing.wait()
    during = asyncio.create_task(work.enqueue())
    await asyncio.sleep(0)
    store.open_gate.set()
    await asyncio.gather(closing, during)
    await work.enqueue()
    assert store.is_open
    assert (await app.store.counts())["default"][State.READY] == 3


async def test_a_queue_declared_late_is_declared_by_the_next_use(app: Tidemill) -> None:
    @app.task(queue="late")
    def work() -> None: ...

    app.queue("late", max_length=1)
    assert (await work.enqueue()).existing is False
    refused = await asyncio.gather(work.enqueue(), return_exceptions=True)
    assert isinstance(refused[0], QueueFull)
    (info,) = await app.store.queues()
    assert info.declared.max_length == 1


async def test_an_enqueue_after_a_read_declares_the_queues(url: str) -> None:
    """A plan or a health check declares nothing, and does not keep a later enqueue from declaring."""
    app = Tidemill(url)
    app.queue("calls", max_length=5)

    @app.task(queue="calls", pool=app.pool("api", Limit.requests(5, per="minute")))
    async def call() -> None: ...

    try:
        assert (await app.plan(call, count=3)).count == 3
        assert await (await app.client.store_for_reading()).pools() == []
        await call.enqueue()
        assert [view.name for view in await app.store.pools()] == ["api"]
        assert [info.declared.max_length for info in await app.store.queues()] == [5]
    finally:
        await app.close()


def test_a_queue_declared_late_is_declared_without_a_loop_too(url: str) -> None:
    app = Tidemill(url)
    app.task(name="first")(lambda: None).enqueue_sync()
    app.queue("late", max_length=7)
    handle = app.task(name="second", queue="late")(lambda: None).enqueue_sync()
    assert handle.status_sync().queue == "late"

    async def declared() -> int | None:
        return {info.name: info for info in await app.store.queues()}["late"].declared.max_length

    assert app.client.run_sync(declared) == 7
    app.close_sync()
