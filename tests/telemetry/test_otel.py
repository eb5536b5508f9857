"""OpenTelemetry spans from enqueue to run, with the real SDK."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, format_span_id, format_trace_id

from tests.telemetry import isolated_handlers
from tidemill import GiveUp, QueueFull, Retry, SnoozeFor, StoreUnavailable, Tidemill
from tidemill.core.documents import DocumentKind
from tidemill.core.jobs import trace_id
from tidemill.stores.memory import MemoryStore
from tidemill.telemetry.current_attempt import CurrentAttemptFilter, current_attempt
from tidemill.telemetry.events import JobEnqueued, JobStarted
from tidemill.telemetry.otel import instrument

AGAIN = Retry(attempts=3, first=0)


class Traced:
    """An application and the spans that it exported."""

    def __init__(self, app: Tidemill) -> None:
        self.app, self._kept = app, InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = self.provider.get_tracer("test")
        instrument(app, self.provider)

    async def work(self) -> None:
        await self.app.worker(until_idle=True).run()

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._kept.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        [span] = self.spans(name)
        return span


@pytest.fixture
def traced() -> Traced:
    return Traced(Tidemill("memory://"))


def _context(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def _trace(span: ReadableSpan) -> str:
    return format_trace_id(_context(span).trace_id)


def _id(span: ReadableSpan) -> str:
    return format_span_id(_context(span).span_id)


def _parent(span: ReadableSpan) -> str | None:
    return None if span.parent is None else format_span_id(span.parent.span_id)


def _linked(span: ReadableSpan) -> list[str]:
    return [format_span_id(link.context.span_id) for link in span.links]


async def test_one_trace_from_the_request_over_the_enqueue_to_the_run_and_on(traced: Traced) -> None:
    app = traced.app

    @app.task(name="second", queue="later")
    async def second() -> None: ...

    @app.task(name="first", queue="songs")
    async def first() -> None:
        with traced.tracer.start_as_current_span("asking"):
            await second.enqueue()

    async with app:
        with traced.tracer.start_as_current_span("request"):
            job = await first.enqueue()
        await traced.work()
    request, sent, ran, step_span, passed_on, last = (
        traced.span(name)
        for name in ("request", "send songs", "process songs", "asking", "send later", "process later")
    )
    chain = [request, sent, ran, step_span, passed_on, last]
    assert [_parent(span) for span in chain] == [None, *map(_id, chain[:-1])]
    assert len({_trace(span) for span in chain}) == 1
    assert (sent.kind, ran.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    common = {
        "messaging.system": "tidemill",
        "messaging.destination.name": "songs",
        "messaging.message.id": job.id,
        "tidemill.task": "first",
    }
    operation = {"messaging.operation.name": "send", "messaging.operation.type": "send"}
    assert dict(sent.attributes or {}) == common | operation
    operation = {"messaging.operation.name": "process", "messaging.operation.type": "process"}
    assert dict(ran.attributes or {}) == common | operation | {"tidemill.attempt": 1}
    assert ran.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("store", ["memory", "sqlite", "redis", "postgres"])
async def test_attempts_are_in_the_trace_of_their_enqueue_and_linked_to_the_one_before(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The next attempt may run in another process, because the store keeps the span."""
    match store:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/jobs.db"
        case name:
            url = request.getfixturevalue(f"{name}_url")
    traced, attempts = Traced(Tidemill(url)), 0

    @traced.app.task(name="work", queue="songs", retry=AGAIN)
    async def work() -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise ValueError(f"no {attempts}")

    async with traced.app:
        await work.enqueue()
        await traced.work()
        sent, tries = traced.span("send songs"), traced.spans("process songs")
        assert [(span.attributes or {})["tidemill.attempt"] for span in tries] == [1, 2, 3]
        assert {_trace(span) for span in tries} == {_trace(sent)}
        assert {_parent(span) for span in tries} == {_id(sent)}
        assert [_linked(span) for span in tries] == [[], [_id(tries[0])], [_id(tries[1])]]
        assert [span.status.status_code for span in tries] == [
            StatusCode.ERROR,
            StatusCode.ERROR,
            StatusCode.UNSET,
        ]
        first = tries[0]
        assert first.status.description == "ValueError: no 1"
        assert (first.attributes or {})["error.type"] == "ValueError"
        [event] = first.events
        assert (event.attributes or {})["exception.message"] == "no 1"
        kept = await traced.app.store.find_documents(DocumentKind.RECORD, name="span")
        assert [document.until is not None for document in kept.documents] == [True]  # it expires


