"""With many short jobs, outcomes are settled in parallel with the next claim."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.worker.bench import Bench, Unreliable, Virtually
from tidemill.core.claims import ClaimRequest, Settlement, SettleResult
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.core.states import State
from tidemill.errors import StoreUnavailable
from tidemill.telemetry.events import StoreLost, StoreRecovered
from tidemill.worker.claim_planner import MAX_JOBS_AHEAD
from tidemill.worker.dispatcher import MAX_UNSETTLED_OUTCOMES, MIN_SEPARATE_OUTCOMES

JOBS = 10_000
A_TRIP = 0.01
SLOTS = 10


class Watched(Unreliable):
    """A settle request without a claim takes `heavy` seconds, and a claim is answered after `late`.
    `beside` counts settle requests that ran during a claim; `broken` is raised by the next one."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.store)
        self.slow, self.heavy, self.late = A_TRIP, A_TRIP, 0.0
        self.beside = 0
        self.alone: list[int] = []
        self.at_once = 0
        self.broken: Exception | None = None
        self._settling = 0

    async def settle(
        self, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
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
    await bench.store.insert([JobGroup("default", new)])
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
        assert max(store.alone) >= MIN_SEPARATE_OUTCOMES

    virtually(scenario)


@pytest.mark.parametrize("first", [SLOTS, 2 * SLOTS, 3 * SLOTS])
def test_idle_is_noticed_when_everything_is_settled_during_an_empty_claim(
    virtually: Virtually, first: int
) -> None:
    jobs = (
        first + MAX_JOBS_AHEAD
    )  # after one of these the last claim is full, so the next claim that finds nothing is armed

    async def scenario(bench: Bench) -> None:
        store = await prepared(bench, jobs)
        store.heavy, store.late = 0.0, A_TRIP
        async with asyncio.timeout(10):
            worker = await bench.run_until_idle(store=store, concurrency=SLOTS, poll=60.0)
        assert worker.stats.done == jobs

    virtually(scenario)


def test_a_slow_settle_limits_further_claims(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        store = await prepared(bench)
        store.heavy = 60
        running = bench.start(worker := bench.worker(store=store, concurrency=SLOTS))
        await asyncio.sleep(30)
        unsettled = await held(bench)
        at_most = 2 * (MAX_JOBS_AHEAD + SLOTS) + MAX_UNSETTLED_OUTCOMES
        assert MIN_SEPARATE_OUTCOMES < unsettled <= at_most
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
def test_i8_replies_lost_on_both_requests_cost_nothing(virtually: Virtually, lost: int) -> None:
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


def test_an_outage_event_counts_all_unsettled_outcomes(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        store = await prepared(bench)
        running = bench.start(worker := bench.worker(store=store, concurrency=SLOTS))
        while not store.alone:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.001)
        store.down = True  # the claim learns this before the settlement
        await asyncio.sleep(1)
        store.down = False
        (lost,) = bench.events_of(StoreLost)
        assert lost.outcomes >= store.alone[0] >= MIN_SEPARATE_OUTCOMES
        worker.stop()
        await running

    virtually(scenario)


def test_an_outage_of_settlements_alone_is_an_outage(virtually: Virtually) -> None:
    """Claims succeed meanwhile, which does not end the outage."""

    async def scenario(bench: Bench) -> None:
        store = await prepared(bench)
        store.broken = StoreUnavailable("the disk is full")
        running = bench.start(worker := bench.worker(store=store, concurrency=SLOTS))
        await asyncio.sleep(30)
        assert (len(bench.events_of(StoreLost)), len(bench.events_of(StoreRecovered))) == (1, 0)
        store.broken = None
        await asyncio.sleep(60)
        assert (len(bench.events_of(StoreLost)), len(bench.events_of(StoreRecovered))) == (1, 1)
        assert (worker.stats.outages, worker.stats.done) == (1, JOBS)
        worker.stop()
        await running

    virtually(scenario)


def test_a_stopped_worker_waits_for_the_running_settle_request(virtually: Virtually) -> None:
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


def test_a_cancelled_worker_settles_once_more(virtually: Virtually) -> None:
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


def test_an_error_other_than_a_store_error_ends_the_worker(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        store = await prepared(bench)
        store.broken = LookupError("a defect")
        with pytest.RaisesGroup(LookupError, allow_unwrapped=True, flatten_subgroups=True):
            await bench.worker(store=store).run()

    virtually(scenario)
