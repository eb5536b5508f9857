"""Requests to the store: lost replies, outages, wake-ups, claiming ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from tests.worker.bench import Bench, Unreliable, Virtually
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.queues import QueueSettings
from tidemill.core.states import State
from tidemill.stores.memory.wakeups import MemoryListener
from tidemill.worker.options import UniqueWorkerId


async def noop() -> None: ...


def test_i8_lost_replies_cost_nothing(virtually: Virtually) -> None:
    ran = 0

    async def count() -> None:
        nonlocal ran
        ran += 1

    async def scenario(bench: Bench) -> None:
        bench.task(count)
        jobs = [await bench.enqueue("count") for _ in range(30)]
        store = Unreliable(bench.store)
        store.lose = 6
        worker = await bench.run_until_idle(store=store, concurrency=3)
        records = [await bench.job(job) for job in jobs]
        assert {(record.state, record.attempts, record.crashes) for record in records} == {(State.DONE, 1, 0)}
        assert (ran, worker.stats.stale, worker.stats.gone) == (30, 0, 0)

    virtually(scenario)


def test_after_a_lost_reply_the_same_number_is_asked_for_again(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        await bench.enqueue("noop")
        store = Unreliable(bench.store)
        store.lose = 2
        await bench.run_until_idle(store=store)
        numbers = [request.number for request in store.requests if request is not None]
        assert numbers[:4] == [1, 1, 1, 2]

    virtually(scenario)


def test_i1_an_outage_delays_outcomes_and_loses_none(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def short() -> None:
            await asyncio.sleep(1)

        bench.task(short)
        jobs = [await bench.enqueue("short") for _ in range(5)]
        store = Unreliable(bench.store)
        worker = bench.worker(store=store)
        running = bench.start(worker)
        await asyncio.sleep(0.5)
        store.down = True
        await asyncio.sleep(60)
        assert [(await bench.job(job)).state for job in jobs] == [State.RUNNING] * 5
        store.down = False
        await asyncio.sleep(5)
        assert [(await bench.job(job)).state for job in jobs] == [State.DONE] * 5
        assert worker.stats.outages == 1
        worker.stop()
        await running

    virtually(scenario)


def test_a_poll_that_finds_work_arms_the_listener_again(virtually: Virtually) -> None:
    """The store forgot the listener: one job waits for the poll, not all jobs of half a minute."""

    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        listeners: list[MemoryListener] = []
        listen = bench.store.listen

        def kept(topics: Iterable[str]) -> MemoryListener:
            listeners.append(listen(topics))
            return listeners[-1]

        bench.store.listen = kept  # type: ignore[method-assign]
        worker = bench.worker(poll=2)
        running = bench.start(worker)
        await asyncio.sleep(5)
        for listener in listeners:
            listener.disarm()
        late = await bench.enqueue("noop")
        await asyncio.sleep(0.001)
        assert (await bench.job(late)).state is State.READY
        await asyncio.sleep(2)
        assert (await bench.job(late)).state is State.DONE
        prompt = await bench.enqueue("noop")
        await asyncio.sleep(0.001)
        assert (await bench.job(prompt)).state is State.DONE
        worker.stop()
        await running

    virtually(scenario)


def test_an_idle_worker_starts_a_new_job_at_once(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        worker = bench.worker(poll=1000)
        running = bench.start(worker)
        await asyncio.sleep(5)
        trips = worker.stats.trips
        job = await bench.enqueue("noop")
        await asyncio.sleep(0.001)
        assert (await bench.job(job)).state is State.DONE
        assert worker.stats.trips - trips == 2, "one claims, one settles and looks once more"
        worker.stop()
        await running

    virtually(scenario)


def test_a_scheduled_job_starts_when_it_is_due(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        worker = bench.worker(poll=1000)
        running = bench.start(worker)
        await asyncio.sleep(1)
        job = await bench.enqueue("noop", delay=7)
        await asyncio.sleep(6.9)
        assert (await bench.job(job)).state is State.SCHEDULED
        await asyncio.sleep(0.2)
        assert (await bench.job(job)).state is State.DONE
        worker.stop()
        await running

    virtually(scenario)


def test_i23_with_every_wakeup_lost_jobs_start_within_the_poll_period(
    virtually: Virtually, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(bench: Bench) -> None:
        monkeypatch.setattr("tidemill.stores.memory.wakeups.MemoryListenerHub.wake", lambda *_: None)
        bench.task(noop)
        worker = bench.worker(poll=1)
        running = bench.start(worker)
        await asyncio.sleep(5.5)
        job = await bench.enqueue("noop")
        late = await bench.enqueue("noop", delay=3)
        await asyncio.sleep(1)
        assert (await bench.job(job)).state is State.DONE
        await asyncio.sleep(3)
        assert (await bench.job(late)).state is State.DONE
        worker.stop()
        await running

    virtually(scenario)


def test_a_worker_that_leaves_jobs_behind_wakes_another(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def long() -> None:
            await asyncio.sleep(100)

        bench.task(long)
        workers = [bench.worker(poll=1000, concurrency=1) for _ in range(3)]
        running = [bench.start(worker) for worker in workers]
        await asyncio.sleep(1)
        jobs = [f"one-{number}" for number in range(3)]
        new = tuple(NewJob(id=job, task="long", payload=b"{}") for job in jobs)
        await bench.store.insert([JobGroup("default", new)])
        await asyncio.sleep(0.01)
        assert [(await bench.job(job)).state for job in jobs] == [State.RUNNING] * 3
        for worker in workers:
            worker.stop_now()
        await asyncio.gather(*running)

    virtually(scenario)


def test_short_jobs_are_claimed_ahead_of_a_slow_store(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def short() -> None:
            await asyncio.sleep(0.001)

        bench.task(short)
        for _ in range(1000):
            await bench.enqueue("short")
        store = Unreliable(bench.store)
        store.slow = 0.01
        worker = await bench.run_until_idle(store=store, concurrency=4)
        assert worker.stats.done == 1000
        assert worker.stats.trips < 60, "the buffer hides the trips"

    virtually(scenario)


def test_a_limited_queue_is_never_claimed_ahead(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def short() -> None:
            await asyncio.sleep(0.001)

        bench.task(short)
        await bench.store.declare({"default": QueueSettings(key_concurrency=50)})
        for _ in range(100):
            await bench.enqueue("short")
        store = Unreliable(bench.store)
        store.slow = 0.01
        await bench.run_until_idle(store=store, concurrency=4)
        assert max(request.limit for request in store.requests if request is not None) == 4

    virtually(scenario)


def test_jobs_claimed_ahead_are_released_when_long_jobs_block_the_slots(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def short() -> None:
            await asyncio.sleep(0.001)

        async def long() -> None:
            await asyncio.sleep(600)

        bench.task(short)
        bench.task(long)
        for _ in range(300):
            await bench.enqueue("short")
        for _ in range(50):
            await bench.enqueue("long")
        worker = bench.worker(concurrency=4)
        running = bench.start(worker)
        await asyncio.sleep(5)
        counts = (await bench.store.counts())["default"]
        assert (counts[State.RUNNING], counts[State.READY]) == (4, 46)
        worker.stop_now()
        await running
        assert (await bench.store.counts())["default"].get(State.READY) == 50

    virtually(scenario)


def test_weights_share_the_slots(virtually: Virtually) -> None:
    ran: list[str] = []

    async def scenario(bench: Bench) -> None:
        async def big() -> None:
            ran.append("big")
            await asyncio.sleep(0.1)

        async def small() -> None:
            ran.append("small")
            await asyncio.sleep(0.1)

        bench.task(big)
        bench.task(small)
        for _ in range(100):
            await bench.enqueue("big", queue="big")
            await bench.enqueue("small", queue="small")
        await bench.run_until_idle(queues={"small": 1, "big": 4}, concurrency=1)
        assert 70 <= ran[:100].count("big") <= 85

    virtually(scenario)


def test_a_restarted_worker_of_the_same_id_is_not_taken_for_the_first(virtually: Virtually) -> None:
    """Claims are numbered from 1 again, and the store would take them for repeated ones."""

    async def noop() -> None: ...

    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        names = set()
        for _ in range(3):
            job = await bench.enqueue("noop")
            names.add((await bench.run_until_idle(id="host-1")).id)
            assert (await bench.job(job)).state is State.DONE
        assert len(names) == 3
        assert all(name.startswith("host-1-") for name in names)
        assert bench.worker(id=UniqueWorkerId("made-by-a-supervisor")).id == "made-by-a-supervisor"

    virtually(scenario)
