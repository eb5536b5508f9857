"""Q15: every log line of a handler has the ids of its job, on the loop, in threads and in processes."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from typing import Any

import pytest
import structlog

from tests.worker.bench import Bench, Virtually
from tidemill.clock import SystemClock, SystemEntropy
from tidemill.core.jobs import JobGroup, NewJob
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.context import Context
from tidemill.tasks.definition import make_task_definition
from tidemill.telemetry.current_attempt import (
    CurrentAttempt,
    CurrentAttemptFilter,
    add_current_attempt,
    current_attempt,
)
from tidemill.telemetry.events import JobStarted, SlotStuck
from tidemill.worker import Worker, WorkerOptions


def test_there_is_none_outside_of_an_attempt() -> None:
    assert current_attempt() is None
    assert add_current_attempt(None, "info", {"event": "hello"}) == {"event": "hello"}


def test_an_async_handler_and_what_it_starts_know_their_attempt(virtually: Virtually) -> None:
    seen: list[CurrentAttempt | None] = []

    async def below() -> None:
        await asyncio.sleep(1)
        seen.append(current_attempt())

    async def handler() -> None:
        seen.append(current_attempt())
        await asyncio.gather(below())

    async def scenario(bench: Bench) -> None:
        bench.task(handler)
        job = await bench.enqueue("handler", trace="t-1")
        await bench.run_until_idle()
        expected = CurrentAttempt(job=job, task="handler", queue="default", attempt=1, trace="t-1")
        assert seen == [expected, expected]
        assert current_attempt() is None

    virtually(scenario)


def test_middleware_knows_the_attempt(virtually: Virtually) -> None:
    seen: list[str | None] = []

    async def handler() -> None: ...

    async def around(context: Context, run: Any) -> Any:
        attempt = current_attempt()
        seen.append(None if attempt is None else attempt.job)
        return await run()

    async def scenario(bench: Bench) -> None:
        bench.task(handler)
        job = await bench.enqueue("handler")
        await bench.run_until_idle(middleware=(around,))
        assert seen == [job]

    virtually(scenario)


def test_nothing_a_handler_sets_reaches_the_next_in_its_slot(virtually: Virtually) -> None:
    """The next attempt starts from the asyncio task of the attempt before."""
    left: contextvars.ContextVar[str] = contextvars.ContextVar("left", default="clean")
    seen: list[str] = []

    async def handler(number: int) -> None:
        seen.append(left.get())
        left.set(f"left by {number}")

    async def scenario(bench: Bench) -> None:
        bench.task(handler)
        for number in range(30):
            await bench.enqueue("handler", b'{"number":%d}' % number)
        await bench.run_until_idle(concurrency=1)
        assert seen == ["clean"] * 30

    virtually(scenario)


def test_a_start_listener_runs_in_the_context_of_the_starting_attempt(virtually: Virtually) -> None:
    """The context is that of the starting attempt, not of the attempt that left the slot."""
    calls: list[tuple[str, str | None]] = []

    async def handler() -> None: ...

    def on_event(event: JobStarted) -> None:
        attempt = current_attempt()
        calls.append((event.job, None if attempt is None else attempt.job))

    async def scenario(bench: Bench) -> None:
        bench.task(handler)
        bench.signals.subscribe(on_event, JobStarted)
        jobs = [await bench.enqueue("handler") for _ in range(5)]
        await bench.run_until_idle(concurrency=1)
        assert calls == [(job, job) for job in jobs]

    virtually(scenario)


def test_a_timeout_listener_runs_in_no_other_attempt_s_context(virtually: Virtually) -> None:
    """One timer serves all attempts, and the first attempt starts it."""
    calls: list[tuple[str, str | None]] = []

    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
        await asyncio.sleep(30)

    def on_event(event: SlotStuck) -> None:
        attempt = current_attempt()
        calls.append((event.job, None if attempt is None else attempt.job))

    async def scenario(bench: Bench) -> None:
        bench.task(stubborn, timeout=10.0)
        bench.signals.subscribe(on_event, SlotStuck)
        jobs = [await bench.enqueue("stubborn") for _ in range(2)]
        bench.start(bench.worker(concurrency=2))
        await asyncio.sleep(20)
        assert sorted(calls) == [(job, None) for job in jobs]

    virtually(scenario)


async def _run_in_threads(handler: Any, *ids: str) -> None:
    store = await MemoryStore().open()
    task = make_task_definition(handler, name="handler")
    jobs = tuple(NewJob(id=job, task="handler", payload=b"{}", trace=f"trace-{job}") for job in ids)
    await store.insert([JobGroup("default", jobs)])
    options = WorkerOptions(until_idle=True)
    await Worker(
        store, {"handler": task}, options=options, clock=SystemClock(), entropy=SystemEntropy()
    ).run()


@pytest.fixture
def structlog_lines() -> Any:
    before = structlog.get_config() if structlog.is_configured() else None
    lines = list[dict[str, Any]]()

    def keep(_logger: Any, _method: str, line: Any) -> Any:
        lines.append(dict(line))
        raise structlog.DropEvent

    structlog.configure(processors=[add_current_attempt, keep], cache_logger_on_first_use=False)
    yield lines
    structlog.reset_defaults()
    if before is not None:
        structlog.configure(**before)


async def test_q15_lines_of_thread_handlers_carry_their_own_ids(
    structlog_lines: list[dict[str, Any]],
) -> None:
    together = threading.Barrier(2, timeout=10)

    def handler() -> None:
        together.wait()  # both run at the same time, so that ids could mix
        attempt = current_attempt()
        assert attempt is not None
        structlog.get_logger().info("hello", i_am=attempt.job)
        together.wait()

    await _run_in_threads(handler, "a", "b")
    fields = ("i_am", "job", "trace", "attempt", "task")
    logged = sorted(tuple(line[field] for field in fields) for line in structlog_lines)
    assert logged == [("a", "a", "trace-a", 1, "handler"), ("b", "b", "trace-b", 1, "handler")]


async def test_a_log_line_s_own_fields_are_kept(structlog_lines: list[dict[str, Any]]) -> None:
    def handler() -> None:
        structlog.get_logger().info("about another", job="another")

    await _run_in_threads(handler, "a")
    assert [(line["job"], line["task"]) for line in structlog_lines] == [("another", "handler")]


async def test_q15_records_of_logging_carry_them_too() -> None:
    shown: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            shown.append(self.format(record))

    keep, logger = Keep(), logging.getLogger("tests.telemetry.current")
    keep.addFilter(CurrentAttemptFilter())
    keep.setFormatter(logging.Formatter("%(job)s %(task)s %(attempt)s %(trace)s %(message)s"))
    logger.addHandler(keep)
    try:
        await _run_in_threads(lambda: logger.warning("inside"), "a")
        logger.warning("outside")
    finally:
        logger.removeHandler(keep)
    assert shown == ["a handler 1 trace-a inside", "- - - - outside"]
