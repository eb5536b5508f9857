"""Jobs with pools in a worker: never over the limit, uncharged when refused, every unit accounted for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.worker.bench import Bench, Unreliable, Virtually
from tests.worker.fake_provider import Provider, Refused
from tidemill.core.filters import Filter
from tidemill.core.limits import Limit
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.errors import SnoozeFor
from tidemill.tasks.context import Context
from tidemill.telemetry.events import (
    JobReleased,
    JobRetrying,
    JobStartMissed,
    OutcomeRefused,
    PoolClosed,
    PoolOpened,
)
from tidemill.testing.virtual_loop import VirtualLoop

MINUTE = 60.0


def test_i14_a_backlog_keeps_the_quota_full_and_never_passes_it(virtually: Virtually) -> None:
    """Two workers share the pool: 35 jobs at ten per minute take little more than three minutes."""

    async def scenario(bench: Bench) -> None:
        provider = Provider()
        pool = await bench.pool("api", Limit.requests(10, per="minute"))

        async def call() -> None:
            provider.call()
            await asyncio.sleep(2)

        bench.task(call, pool=pool)
        jobs = [await bench.enqueue("call") for _ in range(35)]
        workers = [bench.worker(concurrency=5), bench.worker(concurrency=20)]
        runs = [bench.start(worker) for worker in workers]
        await bench.ended(*jobs)
        assert len(provider.arrivals) == 35
        assert provider.most_within(MINUTE) == 10
        assert provider.arrivals[-1] < 3 * MINUTE + 5
        for worker in workers:
            worker.stop()
        await asyncio.gather(*runs)

    virtually(scenario)


def test_unused_units_come_back_at_once(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        provider = Provider()
        pool = await bench.pool("api", Limit.tokens(1000, per="minute"))

        async def call(ctx: Context) -> None:
            provider.call()
            ctx.used(tokens=50)
            ctx.used(tokens=50)

        bench.task(call, pool=pool, cost={"tokens": 900})
        jobs = [await bench.enqueue("call") for _ in range(5)]
        worker = bench.worker()
        running = bench.start(worker)
        await bench.ended(*jobs[:2])
        assert max(provider.arrivals) < 5, "each settled call leaves room for the next reservation"
        assert await bench.used("api") == {"tokens per minute": 200}
        worker.stop()
        await running

    virtually(scenario)


def test_a_response_reports_used_and_remaining_units(virtually: Virtually) -> None:
    """The provider counted calls of other programs too; its count wins."""
    response = SimpleNamespace(
        status_code=200,
        headers={"x-ratelimit-limit-requests": "100", "x-ratelimit-remaining-requests": "3"},
        usage={"total_tokens": 40, "prompt_tokens": 30, "completion_tokens": 10},
    )

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(100, per="minute"), Limit.tokens(10_000, per="minute"))

        async def call(ctx: Context) -> None:
            ctx.used(response)

        bench.task(call, pool=pool, cost={"tokens": 900})
        await bench.enqueue("call")
        await bench.run_until_idle()
        assert await bench.used("api") == {"requests per minute": 97, "tokens per minute": 40}

    virtually(scenario)


def test_i16_a_refused_job_is_uncharged_and_not_tried_before_retry_after(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        provider = Provider()
        provider.refusals = [Refused(429, {"retry-after": "30"})]
        pool = await bench.pool("api", Limit.requests(10, per="minute"))

        async def call() -> str:
            provider.call()
            return "answered"

        bench.task(call, pool=pool, retry=Retry(attempts=1))
        job = await bench.enqueue("call")
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(1)
        waiting = await bench.job(job)
        assert (waiting.state, waiting.attempts) == (State.READY, 0)
        late = await bench.enqueue("call")
        await bench.ended(job, late)
        done = await bench.job(job)
        assert (done.state, done.attempts) == (State.DONE, 1)
        assert len(provider.arrivals) == 3
        assert 30 <= provider.arrivals[1] < 35
        assert [event.reason for event in bench.events_of(JobReleased)] == ["refused"]
        [closed] = bench.events_of(PoolClosed)
        assert (closed.pool, closed.key, closed.job, closed.reason) == ("api", None, job, "rate")
        [opened] = bench.events_of(PoolOpened)
        assert (opened.pool, opened.ramp) == ("api", False)
        assert closed.until is not None
        assert 30 <= closed.until - opened.since <= 31
        worker.stop()
        await running

    virtually(scenario)


def test_a_call_that_is_too_large_fails_and_other_errors_are_retried(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"))

        async def too_large() -> None:
            raise Refused(413)

        async def broken() -> None:
            raise ValueError("a bug")

        bench.task(too_large, pool=pool)
        bench.task(broken, pool=pool)
        large, buggy = await bench.enqueue("too_large"), await bench.enqueue("broken")
        await bench.run_until_idle()
        failed = await bench.job(large)
        assert (failed.state, failed.reason) == (State.FAILED, "too large")
        assert (await bench.job(buggy)).attempts == 1
        assert len(bench.events_of(JobRetrying)) == 1
        assert not bench.events_of(PoolClosed)

    virtually(scenario)


def test_a_job_without_pools_is_retried_as_usual(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def call(ctx: Context) -> None:
            ctx.used(tokens=700)
            raise Refused(429, {"retry-after": "30"})

        bench.task(call)
        job = await bench.enqueue("call")
        await bench.run_until_idle()
        assert (await bench.job(job)).attempts == 1
        assert not bench.events_of(PoolClosed)

    virtually(scenario)


def test_i14_the_units_of_a_killed_worker_count_again(virtually: Virtually) -> None:
    """It may have made its call at any time before it was found dead."""

    async def scenario(bench: Bench) -> None:
        provider = Provider()
        pool = await bench.pool("api", Limit.requests(1, per="minute"))

        async def call() -> None:
            provider.call()
            await asyncio.sleep(3)

        bench.task(call, pool=pool)
        job = await bench.enqueue("call")
        loop = cast("VirtualLoop", asyncio.get_running_loop())
        process, _ = loop.spawn("victim", bench.worker(lease=30).run())
        await asyncio.sleep(1)
        process.kill()
        other = bench.worker(lease=30, reclaim_every=10)
        running = bench.start(other)
        await bench.ended(job)
        first, second = provider.arrivals
        assert second - first >= 30 + MINUTE
        other.stop()
        await running

    virtually(scenario)


def test_i14_a_handler_that_would_start_too_late_is_not_started(virtually: Virtually) -> None:
    """The claim's reply took longer than half of the pool's jitter; the other half is for the way to the
    provider. Nothing was called, so nothing counts."""

    async def scenario(bench: Bench) -> None:
        provider = Provider()
        pool = await bench.pool("api", Limit.requests(1, per="minute"), jitter=0.5)
        bench.task(_calls(provider), pool=pool)
        job = await bench.enqueue("call")
        line = Unreliable(bench.store)
        line.slow = 0.3
        worker = bench.worker(store=line)
        running = bench.start(worker)
        await asyncio.sleep(5)
        assert provider.arrivals == []
        assert {event.reason for event in bench.events_of(JobReleased)} == {"too late"}
        missed = bench.events_of(JobStartMissed)
        assert len(missed) == len(bench.events_of(JobReleased))
        assert all(event.late == pytest.approx(0.05) for event in missed)
        line.slow = 0.2
        await bench.ended(job)
        assert len(provider.arrivals) == 1
        assert provider.arrivals[0] < 8, "what was handed back unrun is free at once"
        assert (await bench.job(job)).attempts == 1
        worker.stop()
        await running

    virtually(scenario)


def test_a_wait_in_the_store_makes_no_start_late(virtually: Virtually) -> None:
    """The claim waited behind a lock for a second; its units were reserved after that."""

    async def scenario(bench: Bench) -> None:
        provider = Provider()
        pool = await bench.pool("api", Limit.requests(5, per="minute"), jitter=0.5)
        bench.task(_calls(provider), pool=pool)
        line = Unreliable(bench.store)
        line.queued, line.slow = 1.0, 0.2
        jobs = [await bench.enqueue("call") for _ in range(3)]
        worker = bench.worker(store=line)
        running = bench.start(worker)
        await bench.ended(*jobs)
        assert (len(provider.arrivals), bench.events_of(JobStartMissed)) == (3, [])
        worker.stop()
        await running

    virtually(scenario)


def test_a_repeated_claim_is_as_old_as_the_first(virtually: Virtually) -> None:
    """Its reply was lost; the wait of the second request says nothing about when the units were reserved."""

    async def scenario(bench: Bench) -> None:
        provider = Provider()
        pool = await bench.pool("api", Limit.requests(5, per="minute"), jitter=0.5)
        bench.task(_calls(provider), pool=pool)
        job = await bench.enqueue("call")
        line = Unreliable(bench.store)
        line.queued, line.lose = 0.3, 1
        worker = bench.worker(store=line)
        running = bench.start(worker)
        await bench.ended(job)
        assert len(bench.events_of(JobStartMissed)) == 1
        assert len(provider.arrivals) == 1
        worker.stop()
        await running

    virtually(scenario)


@pytest.mark.parametrize("jitters", [(0.5, 10.0), (10.0, 0.5)])
def test_i14_of_several_pools_the_strictest_says_when_a_handler_must_start(
    virtually: Virtually, jitters: tuple[float, float]
) -> None:
    async def scenario(bench: Bench) -> None:
        provider = Provider()
        pools = [
            await bench.pool(f"api-{number}", Limit.requests(1, per="minute"), jitter=jitter)
            for number, jitter in enumerate(jitters)
        ]
        bench.task(_calls(provider), pool=pools)
        await bench.enqueue("call")
        line = Unreliable(bench.store)
        line.slow = 0.3
        bench.start(bench.worker(store=line))
        await asyncio.sleep(5)
        assert provider.arrivals == []
        assert {event.reason for event in bench.events_of(JobReleased)} == {"too late"}

    virtually(scenario)


def test_after_an_outage_of_the_store_jobs_start_at_once(virtually: Virtually) -> None:
    """The store reserved the units with the last of many requests, and reports it."""

    async def scenario(bench: Bench) -> None:
        provider = Provider()
        pool = await bench.pool("api", Limit.requests(5, per="minute"))
        bench.task(_calls(provider), pool=pool)
        for _ in range(3):
            await bench.enqueue("call")
        line = Unreliable(bench.store)
        line.down = True
        bench.start(bench.worker(store=line))
        await asyncio.sleep(4)
        line.down = False
        await asyncio.sleep(10)
        assert len(provider.arrivals) == 3
        assert bench.events_of(JobReleased) == []

    virtually(scenario)


def test_i14_a_claim_whose_answers_were_lost_is_as_old_as_the_first_request(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        provider = Provider()
        pool = await bench.pool("api", Limit.requests(5, per="minute"))
        bench.task(_calls(provider), pool=pool)
        job = await bench.enqueue("call")
        line = Unreliable(bench.store)
        line.lose = 4  # retried after 0.05, 0.1, 0.2 and 0.4 s
        bench.start(bench.worker(store=line))
        await bench.ended(job)
        assert [event.reason for event in bench.events_of(JobReleased)] == ["too late"]

    virtually(scenario)


def test_units_are_too_old_behind_slow_middleware_too(virtually: Virtually) -> None:
    """Even middleware that swallows every exception."""

    async def scenario(bench: Bench) -> None:
        provider = Provider()
        pool = await bench.pool("api", Limit.requests(5, per="minute"))
        bench.task(_calls(provider), pool=pool)
        job = await bench.enqueue("call")
        slow = [2.0, 0.0]

        async def around(ctx: Context, run: Any) -> Any:
            await asyncio.sleep(slow.pop(0))
            try:
                return await run()
            except Exception:
                return None

        await bench.run_until_idle(middleware=(around,))
        assert (await bench.job(job)).state is State.DONE
        assert len(provider.arrivals) == 1
        assert [event.reason for event in bench.events_of(JobReleased)] == ["too late"]
        assert await bench.used("api") == {"requests per minute": 1}

    virtually(scenario)


def test_jobs_with_pools_are_not_claimed_ahead_of_a_slot(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(100_000, per="minute"))

        async def quick() -> None:
            await asyncio.sleep(0.001)

        bench.task(quick, pool=pool)
        jobs = [await bench.enqueue("quick") for _ in range(200)]
        line = Unreliable(bench.store)
        worker = bench.worker(store=line, concurrency=4, until_idle=True)
        await worker.run()
        assert {(await bench.job(job)).state for job in jobs} == {State.DONE}
        assert max(request.limit for request in line.requests if request is not None) <= 4

    virtually(scenario)


def test_i6_the_usage_of_a_cancelled_job_is_settled(virtually: Virtually) -> None:
    """The holder reports it, although its outcome no longer counts."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.tokens(1000, per="minute"), Limit.concurrent(1))

        async def call(ctx: Context) -> None:
            ctx.used(tokens=10)
            await asyncio.sleep(1000)

        bench.task(call, pool=pool, cost={"tokens": 900})
        job = await bench.enqueue("call")
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(1)
        await bench.store.amend(Filter(ids=(job,)), CancelJobs("enough"))
        await asyncio.sleep(5)
        assert (await bench.job(job)).state is State.CANCELLED
        assert await bench.used("api") == {"tokens per minute": 10, "calls at once": 0}
        assert (worker.stats.lost, worker.stats.stale) == (1, 0), "lost, and not refused as well"
        assert bench.events_of(OutcomeRefused) == []
        worker.stop()
        await running

    virtually(scenario)


