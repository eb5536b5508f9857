"""Where jobs are short and many, what ended is settled beside the next claim."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.worker.bench import Bench, Unreliable, Virtually
from tidemill.core.claims import ClaimRequest, Settled, Settlement
from tidemill.core.job import Group, NewJob
from tidemill.core.states import State
from tidemill.errors import StoreUnavailable
from tidemill.telemetry.events import StoreBack, StoreLost
from tidemill.worker.pace import AHEAD_AT_MOST
from tidemill.worker.pump import MANY, UNTOLD_AT_MOST

JOBS = 10_000
A_TRIP = 0.01
SLOTS = 10


class Watched(Unreliable):
    """Settling takes `heavy` seconds where nothing is claimed with it, and a claim is answered `late`. What
    it saw of others meanwhile is in `beside`; `broken` is raised the next time."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.store)
        self.slow, self.heavy, self.late = A_TRIP, A_TRIP, 0.0
        self.beside = 0
        self.alone: list[int] = []
        self.at_once = 0
        self.broken: Exception | None = None
        self._settling = 0

    async def settle(self, settlements: Sequence[Settlement], request: ClaimRequest | None = None) -> Settled:
        if request is not None:
            self.beside += self._settling
            settled = await super().settle(settlements, request)
            await asyncio.sleep(self.late)
            return settled
        self.alone.append(len(settlements))
        self._settling += 1
        self.at_once = max(self.at_once, self._settling)
        try:
            await asyncio.sleep(self.heavy)
            if self.broken is not None:
                raise self.broken
            return await super().settle(settlements, request)
        finally:
            self._settling -= 1


async def prepared(bench: Bench, jobs: int = JOBS) -> Watched:
    async def short() -> None:
        await asyncio.sleep(0.0001)

    bench.task(short)
    new = tuple(NewJob(id=f"short-{number}", task="short", payload=b"{}") for number in range(jobs))
    await bench.store.insert([Group("default", new)])
    return Watched(bench)


async def held(bench: Bench) -> int:
    return (await bench.store.counts())["default"].get(State.RUNNING, 0)


def test_jobs_are_claimed_while_others_are_settled(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        store = await prepared(bench)
        worker = await bench.run_until_idle(store=store)
        assert worker.stats.done == JOBS
        assert store.beside > 2
        assert store.at_once == 1
        assert max(store.alone) >= MANY

    virtually(scenario)


@pytest.mark.parametrize("first", [SLOTS, 2 * SLOTS, 3 * SLOTS])
def test_idle_is_noticed_though_all_was_settled_while_a_claim_found_nothing(
    virtually: Virtually, first: int
) -> None:
    jobs = (
        first + AHEAD_AT_MOST
    )  # after one of these the last claim is full, so the next that finds nothing is armed

    async def scenario(bench: Bench) -> None:
        store = await prepared(bench, jobs)
        store.heavy, store.late = 0.0, A_TRIP
        async with asyncio.timeout(10):
            worker = await bench.run_until_idle(store=store, concurrency=SLOTS, poll=60.0)
        assert worker.stats.done == jobs

    virtually(scenario)


def test_a_store_that_settles_slowly_is_not_asked_for_more_and_more(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        store = await prepared(bench)
        store.heavy = 60
        running = bench.start(worker := bench.worker(store=store, concurrency=SLOTS))
        await asyncio.sleep(30)
        unsettled = await held(bench)
        at_most = 2 * (AHEAD_AT_MOST + SLOTS) + UNTOLD_AT_MOST
        assert MANY < unsettled <= at_most
        await asyncio.sleep(20)
        assert await held(bench) == unsettled
        store.heavy = A_TRIP
        await asyncio.sleep(200)
        assert set((await bench.store.counts())["default"]) == {State.DONE}
        assert worker.stats.done == JOBS
        worker.stop()
        await running

    virtually(scenario)


@pytest.mark.parametrize("lost", [1, 5])
def test_i8_replies_lost_on_both_trips_cost_nothing(virtually: Virtually, lost: int) -> None:
    async def scenario(bench: Bench) -> None:
        store = await prepared(bench, 3000)
        running = bench.start(worker := bench.worker(store=store, concurrency=SLOTS))
        while not store.alone:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.001)
        store.lose = lost
        await bench.ended("short-2999")
        worker.stop()
        await running
        jobs = [job for job in await bench.store.get([f"short-{n}" for n in range(3000)]) if job]
        assert {(job.state, job.attempts, job.crashes) for job in jobs} == {(State.DONE, 1, 0)}
        assert (worker.stats.stale, worker.stats.gone) == (0, 0)

    virtually(scenario)


def test_an_outage_is_told_with_all_outcomes_that_are_kept(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        store = await prepared(bench)
        running = bench.start(worker := bench.worker(store=store, concurrency=SLOTS))
        while not store.alone:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.001)
        store.down = True  # which the claim learns before the settlement
        await asyncio.sleep(1)
        store.down = False
        (lost,) = bench.told(StoreLost)
        assert lost.outcomes >= store.alone[0] >= MANY
        worker.stop()
        await running

    virtually(scenario)


def test_an_outage_that_only_settlements_meet_is_one(virtually: Virtually) -> None:
    """Claims get through meanwhile, and do not mean that it is over."""

    async def scenario(bench: Bench) -> None:
        store = await prepared(bench)
        store.broken = StoreUnavailable("the disk is full")
        running = bench.start(worker := bench.worker(store=store, concurrency=SLOTS))
        await asyncio.sleep(30)
        assert (len(bench.told(StoreLost)), len(bench.told(StoreBack))) == (1, 0)
        store.broken = None
        await asyncio.sleep(60)
        assert (len(bench.told(StoreLost)), len(bench.told(StoreBack))) == (1, 1)
        assert (worker.stats.outages, worker.stats.done) == (1, JOBS)
        worker.stop()
        await running

    virtually(scenario)


def test_a_worker_that_is_told_to_stop_waits_for_what_is_being_settled(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        store = await prepared(bench)
        store.heavy = 3
        running = bench.start(worker := bench.worker(store=store, concurrency=SLOTS))
        while not store.alone:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.001)
        worker.stop()
        await running
        counts = (await bench.store.counts())["default"]
        assert set(counts) == {State.DONE, State.READY}
        assert counts[State.DONE] == worker.stats.done

    virtually(scenario)


def test_one_that_is_cancelled_says_once_more_what_it_could_not_tell(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        store = await prepared(bench)
        store.heavy = 1
        running = bench.start(bench.worker(store=store, concurrency=SLOTS))
        while not store.alone:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert set((await bench.store.counts())["default"]) == {State.DONE, State.READY}

    virtually(scenario)


def test_an_error_that_is_not_the_stores_ends_the_worker(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        store = await prepared(bench)
        store.broken = LookupError("a defect")
        with pytest.RaisesGroup(LookupError, allow_unwrapped=True, flatten_subgroups=True):
            await bench.worker(store=store).run()

    virtually(scenario)
