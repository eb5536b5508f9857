"""A refusal that a hook sees: the pool gets it once, and only unused units come back."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.worker.bench import Bench, Virtually
from tidemill.core.feedback import Observation, Reason, Refusal
from tidemill.core.late_calls import EXTRA_REQUEST_UNITS
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.outcomes import Success
from tidemill.core.retry import Retry
from tidemill.errors import StoreUnavailable
from tidemill.hooks.watched_call import BEGIN_CALL, WatchedCall, WatchedResponse, begin_call
from tidemill.tasks.context import Context
from tidemill.tasks.pools import Pool
from tidemill.worker.usage import AttemptEnvironment, AttemptUsage

REQUESTS, TOKENS = "requests per minute", "tokens per minute"
LIMITS = (Limit.requests(9, per="minute"), Limit.tokens(10_000, per="minute"))
USAGE = {"usage": {"total_tokens": 40}}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


class StatusError(Exception):
    """An error as the SDKs raise it."""

    def __init__(self, status: int, body: Any = None) -> None:
        super().__init__(f"status {status}")
        self.status_code, self.body = status, body


async def sent(pool: Pool) -> WatchedCall:
    call = begin_call(pool)
    assert call is not None
    await call.leaves()
    return call


async def refusals(bench: Bench) -> int:
    """Returns how many refusals the pool has recorded."""
    minutes = await bench.store.pool_history("api", 0.0)
    return sum(sum(minute.refusals.values()) for minute in minutes)


@pytest.mark.parametrize("ends", ["raises later", "raises at once", "answer, goes on", "answer, ends"])
def test_the_pool_gets_a_refusal_once(virtually: Virtually, ends: str) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)
        attempts = 0

        async def call(ctx: Context) -> None:
            nonlocal attempts
            attempts += 1
            if attempts > 1:
                return
            (await sent(pool)).answered(WatchedResponse(429, {"retry-after": "1"}))
            if ends.startswith("answer"):
                await asyncio.sleep(0.1)
                (await sent(pool)).answered(WatchedResponse(200, {}, USAGE))
            if ends in {"raises later", "answer, goes on"}:
                await asyncio.sleep(0.5)
            if ends.startswith("raises"):
                raise StatusError(429)

        bench.task(call, pool=pool, cost={"tokens": 100}, retry=Retry(attempts=1))
        job = await bench.enqueue("call")
        worker = bench.worker()
        running = bench.start(worker)
        await bench.ended(job)
        assert (await bench.job(job)).state.value == "done"
        assert await refusals(bench) == 1
        worker.stop()
        await running

    virtually(scenario)


def test_a_second_refusal_is_another_one(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)

        async def call(ctx: Context) -> None:
            for _ in range(2):
                (await sent(pool)).answered(WatchedResponse(429, {"retry-after": "1"}))
                await asyncio.sleep(0.5)
            (await sent(pool)).answered(WatchedResponse(200, {}, USAGE))

        bench.task(call, pool=pool, cost={"tokens": 100})
        await bench.enqueue("call")
        await bench.run_until_idle()
        assert await refusals(bench) == 2

    virtually(scenario)


def test_a_report_that_failed_is_left_to_the_settlement(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)

        async def observe(_observations: Any) -> Any:
            raise StoreUnavailable("down")

        vars(bench.store)["observe"] = observe

        async def call(ctx: Context) -> None:
            (await sent(pool)).answered(WatchedResponse(429, {"retry-after": "1"}))
            await asyncio.sleep(0.5)
            (await sent(pool)).answered(WatchedResponse(200, {}, USAGE))

        bench.task(call, pool=pool, cost={"tokens": 100})
        await bench.enqueue("call")
        await bench.run_until_idle()
        assert await refusals(bench) == 1

    virtually(scenario)


def test_a_refused_call_returns_no_tokens_of_a_call_without_an_answer(virtually: Virtually) -> None:
    """The first call ends with a read timeout: the provider may have counted it."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)

        async def call(ctx: Context) -> None:
            await sent(pool)
            (await sent(pool)).answered(WatchedResponse(429, {"retry-after": "600"}))
            raise StatusError(429)

        bench.task(call, pool=pool, cost={"tokens": 100})
        await bench.enqueue("call")
        await bench.run_until_idle()
        assert await bench.used("api") == {REQUESTS: 2, TOKENS: 100}

    virtually(scenario)


@pytest.mark.parametrize("seen", ["by the hook", "by the handler"])
def test_a_stream_that_breaks_off_keeps_its_tokens(virtually: Virtually, seen: str) -> None:
    """The status was sent at the start of the stream."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)

        async def call(ctx: Context) -> None:
            if seen == "by the hook":
                (await sent(pool)).answered(WatchedResponse(200, {}, OVERLOADED))
            raise StatusError(200, OVERLOADED)

        bench.task(call, pool=pool, cost={"tokens": 100})
        await bench.enqueue("call")
        await bench.run_until_idle()
        assert await refusals(bench) == 1
        assert await bench.used("api") == {REQUESTS: 1, TOKENS: 100}

    virtually(scenario)


def test_a_refusal_after_a_failed_commit_is_reported(virtually: Virtually) -> None:
    """A transaction reads the usage before it commits, and the handler may continue after an error."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)
        reports: list[tuple[float, int]] = []

        async def call(ctx: Context) -> None:
            await sent(pool)
            begin = cast("Any", BEGIN_CALL.get())
            begin.__self__._sink.spent(Success())  # as `ctx.transaction()` does
            (await sent(pool)).answered(WatchedResponse(429, {"retry-after": "1"}))
            await asyncio.sleep(0.5)
            reports.append(((await bench.used("api"))[REQUESTS], await refusals(bench)))

        bench.task(call, pool=pool, cost={"tokens": 100})
        await bench.enqueue("call")
        await bench.run_until_idle()
        assert reports == [(2, 1)]

    virtually(scenario)


def test_other_threads_may_report_while_refusals_are_read(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        environment = AttemptEnvironment({}, bench.store, lambda: 0.0, asyncio.get_running_loop())
        job = cast("Any", type("Job", (), {"id": "a", "needs": (Need("api", None, EXTRA_REQUEST_UNITS),)}))
        usage = AttemptUsage(environment, job, lambda: 0.0)

        class Busy:
            """Another thread adds a pool whenever this one is read."""

            pool, key, remaining, amounts = "api", None, {"x": 1.0}, {"x": 1.0}
            reads = 0

            @property
            def refusal(self) -> Refusal:
                self.reads += 1
                refusal = Refusal(reason=Reason.RATE)
                usage.observe(Observation(pool=f"other {self.reads}", refusal=refusal))
                return refusal

        usage.observe(cast("Any", Busy()))
        assert len(usage.refusals) >= 1

    virtually(scenario)


@pytest.mark.parametrize(("requests", "counts"), [(1, 1), (2, 2)])
def test_a_client_that_shows_no_departure_is_never_late(
    virtually: Virtually, requests: int, counts: int
) -> None:
    """The call took 40 s. Its units count from the claim, and those of another request from its report."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", *LIMITS)

        async def call(ctx: Context) -> None:
            await asyncio.sleep(40)
            request = begin_call(pool)
            assert request is not None
            request.left(requests)
            request.answered(WatchedResponse(200, {}, USAGE))
            await asyncio.sleep(0.01)

        bench.task(call, pool=pool, cost={"tokens": 100})
        await bench.enqueue("call")
        await bench.run_until_idle()
        assert (await bench.used("api"))[REQUESTS] == counts
        await asyncio.sleep(25)
        assert (await bench.used("api"))[REQUESTS] == counts - 1

    virtually(scenario)