def test_spend_waits_a_moment_and_releases_the_job_for_longer_waits(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        provider = Provider()
        second = Limit.requests(1, per=3.0)
        short = await bench.pool("short", second)
        long = await bench.pool("long", Limit.tokens(100, per="minute"))

        async def twice(ctx: Context) -> None:
            for _ in range(2):
                async with ctx.spend(short):
                    provider.call()

        async def big(ctx: Context) -> None:
            async with ctx.spend(long, tokens=80):
                provider.call()
                ctx.used(tokens=60)

        bench.task(twice)
        bench.task(big)
        await bench.enqueue("twice")
        await bench.run_until_idle()
        assert 3 <= provider.arrivals[1] - provider.arrivals[0] <= 5

        provider.arrivals.clear()
        jobs = [await bench.enqueue("big") for _ in range(2)]
        worker = bench.worker(concurrency=1)
        running = bench.start(worker)
        await bench.ended(*jobs)
        assert provider.arrivals[1] - provider.arrivals[0] >= MINUTE
        [released] = bench.events_of(JobReleased)
        assert released.reason == "waits for pool long"
        assert [(await bench.job(job)).attempts for job in jobs] == [1, 1]
        worker.stop()
        await running

    virtually(scenario)


def test_a_refusal_inside_spend_closes_that_pool_only(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        first = await bench.pool("first", Limit.requests(10, per="minute"))
        other = await bench.pool("other", Limit.requests(10, per="minute"), keyed=True)

        async def call(ctx: Context) -> None:
            async with ctx.spend(other, key="eu"):
                raise Refused(429, {"retry-after": "30"})

        bench.task(call, pool=first)
        job = await bench.enqueue("call")
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(0.5)
        assert [(event.pool, event.key) for event in bench.events_of(PoolClosed)] == [("other", "eu")]
        assert (await bench.job(job)).attempts == 0
        worker.stop_now()
        await running

    virtually(scenario)


@pytest.mark.parametrize(("how", "closed"), [("cause", True), ("none", False), ("handled", False)])
def test_a_pool_gets_only_refusals_that_caused_the_handlers_error(
    virtually: Virtually, how: str, *, closed: bool
) -> None:
    """A refusal of another service is raised again from None, and is not the provider's."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"))

        def elsewhere() -> None:
            raise Refused(503)

        async def call() -> None:
            try:
                elsewhere()
            except Refused as error:
                if how == "cause":
                    raise SnoozeFor(MINUTE) from error
                if how == "none":
                    raise SnoozeFor(MINUTE) from None
                raise SnoozeFor(MINUTE)  # noqa: B904 - what is merely being handled is the point

        bench.task(call, pool=pool)
        job = await bench.enqueue("call")
        await bench.run_until_idle()
        assert (await bench.job(job)).state is State.SCHEDULED
        assert bool(bench.events_of(PoolClosed)) is closed

    virtually(scenario)


def test_a_call_without_a_report_counts_as_reserved(virtually: Virtually) -> None:
    """Two calls were reserved and one was reported: the larger reservation counts in full."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.tokens(10_000, per="minute"), Limit.requests(10, per="minute"))

        async def call(ctx: Context) -> None:
            async with ctx.spend(pool, tokens=4000):
                ctx.used(tokens=100)

        bench.task(call, pool=pool, cost={"tokens": 900})
        await bench.enqueue("call")
        await bench.run_until_idle()
        assert await bench.used("api") == {"tokens per minute": 4100, "requests per minute": 2}

    virtually(scenario)


def test_another_pool_of_the_task_is_named(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        api = await bench.pool("api", Limit.tokens(1000, per="minute"))
        site = await bench.pool("site", Limit.tokens(1000, per="minute"), keyed=True)

        async def call(ctx: Context, host: str) -> None:
            ctx.used(tokens=1)
            ctx.used(site, tokens=2)

        bench.task(call, pool=[api, site.by(lambda host: host)], cost={"tokens": 500})
        await bench.enqueue("call", b'{"host":"example.org"}')
        await bench.run_until_idle()
        assert await bench.used("api") == {"tokens per minute": 1}
        assert await bench.used("site", "example.org") == {"tokens per minute": 2}

    virtually(scenario)


def test_i20_a_job_released_by_a_stopping_worker_counts_its_call(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        provider = Provider()
        pool = await bench.pool("api", Limit.requests(2, per="minute"), Limit.concurrent(1))

        async def call() -> None:
            provider.call()
            await asyncio.sleep(1000)

        bench.task(call, pool=pool)
        await bench.enqueue("call")
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(1)
        worker.stop_now()
        await running
        assert await bench.used("api") == {"requests per minute": 1, "calls at once": 0}

    virtually(scenario)


def _calls(provider: Provider) -> Any:
    async def call() -> None:
        provider.call()

    return call
