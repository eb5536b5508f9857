"""A handler whose dependency is away spends no attempt and no units; its job says what it waits for."""

from __future__ import annotations

import asyncio

from tests.worker.bench import Bench, Virtually
from tests.worker.fake_provider import Refused
from tidemill.core.limits import Limit
from tidemill.core.states import State
from tidemill.errors import DependencyUnavailable
from tidemill.hooks.watched_call import begin_call
from tidemill.inspect.explanation import explain
from tidemill.inspect.explanation_inputs import load_inputs
from tidemill.metrics.dependencies import load_dependencies
from tidemill.metrics.rollup import load_samples
from tidemill.tasks.context import Context
from tidemill.telemetry.events import DependencyUnreachable, JobSnoozed, PoolClosed

QDRANT_AWAY = DependencyUnavailable("Qdrant", "connection refused", retry_in=30)


async def search() -> None:
    raise QDRANT_AWAY


def test_i16_a_missing_dependency_costs_no_attempt_and_names_itself(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(search)
        job = await bench.enqueue("search")
        worker = await bench.run_until_idle()
        record = await bench.job(job)
        assert (record.state, record.attempts) == (State.SCHEDULED, 0)
        assert record.note == "waiting for Qdrant: connection refused"
        assert worker.stats.snoozed == 1
        [snoozed] = bench.events_of(JobSnoozed)
        assert (snoozed.dependency, snoozed.delay) == ("Qdrant", 30)
        [event] = bench.events_of(DependencyUnreachable)
        assert (event.job, event.dependency, event.problem) == (job, "Qdrant", "connection refused")
        assert event.retry_in == 30

    virtually(scenario)


def test_q4_the_explanation_of_a_snoozed_job_has_its_reason(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(search)
        job = await bench.enqueue("search")
        worker = bench.worker()
        running = bench.start(worker)
        await bench.store.listen([f"job:{job}"]).wait(1)
        explanation = explain(await load_inputs(bench.store, bench.tasks, job))
        assert "Its handler put the job off (waiting for Qdrant: connection refused)" in explanation.sentence
        assert explanation.details["note"] == "waiting for Qdrant: connection refused"
        worker.stop()
        await running

    virtually(scenario)


def test_units_of_a_call_that_was_not_made_come_back(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"), Limit.tokens(1000, per="minute"))
        bench.task(search, pool=pool, cost={"tokens": 900})
        await bench.enqueue("search")
        await bench.run_until_idle()
        assert await bench.used("api") == {"requests per minute": 0, "tokens per minute": 0}

    virtually(scenario)


def test_i14_units_of_a_reported_call_stay_used(virtually: Virtually) -> None:
    """The second call, which was reserved and never reported, comes back."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"), Limit.tokens(1000, per="minute"))

        async def call(ctx: Context) -> None:
            ctx.used(requests=1, tokens=50)
            async with ctx.spend(pool, tokens=300):
                raise QDRANT_AWAY

        bench.task(call, pool=pool, cost={"tokens": 100})
        await bench.enqueue("call")
        await bench.run_until_idle()
        assert await bench.used("api") == {"requests per minute": 1, "tokens per minute": 50}

    virtually(scenario)


def test_i14_a_watched_request_without_an_answer_stays_used(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"), Limit.tokens(1000, per="minute"))

        async def call() -> None:
            request = begin_call(pool)
            assert request is not None
            await request.leaves()
            raise QDRANT_AWAY

        bench.task(call, pool=pool, cost={"tokens": 100})
        await bench.enqueue("call")
        await bench.run_until_idle()
        assert await bench.used("api") == {"requests per minute": 1, "tokens per minute": 100}

    virtually(scenario)


def test_the_answer_of_a_dependency_closes_no_pool(virtually: Virtually) -> None:
    """Qdrant's own 429 is the cause of the error; it is not an answer of the pool's provider."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"))

        async def call() -> None:
            raise QDRANT_AWAY from Refused(429, {"retry-after": "30"})

        bench.task(call, pool=pool)
        job = await bench.enqueue("call")
        await bench.run_until_idle()
        assert bench.events_of(PoolClosed) == []
        assert (await bench.job(job)).note == "waiting for Qdrant: connection refused"

    virtually(scenario)


def test_a_batch_whose_dependency_is_away_is_put_off_as_a_whole(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"))

        async def embed(items: list[int]) -> list[int]:
            raise QDRANT_AWAY

        bench.batch_task(embed, pool=pool, max_items=10)
        jobs = await bench.items("embed", 1, 2, 3)
        await bench.run_until_idle()
        records = [await bench.job(job) for job in jobs]
        assert {(record.state, record.attempts, record.part) for record in records} == {
            (State.SCHEDULED, 0, "")
        }
        assert await bench.used("api") == {"requests per minute": 0}

    virtually(scenario)


def test_a_paid_step_whose_dependency_is_away_counts_as_unpaid(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        away = True

        async def ask() -> str:
            if away:
                raise QDRANT_AWAY
            return "answer"

        async def call(ctx: Context) -> str:
            return await ctx.step("ask", ask, paid=True, on_unknown="park")

        bench.task(call)
        job = await bench.enqueue("call")
        await bench.run_until_idle()
        assert (await bench.job(job)).state is State.SCHEDULED
        away = False
        worker = bench.worker()
        running = bench.start(worker)
        await bench.ended(job)
        assert (await bench.job(job)).state is State.DONE
        worker.stop()
        await running

    virtually(scenario)


def test_the_inspector_lists_what_jobs_wait_for(virtually: Virtually) -> None:
    """It is listed while reports come in, and for a while after the last one."""

    async def scenario(bench: Bench) -> None:
        away = True

        async def fetch() -> None:
            if away:
                raise DependencyUnavailable("S3", "no route to host", retry_in=5)

        bench.task(fetch)
        job = await bench.enqueue("fetch")
        worker = bench.worker()
        running = bench.start(worker)
        began = bench.clock.wall()
        await asyncio.sleep(22)
        [found] = await load_dependencies(bench.store)
        assert (found.name, found.problem, found.is_away) == ("S3", "no route to host", True)
        assert began <= found.since < began + 2
        assert found.seen >= began + 15
        away = False
        await bench.ended(job)
        await asyncio.sleep(30)
        [found] = await load_dependencies(bench.store)
        assert not found.is_away
        worker.stop()
        await running

    virtually(scenario)


def test_attempts_put_off_are_counted_by_dependency(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.task(search)
        for _ in range(3):
            await bench.enqueue("search")
        await bench.run_until_idle()
        counted = (await load_samples(bench.store))["tidemill_dependency_waits_total"]
        assert dict(counted.series) == {("default", "Qdrant"): (3.0,)}

    virtually(scenario)


def test_a_bad_delay_fails_the_job(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def fetch() -> None:
            raise DependencyUnavailable("S3", "gone", retry_in=-1)

        bench.task(fetch)
        job = await bench.enqueue("fetch")
        await bench.run_until_idle()
        record = await bench.job(job)
        assert record.state is State.FAILED
        assert record.error is not None
        assert record.error.message == "delay: must be a number of seconds, 0 or more, is -1"

    virtually(scenario)
