"""A handler that waits for another job lends its slot, and is refused if the wait could never end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tidemill import (
    Context,
    Filter,
    JobError,
    JobHandle,
    Limit,
    ResultTimeout,
    Retry,
    State,
    Tidemill,
    Unique,
    WaitRefused,
)
from tidemill.core.jobs import Job
from tidemill.stores.memory import MemoryStore
from tidemill.testing.clocks import SeededEntropy, VirtualClock
from tidemill.testing.virtual_loop import run_virtual
from tidemill.worker import Worker, WorkerOptions


class Mill:
    """An application with workers, in virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(clock=self.clock, entropy=SeededEntropy(2))
        self.app = Tidemill(store=self.store, clock=self.clock)
        self.alive = self.most = 0
        self._running: list[tuple[Worker, asyncio.Task[None]]] = []

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def start(self, concurrency: int = 1, **options: Any) -> Worker:
        settings: dict[str, Any] = {"heartbeat_thread": False, "isolation": False, **options}
        worker = Worker(
            self.store,
            self.app.tasks,
            self.app.pools,
            options=WorkerOptions(concurrency=concurrency, **settings),
            clock=self.clock,
            entropy=SeededEntropy(3 + len(self._running)),
        )
        self._running.append((worker, asyncio.create_task(worker.run())))
        return worker

    async def stop(self) -> None:
        """Stops every worker and checks that no slot is taken or lent."""
        for worker, _ in self._running:
            worker.stop()
        await asyncio.gather(*(task for _, task in self._running))
        for worker, _ in self._running:
            assert worker._runtime is not None
            assert worker._runtime._slots.running == 0
            assert not worker._runtime._executor._lender.open

    async def count(self, seconds: float) -> None:
        """Counts the handlers that are alive at once."""
        self.alive += 1
        self.most = max(self.most, self.alive)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.alive -= 1


Scenario = Callable[[Mill], Coroutine[Any, Any, None]]


def virtually(scenario: Scenario) -> None:
    async def main() -> None:
        mill = Mill()
        async with mill.app:
            await scenario(mill)
            await mill.stop()

    run_virtual(main())


def family(mill: Mill, seconds: float = 1.0, timeout: float = 60.0, **child: Any) -> Any:
    """Registers a task whose handler waits for a job of another task, which takes some seconds."""

    @mill.app.task(name="child", **child)
    async def child_(number: int) -> int:
        await mill.count(seconds)
        return 2 * number

    @mill.app.task(name="parent", timeout=timeout, retry=Retry(attempts=1))
    async def parent(number: int) -> int:
        return 1 + await (await child_.enqueue(number)).result()

    return parent


async def ended(job: JobHandle[Any]) -> Job:
    """Returns the job when it has ended."""
    with contextlib.suppress(JobError):
        await job.result()
    return await job.status()


def refusal(record: Job) -> str:
    assert record.error is not None
    assert (record.state, record.error.type) == (State.FAILED, "WaitRefused")
    return record.error.message


@pytest.mark.parametrize("concurrency", [1, 4])
def test_with_all_slots_busy_the_awaited_job_runs(concurrency: int) -> None:
    async def scenario(mill: Mill) -> None:
        parent = family(mill)
        mill.start(concurrency)
        jobs = [await parent.enqueue(number) for number in range(concurrency)]
        results = [await job.result(timeout=30) for job in jobs]
        assert results == [1 + 2 * number for number in range(concurrency)]
        assert mill.now < 2

    virtually(scenario)


def test_an_attempt_resumes_at_once_though_every_slot_is_taken() -> None:
    async def scenario(mill: Mill) -> None:
        parent = family(mill, seconds=5, queue="elsewhere")

        @mill.app.task(name="long")
        async def long() -> None:
            await mill.count(20)

        worker = mill.start(1)
        mill.start(1, queues={"elsewhere": 1})
        job = await parent.enqueue(1)
        for _ in range(3):
            await long.enqueue()
        assert await job.result(timeout=30) == 3
        assert mill.now == pytest.approx(5.0, abs=0.1)
        assert worker.stats.claimed == 2  # one long job runs in the lent slot

    virtually(scenario)