async def test_a_span_has_no_secret_of_its_job(traced: Traced) -> None:
    @traced.app.task(name="pay", queue="songs", retry=Retry(attempts=1))
    async def pay(api_key: str) -> None:
        raise ValueError(f"{api_key} is wrong; password=other-canary")

    async with traced.app:
        await pay.enqueue("canary-7f3a91")
        await traced.work()
    span = traced.span("process songs")
    [event] = span.events
    assert "canary" not in f"{span.status.description} {event.attributes}"
    assert "[hidden] is wrong" in str((event.attributes or {})["exception.stacktrace"])


async def test_an_attempt_that_only_puts_itself_off_has_not_failed(traced: Traced) -> None:
    snoozed: list[int] = []

    @traced.app.task(name="work", queue="songs")
    async def work() -> None:
        if not snoozed:
            snoozed.append(1)
            raise SnoozeFor(0)

    async with traced.app:
        await work.enqueue()
        await traced.work()
    assert [span.status.status_code for span in traced.spans("process songs")] == [StatusCode.UNSET] * 2


async def test_many_jobs_have_a_span_each_within_that_of_their_sending(traced: Traced) -> None:
    @traced.app.task(name="work", queue="songs")
    async def work(number: int) -> None: ...

    async with traced.app:
        await traced.app.enqueue_many(work.job(number) for number in range(3))
        await traced.work()
    sent, made = traced.span("send many"), traced.spans("create songs")
    assert sent.kind is SpanKind.CLIENT
    assert (sent.attributes or {})["messaging.batch.message_count"] == 3
    assert {_parent(span) for span in made} == {_id(sent)}
    assert {_parent(span) for span in traced.spans("process songs")} == {_id(span) for span in made}


async def test_a_call_for_several_jobs_is_one_span_with_links_to_each(traced: Traced) -> None:
    failed: list[int] = []

    @traced.app.batch_task(name="embed", queue="texts", max_items=3, linger=0, on_error="fail", retry=AGAIN)
    async def embed(texts: list[str]) -> list[int]:
        if not failed:
            failed.append(1)
            raise ValueError("once")
        return [len(text) for text in texts]

    async with traced.app:
        await traced.app.enqueue_many(embed.job(text) for text in ("a", "b", "c"))
        await traced.work()
    made = traced.spans("create texts")
    once, again = traced.spans("process texts")
    assert (once.attributes or {})["messaging.batch.message_count"] == 3
    assert _parent(once) == _id(made[0])
    assert _linked(once) == [_id(made[1]), _id(made[2])]
    assert _linked(again) == [_id(once), _id(made[1]), _id(made[2])]


async def test_steps_of_a_flow_are_in_the_trace_of_who_sent_it(traced: Traced) -> None:
    @traced.app.task(name="one", queue="steps")
    async def one() -> int:
        return 1

    @traced.app.task(name="two", queue="steps")
    async def two(number: int) -> int:
        return number

    async with traced.app:
        flow = traced.app.flow("both")
        flow.add(two, number=flow.add(one))
        with traced.tracer.start_as_current_span("request"):
            await flow.enqueue()
        await traced.work()
    request, steps = traced.span("request"), traced.spans("process steps")
    assert len(steps) == 2
    assert {_parent(span) for span in steps} == {_id(request)}


async def test_a_sending_that_fails_is_an_error(traced: Traced) -> None:
    traced.app.queue("songs", max_length=1)

    @traced.app.task(name="work", queue="songs")
    async def work() -> None: ...

    async with traced.app:
        await work.enqueue()
        with pytest.raises(QueueFull):
            await work.enqueue()
    _, sent = traced.spans("send songs")
    assert sent.status.status_code is StatusCode.ERROR
    assert [event.name for event in sent.events] == ["exception"]


async def test_a_trace_that_the_sender_gave_stays_and_one_as_w3c_writes_it_is_gone_on_with(
    traced: Traced,
) -> None:
    seen: list[str] = []

    @traced.app.task(name="work", queue="songs")
    async def work() -> None:
        attempt = current_attempt()
        assert attempt is not None
        seen.append(attempt.trace)

    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with traced.app:
        named = await work.using(trace="request-7").enqueue()
        placed = await work.using(trace=parent).enqueue()
        await traced.work()
        jobs = await traced.app.store.get([named.id, placed.id])
    assert [job and job.trace for job in jobs] == ["request-7", parent]
    one, other = traced.spans("process songs")
    assert one.parent is None
    assert _parent(other) == "00f067aa0ba902b7"
    assert seen == [_trace(one), "4bf92f3577b34da6a3ce929d0e0e4736"]


