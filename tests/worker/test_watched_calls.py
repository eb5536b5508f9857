"""Hooks that watch a handler's requests, in virtual time: late ones, extra ones, and their answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.worker.bench import Bench, Virtually
from tidemill.core.limits import Limit
from tidemill.core.states import State
from tidemill.hooks.watched_call import WatchedCall, WatchedResponse, begin_call
from tidemill.tasks.context import Context
from tidemill.tasks.pools import Pool
from tidemill.telemetry.events import FeedbackProblem, PoolClosed, UnreservedCall

REQUESTS, TOKENS = "requests per minute", "tokens per minute"
LIMITS = (Limit.requests(3, per="minute"), Limit.tokens(10_000, per="minute"))
USAGE = {"usage": {"total_tokens": 40, "prompt_tokens": 30}}


def begun(pool: Pool) -> WatchedCall:
    call = begin_call(pool)
    assert call is not None
    return call


@pytest.mark.parametrize(("delay", "counts_until"), [(0.2, 60.8), (0.3, 61.1), (20.0, 80.8)])
def test_i14_a_late_request_counts_from_when_it_leaves(
    virtually: Virtually, delay: float, counts_until: float
) -> None:
    """The jitter is 0.5 s: nothing is late before half of it has passed."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)
        begins = 0.0

        async def call(ctx: Context) -> None:
            nonlocal begins
            begins = asyncio.get_running_loop().time()
            request = begun(pool)
            await asyncio.sleep(delay)
            await request.leaves()
            request.answered(WatchedResponse(200, {}, USAGE))

        bench.task(call, pool=pool, cost={"tokens": 100})
        job = await bench.enqueue("call")
        await bench.run_until_idle()
        assert (await bench.job(job)).state is State.DONE
        loop = asyncio.get_running_loop()
        await asyncio.sleep(begins + counts_until - 0.6 - loop.time())
        assert await bench.used("api") == {REQUESTS: 1, TOKENS: 40}
        await asyncio.sleep(0.9)
        assert await bench.used("api") == {REQUESTS: 0, TOKENS: 0}

    virtually(scenario)


def test_a_slow_upload_is_reported_at_its_end_too(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)

        async def call(ctx: Context) -> None:
            request = begun(pool)
            for _ in range(2):  # the headers; the body takes 20 s
                await request.leaves()
                await asyncio.sleep(20)

        bench.task(call, pool=pool, cost={"tokens": 100})
        await bench.enqueue("call")
        await bench.run_until_idle()
        await asyncio.sleep(30)
        assert await bench.used("api") == {REQUESTS: 1, TOKENS: 100}, (
            "70 s after the claim, 50 after the body"
        )

    virtually(scenario)


def test_requests_beyond_the_reservation_count_at_once_and_warn_once(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)
        used: list[float] = []

        async def call(ctx: Context) -> None:
            for _ in range(3):
                request = begun(pool)
                await request.leaves()
                used.append((await bench.used("api"))[REQUESTS])
                request.answered(WatchedResponse(200, {}, USAGE))
            async with ctx.spend(pool, tokens=100):
                request = begun(pool)
                await request.leaves()
                request.answered(WatchedResponse(200, {}, USAGE))

        bench.task(call, pool=pool, cost={"tokens": 100, "requests": 2})
        await bench.enqueue("call")
        await bench.run_until_idle()
        assert used == [2, 2, 3]
        [event] = bench.events_of(UnreservedCall)
        assert (event.pool, event.key) == ("api", None)

    virtually(scenario)


@pytest.mark.parametrize("reported", ["response", "amount", "twice", "before the end"])
def test_an_answer_reported_again_by_the_handler_counts_once(virtually: Virtually, reported: str) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)

        async def call(ctx: Context) -> None:
            request = begun(pool)
            await request.leaves()
            request.answered(WatchedResponse(200, {}))
            if reported == "before the end":
                ctx.used(tokens=50)
            request.answered(WatchedResponse(200, {}, USAGE))
            if reported == "response":
                ctx.used({"usage": {"total_tokens": 40}})
            elif reported != "before the end":
                ctx.used(tokens=50)
            if reported == "twice":
                ctx.used(tokens=7)  # of another call, which no hook has seen

        bench.task(call, pool=pool, cost={"tokens": 100})
        await bench.enqueue("call")
        await bench.run_until_idle()
        tokens = {"response": 40, "amount": 50, "twice": 57, "before the end": 50}[reported]
        assert await bench.used("api") == {REQUESTS: 1, TOKENS: tokens}

    virtually(scenario)


def test_a_hidden_refusal_closes_the_pool_before_the_attempt_ends(virtually: Virtually) -> None:
    """Only once: an answer follows, so the settlement does not report it again."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)
        closed: list[int] = []

        async def call(ctx: Context) -> None:
            request = begun(pool)
            await request.leaves()
            request.answered(WatchedResponse(429, {"retry-after": "5"}))
            await asyncio.sleep(0.3)
            closed.append(len(bench.events_of(PoolClosed)))
            await asyncio.sleep(20)
            request = begun(pool)
            await request.leaves()
            request.answered(WatchedResponse(200, {}, USAGE))

        bench.task(call, pool=pool, cost={"tokens": 100})
        job = await bench.enqueue("call")
        await bench.run_until_idle()
        assert (await bench.job(job)).state is State.DONE
        assert closed == [1]
        assert len(bench.events_of(PoolClosed)) == 1
        assert await bench.used("api") == {REQUESTS: 2, TOKENS: 40}, "what was refused took no tokens"
        [view] = await bench.store.pools()
        assert view.closures == ()

    virtually(scenario)


def test_a_refusal_that_ends_the_attempt_is_reported_by_its_settlement_alone(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)
        observed: list[Any] = []
        plain = bench.store.observe

        async def observe(observations: Any) -> Any:
            observed.append(observations)
            return await plain(observations)

        vars(bench.store)["observe"] = observe

        async def call(ctx: Context) -> None:
            request = begun(pool)
            await request.leaves()
            request.answered(WatchedResponse(429, {"retry-after": "5"}))

        bench.task(call, pool=pool, cost={"tokens": 100})
        await bench.enqueue("call")
        await bench.run_until_idle()
        await asyncio.sleep(1)
        assert observed == []
        assert len(bench.events_of(PoolClosed)) == 1

    virtually(scenario)


def test_an_unreachable_store_delays_no_request(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)
        waited: list[float] = []

        async def reserve(*_: Any) -> None:
            await asyncio.sleep(30)

        vars(bench.store)["reserve"] = reserve

        async def call(ctx: Context) -> None:
            loop = asyncio.get_running_loop()
            request = begun(pool)
            await asyncio.sleep(3)
            began = loop.time()
            await request.leaves()
            waited.append(loop.time() - began)

        bench.task(call, pool=pool, cost={"tokens": 100})
        job = await bench.enqueue("call")
        await bench.run_until_idle()
        assert waited == [pytest.approx(1.0, abs=0.01)]
        assert (await bench.job(job)).state is State.DONE

    virtually(scenario)


def test_a_keyed_pool_without_a_key_is_reported_and_not_counted(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)
        site = await bench.pool("site", Limit.requests(3, per="minute"), keyed=True)

        async def call(ctx: Context) -> None:
            assert begin_call(site) is None

        bench.task(call, pool=pool, cost={"tokens": 100})
        await bench.enqueue("call")
        await bench.run_until_idle()
        [problem] = bench.events_of(FeedbackProblem)
        assert problem.problem.startswith("watch: pool 'site' is keyed")
        assert begin_call(site) is None, "nor outside of an attempt"

    virtually(scenario)
