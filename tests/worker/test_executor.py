"""The outcomes of attempts, read from the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.worker.bench import NO_POOLS, Bench, Virtually
from tidemill.clock import SystemClock
from tidemill.core.claims import ClaimedJob
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.errors import GiveUp, InvalidPayload, RetryAfter, SnoozeFor
from tidemill.tasks.context import Context
from tidemill.tasks.definition import make_task_definition
from tidemill.telemetry.listeners import Signals
from tidemill.testing.clocks import SeededEntropy
from tidemill.worker.attempt import Attempt, CancelReason
from tidemill.worker.event_emitter import EventEmitter
from tidemill.worker.executor import Executor
from tidemill.worker.handler_threads import HandlerThreads
from tidemill.worker.in_flight import InFlight, Slots
from tidemill.worker.metrics import WorkerStats
from tidemill.worker.outbox import DispatchSignal, Outbox, ReportBuffer


def test_a_job_is_done_and_its_result_is_stored(virtually: Virtually) -> None:
    async def double(number: int) -> int:
        return number * 2

    async def scenario(bench: Bench) -> None:
        bench.task(double)
        job = await bench.enqueue("double", b'{"number":21}')
        worker = await bench.run_until_idle()
        record = await bench.job(job)
        assert (record.state, record.result, record.attempts) == (State.DONE, b"42", 1)
        assert worker.stats.done == 1

    virtually(scenario)


def test_a_failing_job_is_retried_and_then_fails(virtually: Virtually) -> None:
    async def broken() -> None:
        raise ValueError("always")

    async def scenario(bench: Bench) -> None:
        bench.task(broken, retry=Retry(attempts=2, first=60, jitter=0))
        job = await bench.enqueue("broken")
        await bench.run_until_idle()
        assert ((await bench.job(job)).state, (await bench.job(job)).attempts) == (State.SCHEDULED, 1)
        await asyncio.sleep(60)
        await bench.run_until_idle()
        record = await bench.job(job)
        assert (record.state, record.attempts, record.reason) == (State.FAILED, 2, "failed")
        assert record.error is not None
        assert "always" in record.error.message

    virtually(scenario)


def test_snooze_retry_and_give_up_exceptions_decide_the_outcome(virtually: Virtually) -> None:
    async def snoozes() -> None:
        raise SnoozeFor(30)

    async def gives_up() -> None:
        raise GiveUp("hopeless")

    async def scenario(bench: Bench) -> None:
        bench.task(snoozes)
        bench.task(gives_up)
        snoozed, given_up = await bench.enqueue("snoozes"), await bench.enqueue("gives_up")
        await bench.run_until_idle()
        assert ((await bench.job(snoozed)).state, (await bench.job(snoozed)).attempts) == (State.SCHEDULED, 0)
        assert (await bench.job(given_up)).state is State.FAILED

    virtually(scenario)


def test_a_bad_payload_fails_at_once_naming_the_field(virtually: Virtually) -> None:
    async def takes(number: int) -> None: ...

    async def scenario(bench: Bench) -> None:
        bench.task(takes)
        job = await bench.enqueue("takes", b'{"number":"x"}')
        await bench.run_until_idle()
        record = await bench.job(job)
        assert (record.state, record.reason) == (State.FAILED, "invalid payload")
        assert record.error is not None
        assert "number" in record.error.message

    virtually(scenario)


def test_a_handler_that_sends_a_bad_payload_itself_is_retried(virtually: Virtually) -> None:
    async def sends() -> None:
        raise InvalidPayload("of another task")

    async def scenario(bench: Bench) -> None:
        bench.task(sends)
        job = await bench.enqueue("sends")
        await bench.run_until_idle()
        assert (await bench.job(job)).state is State.SCHEDULED

    virtually(scenario)


def test_a_result_that_cannot_be_encoded_fails_the_job(virtually: Virtually) -> None:
    async def odd() -> Any:
        return object()

    async def scenario(bench: Bench) -> None:
        bench.task(odd)
        job = await bench.enqueue("odd")
        await bench.run_until_idle()
        assert (await bench.job(job)).reason == "result cannot be stored"

    virtually(scenario)


def test_an_unknown_task_is_released_uncharged(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        job = await bench.enqueue("elsewhere")
        worker = await bench.run_until_idle()
        record = await bench.job(job)
        assert (record.state, record.attempts) == (State.SCHEDULED, 0)
        assert record.unknown_for > 0
        assert worker.stats.released == 1

    virtually(scenario)


def test_sys_exit_in_a_handler_fails_the_job_only(virtually: Virtually) -> None:
    async def leaves() -> None:
        raise SystemExit(3)

    async def scenario(bench: Bench) -> None:
        bench.task(leaves, retry=Retry(attempts=1))
        job = await bench.enqueue("leaves")
        await bench.run_until_idle()
        assert (await bench.job(job)).state is State.FAILED

    virtually(scenario)


class Panic(BaseException):
    """Raised by an extension written in Rust when it panics; it is no Exception."""


def test_a_panic_in_a_handler_fails_the_job_and_gives_the_slot_back(virtually: Virtually) -> None:
    def panicking_predicate(error: BaseException) -> bool:
        raise Panic("in the predicate")

    async def panics() -> None:
        raise Panic("at the worst time")

    async def asks_for_later() -> None:
        raise RetryAfter(5)

    async def fine() -> None: ...

    async def scenario(bench: Bench) -> None:
        bench.task(panics, retry=Retry(attempts=1))
        bench.task(asks_for_later, retry=Retry(on=(panicking_predicate,)))
        bench.task(fine)
        jobs = [await bench.enqueue(task) for task in ("panics", "asks_for_later", "fine")]
        await bench.run_until_idle(concurrency=1)
        states = [(await bench.job(job)).state for job in jobs]
        assert states == [State.FAILED, State.FAILED, State.DONE]

    virtually(scenario)


def test_a_cancellation_raised_by_the_handler_is_its_failure(virtually: Virtually) -> None:
    async def cancels() -> None:
        raise asyncio.CancelledError

    async def scenario(bench: Bench) -> None:
        bench.task(cancels, retry=Retry(attempts=1))
        job = await bench.enqueue("cancels")
        await bench.run_until_idle()
        record = await bench.job(job)
        assert record.state is State.FAILED
        assert record.error is not None
        assert record.error.type == "CancelledError"

    virtually(scenario)


def test_context_lifespan_and_middleware_surround_the_handler(virtually: Virtually) -> None:
    seen: list[Any] = []

    async def handler(ctx: Context, number: int) -> int:
        seen.append((ctx.task, ctx.attempt, ctx.trace_id, ctx.state, number))
        return number

    async def outer(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        seen.append("outer")
        return await call_next() + 1

    async def inner(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        seen.append("inner")
        return await call_next() * 10

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        yield "opened"
        seen.append("closed")

    async def scenario(bench: Bench) -> None:
        bench.task(handler)
        job = await bench.enqueue("handler", b'{"number":4}', trace="t-1")
        await bench.run_until_idle(lifespan=lifespan, middleware=(outer, inner))
        assert seen == ["outer", "inner", ("handler", 1, "t-1", "opened", 4), "closed"]
        assert (await bench.job(job)).result == b"41"

    virtually(scenario)


def test_never_more_attempts_run_than_the_concurrency(virtually: Virtually) -> None:
    running, most = 0, 0

    async def busy() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    async def scenario(bench: Bench) -> None:
        bench.task(busy)
        for _ in range(200):
            await bench.enqueue("busy")
        worker = await bench.run_until_idle(concurrency=7)
        assert (most, worker.stats.done) == (7, 200)

    virtually(scenario)


async def test_an_attempt_stopped_before_its_first_step_gives_its_slot_back() -> None:
    """asyncio never enters a coroutine whose task is cancelled that early, so nothing would free the slot."""
    ran: list[int] = []

    async def note() -> None:
        ran.append(1)

    in_flight, slots, signal, stats = InFlight(), Slots(1), DispatchSignal(), WorkerStats()
    executor = Executor(
        in_flight,
        stats,
        EventEmitter(Signals(), "w", SystemClock(), 0.0),
        slots=slots,
        outbox=Outbox(ReportBuffer(), signal),
        signal=signal,
        entropy=SeededEntropy(1),
        threads=HandlerThreads(1),
        isolated=None,
        middleware=(),
        state=None,
    )
    job = ClaimedJob("a", "default", "note", b"{}", 1, 2, 1, 5, "", 0, 0, None, None, 0.0, 0.0, "")
    attempt = Attempt(job, make_task_definition(note, name="note"), lambda: None, lambda: 0.0, NO_POOLS)
    in_flight.held["a"] = attempt
    executor.submit([attempt])
    executor.stop(attempt, CancelReason.LOST)
    async with asyncio.timeout(5):
        await signal.wait()
        await asyncio.sleep(0)
    assert (ran, slots.running, stats.lost) == ([], 0, 1)
    executor.close()