async def test_q15_every_line_of_a_handler_has_the_trace_id_that_opentelemetry_has(
    traced: Traced, caplog: pytest.LogCaptureFixture
) -> None:
    """On the loop, in a thread and in a child process; the job's events have it too."""
    app, logged, seen = traced.app, [], {}

    @app.on(JobEnqueued, JobStarted)
    def hear(event: JobEnqueued | JobStarted) -> None:
        logged.append((event.task, event.trace))

    @app.task(name="async", queue="async")
    async def on_the_loop() -> None:
        logging.getLogger("handler").warning("on the loop")

    @app.task(name="sync", queue="sync")
    def in_a_thread() -> None:
        logging.getLogger("handler").warning("in a thread")

    in_a_process = app.task(name="apart", queue="apart", isolate=True)(isolated_handlers.current_trace)
    refuse = app.task(name="refuse", queue="refuse", isolate=True, retry=Retry(attempts=1))(
        isolated_handlers.fails
    )
    caplog.handler.addFilter(CurrentAttemptFilter())
    async with app:
        placed = (on_the_loop, in_a_thread)
        jobs: dict[str, Any] = {task.name: await task.enqueue() for task in placed}
        jobs["apart"] = await in_a_process.using(trace="request-7").enqueue()
        await refuse.enqueue()
        await traced.work()
        seen["apart"] = await jobs["apart"].result()
    for record in caplog.records:
        if record.name == "handler":
            seen[record.task] = record.trace  # type: ignore[attr-defined]
            assert record.job == jobs[record.task].id  # type: ignore[attr-defined]
            assert record.attempt == 1  # type: ignore[attr-defined]
    traces = {name: _trace(traced.span(f"process {name}")) for name in jobs}
    assert seen == traces
    for task in placed:
        assert logged.count((task.name, traces[task.name])) == 2  # when enqueued, and when started
    failed = traced.span("process refuse")  # only type and message came back from the child process
    assert failed.status.description == "ValueError: apart"
    assert (failed.attributes or {})["error.type"] == "ValueError"


async def test_a_failed_write_of_trace_records_does_not_change_the_outcome() -> None:
    class Forgetful(MemoryStore):
        async def advance(self, advances: Any) -> Any:
            raise StoreUnavailable("no space for records")

    traced = Traced(Tidemill(store=Forgetful()))

    @traced.app.task(name="work", queue="songs")
    async def work() -> None:
        raise GiveUp("for good")

    async with traced.app:
        job = await work.enqueue()
        await traced.work()
        found = await traced.app.inspect.job(job.id)
    assert found.job.error is not None
    assert found.job.error.message == "for good"


def test_instrumenting_twice_is_harmless(traced: Traced) -> None:
    instrument(traced.app, traced.provider)
    assert len(traced.app.middlewares) == 1


def test_without_opentelemetry_nothing_is_imported_and_the_call_says_what_to_install() -> None:
    program = """
import sys
import tidemill, tidemill.worker.worker, tidemill.client.client
assert not [name for name in sys.modules if name.startswith("opentelemetry")], sys.modules
sys.modules["opentelemetry"] = None
from tidemill.telemetry.otel import instrument
try:
    instrument(tidemill.Tidemill("memory://"))
except tidemill.ConfigurationError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install opentelemetry-sdk" in done.stdout


@pytest.mark.parametrize(
    ("trace", "shown"),
    [
        (None, "job-1"),
        ("request-7", "request-7"),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "4bf92f3577b34da6a3ce929d0e0e4736"),
        ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",) * 2,
        ("4bf92f3577b34da6a3ce929d0e0e4736",) * 2,
    ],
)
def test_the_displayed_trace_id(trace: str | None, shown: str) -> None:
    assert trace_id(trace, "job-1") == shown


async def test_q15_json_lines_carry_it_too(tmp_path: Path) -> None:
    """The JSON lines of a worker in a separate program."""
    program = """
import asyncio, structlog
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_trace_id, get_current_span
from tidemill import Tidemill
from tidemill.logs import configure
from tidemill.telemetry.otel import instrument

configure(format="json")
app = Tidemill("memory://")
instrument(app, TracerProvider())

@app.task(name="work")
async def work() -> None:
    here = format_trace_id(get_current_span().get_span_context().trace_id)
    structlog.get_logger().info("within", expected=here)

async def main() -> None:
    async with app:
        await work.using(id="job-1").enqueue()
        await app.worker(until_idle=True).run()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    [line] = [json.loads(line) for line in done.stderr.splitlines() if '"within"' in line]
    assert line["trace"] == line["expected"] != "0" * 32
    assert (line["job"], line["attempt"]) == ("job-1", 1)