def test_an_attempt_with_many_waits_lends_one_slot() -> None:
    async def scenario(mill: Mill) -> None:
        quick = child_task(mill)

        @mill.app.task(name="many")
        async def many() -> Any:
            jobs = await mill.app.enqueue_many(quick.job(number) for number in range(6))
            return await asyncio.gather(*(job.result() for job in jobs))

        mill.start(2)
        assert await (await many.enqueue()).result(timeout=30) == [0, 2, 4, 6, 8, 10]
        assert mill.most == 2
        assert mill.now == pytest.approx(3.0, abs=0.1)

    virtually(scenario)


def child_task(mill: Mill) -> Any:
    @mill.app.task(name="plain-child")
    async def plain(number: int) -> int:
        await mill.count(1.0)
        return 2 * number

    return plain


def test_more_waits_than_slots_are_refused_and_may_be_retried() -> None:
    async def scenario(mill: Mill) -> None:
        refusals: list[tuple[float, WaitRefused]] = []
        quick = child_task(mill)

        @mill.app.task(name="parent", retry=Retry(attempts=2))
        async def parent(number: int) -> Any:
            try:
                return await (await quick.enqueue(number)).result()
            except WaitRefused as error:
                refusals.append((mill.now, error))
                raise

        jobs = [await parent.enqueue(number) for number in (1, 2)]
        mill.start(1)
        assert [await job.result(timeout=300) for job in jobs] == [2, 4]
        [(at, error)] = refusals
        assert at < 0.1
        assert not error.lasting
        assert "as its concurrency allows (1)" in str(error)

    virtually(scenario)


@pytest.mark.parametrize("limit", ["queue", "key", "pool", "unique"])
def test_a_wait_for_a_limit_that_the_attempt_holds_is_refused_at_once(limit: str) -> None:
    async def scenario(mill: Mill) -> None:
        app = mill.app
        options: dict[str, Any] = {}
        using: dict[str, Any] = {}
        if limit == "queue":
            app.queue("default", concurrency=1)
        if limit == "key":
            app.queue("default", key_concurrency=1)
            using = {"key": "acme"}
        if limit == "pool":
            options = {"pool": app.pool("api", Limit.concurrent(1))}
        if limit == "unique":
            using = {"unique": Unique("one", on_conflict="rerun")}

        @app.task(name="both", retry=Retry(attempts=3), **options)
        async def both(depth: int) -> int:
            if depth == 0:
                return 0
            return 1 + await (await both.using(**using).enqueue(depth - 1)).result()

        mill.start(4)
        job = await both.using(**using).enqueue(1)
        record = await ended(job)
        assert mill.now < 0.1
        assert (record.attempts, record.reason) == (1, "wrong use")
        message = refusal(record)
        assert "docs/how-to/flows.md" in message
        assert {
            "queue": "concurrency=1 of the queue 'default'",
            "key": "key_concurrency=1 of the key 'acme' in the queue 'default'",
            "pool": "the limit of 1 calls at once in the pool api",
            "unique": f"the unique key of job {job.id}",
        }[limit] in message
        await asyncio.sleep(1)  # no one else waits for the awaited job, and it runs
        assert not (await app.store.find(Filter(states=(State.READY, State.RUNNING)))).jobs

    virtually(scenario)


def test_a_limit_with_room_for_the_awaited_job_refuses_nothing() -> None:
    async def scenario(mill: Mill) -> None:
        mill.app.queue("default", concurrency=2, key_concurrency=2)
        parent = family(mill, seconds=20)
        mill.start(4)
        assert await (await parent.using(key="a").enqueue(1)).result(timeout=60) == 3

    virtually(scenario)


def test_a_full_limit_refuses_nothing_while_one_of_its_holders_may_end() -> None:
    """One parent waits for a job of its own full queue, the other for a job elsewhere."""

    async def scenario(mill: Mill) -> None:
        app = mill.app
        app.queue("full", concurrency=2)

        @app.task(name="child")
        async def child(seconds: float) -> None:
            await mill.count(seconds)

        @app.task(name="parent", queue="full")
        async def parent(queue: str, seconds: float) -> None:
            await (await child.using(queue=queue).enqueue(seconds)).result()

        mill.start(4, queues={"full": 1, "free": 1})
        one = await parent.enqueue("free", 30.0)
        other = await parent.enqueue("full", 1.0)
        await other.result(timeout=100)
        assert mill.now == pytest.approx(31, abs=0.1)
        assert (await one.status()).state is State.DONE

    virtually(scenario)


