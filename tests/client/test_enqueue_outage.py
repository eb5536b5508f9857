"""An enqueue returns or raises within 5 s in every kind of outage (I22), in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.client.support import FaultyStore
from tidemill import Filter, StoreUnavailable, Task, Tidemill
from tidemill.client.enqueuer import ENQUEUE_DEADLINE_SECONDS, MAX_JOBS_PER_INSERT
from tidemill.stores.memory import MemoryStore
from tidemill.testing.virtual_loop import run_virtual


def _setup() -> tuple[FaultyStore, Task[[int], None]]:
    store = FaultyStore(MemoryStore())
    return store, _work(Tidemill(store=store.as_store()))


def _work(app: Tidemill) -> Task[[int], None]:
    @app.task
    def work(number: int) -> None: ...

    return work


def _down_until(end: float) -> Callable[[], Awaitable[None]]:
    async def refuse() -> None:
        if asyncio.get_running_loop().time() < end:
            raise StoreUnavailable("connection refused")

    return refuse


def _silent_until(end: float) -> Callable[[], Awaitable[None]]:
    async def hang() -> None:
        if asyncio.get_running_loop().time() < end:
            await asyncio.Event().wait()

    return hang


@pytest.mark.parametrize("fault", [_down_until, _silent_until])
def test_an_enqueue_survives_a_short_outage(fault: Callable[[float], Callable[[], Awaitable[None]]]) -> None:
    async def scenario() -> None:
        store, work = _setup()
        store.before = fault(2.0)
        await asyncio.gather(*(work.enqueue(n) for n in range(10)))
        assert asyncio.get_running_loop().time() < ENQUEUE_DEADLINE_SECONDS
        assert len((await store.find(Filter())).jobs) == 10

    run_virtual(scenario())


@pytest.mark.parametrize("fault", [_down_until, _silent_until])
def test_a_long_outage_raises_within_the_deadline(
    fault: Callable[[float], Callable[[], Awaitable[None]]],
) -> None:
    async def scenario() -> None:
        store, work = _setup()
        store.before = fault(1000.0)
        loop = asyncio.get_running_loop()

        async def one(number: int) -> float:
            await asyncio.sleep(number * 0.7)
            began = loop.time()
            with pytest.raises(StoreUnavailable, match="same id"):
                await work.enqueue(number)
            return loop.time() - began

        took = await asyncio.gather(*(one(n) for n in range(20)))
        assert max(took) <= ENQUEUE_DEADLINE_SECONDS + 1e-6
        assert min(took) > ENQUEUE_DEADLINE_SECONDS - 1.0  # and not given up on early
        assert (await store.find(Filter())).jobs == ()

    run_virtual(scenario())


@pytest.mark.parametrize("fault", [_down_until, _silent_until])
def test_jobs_beyond_one_insert_raise_in_time_too(
    fault: Callable[[float], Callable[[], Awaitable[None]]],
) -> None:
    async def scenario() -> None:
        store, work = _setup()
        store.before = fault(1000.0)
        calls = (work.enqueue(n) for n in range(3 * MAX_JOBS_PER_INSERT))
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(result) for result in results} == {StoreUnavailable}
        assert asyncio.get_running_loop().time() <= ENQUEUE_DEADLINE_SECONDS + 1e-6

    run_virtual(scenario())


def test_a_store_that_does_not_open_raises_in_time() -> None:
    async def scenario() -> None:
        opened = asyncio.get_running_loop().time() + 3

        class SlowToOpen(FaultyStore):
            async def open(self) -> None:
                await asyncio.sleep(opened - asyncio.get_running_loop().time())

        app = Tidemill(store=SlowToOpen(MemoryStore()).as_store())
        work = _work(app)
        await work.enqueue(1)
        opened += 1000
        await app.close()
        began = asyncio.get_running_loop().time()
        with pytest.raises(StoreUnavailable, match="could not be opened within 5 s"):
            await work.enqueue(2)
        assert asyncio.get_running_loop().time() - began == pytest.approx(ENQUEUE_DEADLINE_SECONDS)

    run_virtual(scenario())


def test_the_error_of_an_unopened_store_has_the_ids_i22() -> None:
    class Unreachable(FaultyStore):
        async def open(self) -> None:
            raise StoreUnavailable("connection refused")

    def work() -> Task[[int], None]:
        return _work(Tidemill(store=Unreachable(MemoryStore()).as_store()))

    with pytest.raises(StoreUnavailable, match="connection refused") as one:
        run_virtual(work().using(id="mine").enqueue(1))
    with pytest.raises(StoreUnavailable, match="connection refused") as sync:
        work().using(id="mine too").enqueue_sync(1)
    assert (one.value.ids, sync.value.ids) == (("mine",), ("mine too",))


def test_the_error_has_the_ids_to_send_again_i22() -> None:
    async def scenario() -> None:
        store, work = _setup()
        store.before = _down_until(1000.0)
        one, many = await asyncio.gather(
            work.using(id="the-first").enqueue(1),
            work._client.enqueue_many([work.using(id=f"job-{n}").job(n) for n in range(5)]),
            return_exceptions=True,
        )
        assert isinstance(one, StoreUnavailable)
        assert one.ids == ("the-first",)
        assert "using(id='the-first')" in str(one)
        assert isinstance(many, StoreUnavailable)
        assert many.ids == tuple(f"job-{n}" for n in range(5))
        assert "5 jobs (job-0, job-1, job-2 …)" in str(many)

    run_virtual(scenario())


def test_a_lost_reply_creates_no_second_job_j11() -> None:
    async def scenario() -> None:
        store, work = _setup()
        lost = 0

        async def lose() -> None:
            nonlocal lost
            lost += 1
            if lost < 3:
                raise StoreUnavailable("connection reset")

        store.after = lose
        handles = await asyncio.gather(*(work.enqueue(n) for n in range(5)))
        assert len(store.inserts) == 3
        assert {job.id for job in (await store.find(Filter())).jobs} == {handle.id for handle in handles}

    run_virtual(scenario())
