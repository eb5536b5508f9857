"""Concurrent enqueues share inserts; the cancellation of one caller does not affect the others."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.support import FaultyStore
from tidemill import State, StoreError, StoreFull, Task, Tidemill
from tidemill.stores.memory import MemoryStore


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
def work(store: FaultyStore) -> Task[[int], None]:
    app = Tidemill(store=store.as_store())

    @app.task
    def work(number: int) -> None: ...

    return work


async def yield_once() -> None:
    await asyncio.sleep(0)


async def test_a_single_enqueue_is_one_insert_of_one_job(store: FaultyStore, work: Task[[int], None]) -> None:
    await work.enqueue(1)
    assert [[len(group.jobs) for group in groups] for groups in store.inserts] == [[1]]


async def test_concurrent_enqueues_share_inserts(store: FaultyStore, work: Task[[int], None]) -> None:
    store.before = yield_once
    handles = await asyncio.gather(*(work.enqueue(n) for n in range(500)))
    assert len({handle.id for handle in handles}) == 500
    assert [len(groups) for groups in store.inserts] == [1, 499]
    assert all(len(group.jobs) == 1 for group in store.inserts[1])  # refused alone, if at all


async def test_jobs_that_arrive_during_an_insert_share_the_next(
    store: FaultyStore, work: Task[[int], None]
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        began.set()
        await go_on.wait()

    store.before = wait
    first = asyncio.create_task(work.enqueue(0))
    await began.wait()
    others = [asyncio.create_task(work.enqueue(n)) for n in range(1, 100)]
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(first, *others)
    assert [len(groups) for groups in store.inserts] == [1, 99]


async def test_a_cancelled_caller_does_not_fail_its_neighbours(
    store: FaultyStore, work: Task[[int], None]
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        began.set()
        await go_on.wait()

    store.before = wait
    calls = [asyncio.create_task(work.enqueue(n)) for n in range(10)]
    await began.wait()
    calls[0].cancel()  # the one that called the store itself
    calls[5].cancel()
    await asyncio.sleep(0)
    go_on.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(r, asyncio.CancelledError) for r in results] == [n in (0, 5) for n in range(10)]
    assert (await store.counts())["default"][
        State.READY
    ] == 9  # the first was stopped before the store saw it


async def test_a_full_disk_fails_every_caller_at_once(store: FaultyStore, work: Task[[int], None]) -> None:
    """A clear error, no retry, and the service resumes by itself (I24)."""

    async def full() -> None:
        await asyncio.sleep(0)
        raise StoreFull("no space left")

    store.before = full
    results = await asyncio.gather(*(work.enqueue(n) for n in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [StoreFull] * 3
    assert len({id(result) for result in results}) == 3
    assert [len(groups) for groups in store.inserts] == [1, 2]
    store.before = None
    await work.enqueue(4)


class UncopyableError(Exception):
    """An error that cannot be created again from its arguments."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


async def test_a_bug_in_a_store_reaches_every_caller(store: FaultyStore, work: Task[[int], None]) -> None:
    async def odd() -> None:
        raise UncopyableError(code=7)

    store.before = odd
    calls = asyncio.gather(*(work.enqueue(n) for n in range(3)), return_exceptions=True)
    async with asyncio.timeout(10):
        results = await calls
    assert [str(result) for result in results] == ["the store raised UncopyableError: code 7"] * 3
    assert {type(result) for result in results} == {StoreError}
    store.before = None
    await work.enqueue(4)


async def test_a_cancelled_flush_leaves_no_caller_waiting(
    store: FaultyStore, work: Task[[int], None]
) -> None:
    began = asyncio.Event()

    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    store.before = hang
    sent = asyncio.create_task(work.enqueue(1))
    await began.wait()
    behind = asyncio.create_task(work.enqueue(2))
    await asyncio.sleep(0)
    began.clear()
    sent.cancel()
    await began.wait()
    session = work._client._sessions.current()
    assert session is not None
    flush = session.enqueuer._flush
    assert flush is not None
    flush.cancel()
    async with asyncio.timeout(10):
        results = await asyncio.gather(sent, behind, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 2


async def test_close_waits_for_sent_jobs(store: FaultyStore, work: Task[[int], None]) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        began.set()
        await go_on.wait()

    store.before = wait
    call = asyncio.create_task(work.enqueue(1))
    await began.wait()
    closing = asyncio.create_task(work._client.close())
    await asyncio.sleep(0)
    assert not closing.done()
    go_on.set()
    await closing
    assert (await call).id