def test_a_limit_that_waiting_attempts_of_several_workers_hold_is_seen() -> None:
    async def scenario(mill: Mill) -> None:
        mill.app.queue("default", concurrency=2)
        parent = family(mill)
        mill.start(1)
        mill.start(1)
        records = await asyncio.gather(*[ended(await parent.enqueue(number)) for number in (1, 2)])
        assert mill.now < 5
        assert State.FAILED in {record.state for record in records}
        for record in records:
            if record.state is State.FAILED:
                assert "concurrency=2 of the queue 'default'" in refusal(record)

    virtually(scenario)


def test_attempts_that_wait_for_one_another_are_refused() -> None:
    async def scenario(mill: Mill) -> None:
        app = mill.app

        @app.task(name="waits", retry=Retry(attempts=1))
        async def waits(other: str) -> None:
            await app.job(other).result()

        mill.start(2)
        one = await waits.using(id="one").enqueue("other")
        other = await waits.using(id="other").enqueue("one")
        errors = {record.error.type for job in (one, other) if (record := await ended(job)).error}
        assert errors == {"WaitRefused", "JobFailed"}
        assert mill.now < 0.5
        own = await waits.using(id="own").enqueue("own")
        assert "wait for one another" in refusal(await ended(own))

    virtually(scenario)


def test_i7_a_wait_longer_than_the_lease_keeps_the_job() -> None:
    async def scenario(mill: Mill) -> None:
        parent = family(mill, seconds=200, timeout=600)
        mill.start(1, lease=30)
        mill.start(1, lease=30, queues={"other": 1})
        job = await parent.enqueue(1)
        assert await job.result(timeout=300) == 3
        assert ((await job.status()).attempts, (await job.status()).crashes) == (1, 0)

    virtually(scenario)


def test_a_timeout_ends_an_attempt_whose_slot_is_lent() -> None:
    async def scenario(mill: Mill) -> None:
        parent = family(mill, seconds=30, timeout=10)
        mill.start(1)
        record = await ended(await parent.enqueue(1))
        assert record.error is not None
        assert record.error.type == "Timeout"
        assert mill.now == pytest.approx(10, abs=0.1)
        assert (await ended(await parent.enqueue(2))).finished

    virtually(scenario)


def test_a_cancelled_attempt_whose_slot_is_lent_ends_at_once() -> None:
    async def scenario(mill: Mill) -> None:
        parent = family(mill, seconds=30)
        mill.start(1)
        job = await parent.enqueue(1)
        await asyncio.sleep(5)
        await job.cancel()
        await asyncio.sleep(1)
        quick = child_task(mill)
        await (await quick.enqueue(1)).result(timeout=60)
        assert mill.now == pytest.approx(31, abs=0.2)  # the child keeps the only slot

    virtually(scenario)


def test_a_lost_attempt_whose_slot_is_lent_ends_and_the_slot_is_used() -> None:
    async def scenario(mill: Mill) -> None:
        parent = family(mill, seconds=30, queue="elsewhere")
        quick = child_task(mill)
        worker = mill.start(1, lease=9)
        job = await parent.enqueue(1)
        await asyncio.sleep(1)
        await mill.store.reclaim(dead=[worker.id])
        await job.cancel()
        await asyncio.sleep(4)
        assert worker.stats.lost == 1
        for number in range(3):
            assert await (await quick.enqueue(number)).result(timeout=2) == 2 * number

    virtually(scenario)


def test_a_batch_handler_lends_its_slot_and_is_refused_as_others_are() -> None:
    async def scenario(mill: Mill) -> None:
        quick = child_task(mill)

        @mill.app.batch_task(name="batch", max_items=3, linger=1, retry=Retry(attempts=1))
        async def batch(items: list[str]) -> list[int]:
            jobs = [await quick.using(queue=queue).enqueue(1) for queue in items]
            results: list[int] = await asyncio.gather(*(job.result() for job in jobs))
            return results

        mill.app.queue("narrow", concurrency=1)
        mill.start(1, queues={"default": 1, "narrow": 1})
        jobs = [await batch.enqueue("default") for _ in range(3)]
        assert [await job.result(timeout=30) for job in jobs] == [2, 2, 2]
        stuck = await batch.using(queue="narrow").enqueue("narrow")
        assert "concurrency=1 of the queue 'narrow'" in refusal(await ended(stuck))

    virtually(scenario)


