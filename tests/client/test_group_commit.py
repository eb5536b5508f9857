"""Concurrent enqueues share inserts; nobody's cancellation is another's problem."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.support import Watched
from tidemill import State, StoreError, StoreFull, Task, Tidemill
from tidemill.stores.memory import MemoryStore


@pytest.fixture
def store() -> Watched:
    return Watched(MemoryStore())


@pytest.fixture
def work(store: Watched) -> Task[[int], None]:
    app = Tidemill(store=store.as_store())

    @app.task
    def work(number: int) -> None: ...

    return work


async def yield_once() -> None:
    await asyncio.sleep(0)


async def test_a_lone_enqueue_is_one_insert_of_one_job(store: Watched, work: Task[[int], None]) -> None:
    await work.enqueue(1)
    assert [[len(group.jobs) for group in groups] for groups in store.inserts] == [[1]]


async def test_concurrent_enqueues_share_inserts(store: Watched, work: Task[[int], None]) -> None:
    store.before = yield_once
    handles = await asyncio.gather(*(work.enqueue(n) for n in range(500)))
    assert len({handle.id for handle in handles}) == 500
    assert [len(groups) for groups in store.inserts] == [1, 499]
    assert all(len(group.jobs) == 1 for group in store.inserts[1])  # refused alone, if at all


async def test_who_comes_while_an_insert_runs_goes_with_the_next(
    store: Watched, work: Task[[int], None]
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
    store: Watched, work: Task[[int], None]
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


async def test_a_full_disk_is_told_to_everybody_at_once(store: Watched, work: Task[[int], None]) -> None:
    """I24: a loud error, no retry, and service resumes by itself."""

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


class Odd(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


async def test_a_bug_in_a_store_reaches_everybody_who_waits(store: Watched, work: Task[[int], None]) -> None:
    async def odd() -> None:
        raise Odd(code=7)

    store.before = odd
    calls = asyncio.gather(*(work.enqueue(n) for n in range(3)), return_exceptions=True)
    async with asyncio.timeout(10):
        results = await calls
    assert [str(result) for result in results] == ["the store raised Odd: code 7"] * 3
    assert {type(result) for result in results} == {StoreError}
    store.before = None
    await work.enqueue(4)


async def test_a_flush_that_is_shut_down_leaves_nobody_waiting(
    store: Watched, work: Task[[int], None]
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
    session = work._client._sessions.here()
    assert session is not None
    flush = session.enqueuer._flush
    assert flush is not None
    flush.cancel()
    async with asyncio.timeout(10):
        results = await asyncio.gather(sent, behind, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 2


async def test_closing_waits_for_what_was_sent(store: Watched, work: Task[[int], None]) -> None:
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