def test_the_handlers_note_comes_back_after_a_wait() -> None:
    async def scenario(mill: Mill) -> None:
        quick = child_task(mill)

        @mill.app.task(name="says")
        async def says(ctx: Context) -> None:
            await ctx.progress(0.5, "half")
            await (await quick.using(queue="elsewhere", id="c").enqueue(1)).result()
            await asyncio.sleep(5)

        mill.start(1)
        job = await says.enqueue()
        await asyncio.sleep(3)
        record = await job.status()
        assert (record.progress, record.note) == (0.5, "waits for the result of job c")
        mill.start(1, queues={"elsewhere": 1})
        await asyncio.sleep(3)
        record = await job.status()
        assert (record.progress, record.note) == (0.5, "half")

    virtually(scenario)


def test_i20_drained_while_its_slot_is_lent_it_claims_nothing_and_charges_nothing() -> None:
    async def scenario(mill: Mill) -> None:
        parent = family(mill, seconds=1, queue="elsewhere")
        worker = mill.start(1, grace=10)
        job = await parent.enqueue(1)
        await asyncio.sleep(2)
        worker.stop()
        left = await parent.enqueue(2)
        await asyncio.sleep(11)
        assert worker.stats.claimed == 1
        for each in (job, left):
            record = await each.status()
            assert (record.state, record.attempts, record.crashes) == (State.READY, 0, 0)

    virtually(scenario)


def test_i20_a_draining_worker_still_gets_results_from_other_workers() -> None:
    async def scenario(mill: Mill) -> None:
        parent = family(mill, seconds=5, queue="elsewhere")
        worker = mill.start(1, grace=30)
        mill.start(1, queues={"elsewhere": 1})
        job = await parent.enqueue(1)
        await asyncio.sleep(1)
        worker.stop()
        assert await job.result(timeout=20) == 3

    virtually(scenario)


def test_a_wait_that_outlives_its_attempt_holds_no_slot() -> None:
    async def scenario(mill: Mill) -> None:
        left: list[asyncio.Task[Any]] = []
        quick = child_task(mill)

        @mill.app.task(name="leaves")
        async def leaves() -> None:
            job = await quick.using(queue="elsewhere").enqueue(1)
            left.append(asyncio.create_task(job.result(timeout=50)))
            await asyncio.sleep(1)

        mill.start(1)
        for _ in range(3):
            await (await leaves.enqueue()).result(timeout=20)
        assert mill.now == pytest.approx(3, abs=0.1)
        for task in left:
            with pytest.raises(ResultTimeout):
                await task

    virtually(scenario)


def test_a_handler_waits_for_a_flow() -> None:
    async def scenario(mill: Mill) -> None:
        quick = child_task(mill)

        @mill.app.task(name="runs-flow")
        async def runs_flow(queue: str) -> int:
            flow = mill.app.flow("sum")
            first = flow.add(quick.using(queue=queue), number=1)
            flow.add(quick.using(queue=queue), number=first)
            result = await (await flow.enqueue()).result()
            assert isinstance(result, int)
            return result

        mill.app.queue("narrow", concurrency=1)
        mill.start(1, queues={"default": 1, "narrow": 1})
        assert await (await runs_flow.enqueue("default")).result(timeout=30) == 4
        began = mill.now
        narrow = await runs_flow.using(queue="narrow", id="narrow").enqueue("narrow")
        assert "concurrency=1 of the queue 'narrow'" in refusal(await ended(narrow))
        assert mill.now - began < 0.5

    virtually(scenario)


def test_explain_says_what_a_running_job_waits_for() -> None:
    async def scenario(mill: Mill) -> None:
        app = mill.app

        @app.task(name="child", queue="elsewhere")
        async def child() -> None: ...

        @app.task(name="parent")
        async def parent() -> None:
            await (await child.using(id="c1").enqueue()).result(timeout=20)

        mill.start(1)
        job = await parent.enqueue()
        await asyncio.sleep(2)
        explanation = await app.explain(job.id)
        assert "It waits for the result of job c1 (queue 'elsewhere', ready)." in explanation.sentence
        assert explanation.details["waits_for"] == [
            {"kind": "job", "id": "c1", "queue": "elsewhere", "state": "ready"}
        ]
        mill.start(1, queues={"elsewhere": 1})
        await job.result(timeout=30)
        assert not (await job.status()).note

    virtually(scenario)
