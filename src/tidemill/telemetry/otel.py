"""Spans for OpenTelemetry, from the enqueue of a job to its last attempt.

    send     where the job is enqueued, around the call of the store; many jobs have one `create` each in it
    process  an attempt, in the trace of its enqueue; linked to the attempt before it

The place in the trace is carried in the job's `trace`, as W3C writes it. What an attempt that failed is
linked by is kept as a record for a week: the next one may run anywhere. Nothing here is imported, and nothing
costs anything, until `instrument` is called.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tidemill.core.claims import Claimed
from tidemill.core.courses import Advance, Course, Kind, Next
from tidemill.core.job import NewJob
from tidemill.core.names import MAX_NAME
from tidemill.errors import ClaimLost, ConfigurationError, SnoozeFor, StoreError
from tidemill.telemetry.current import CURRENT, TOGETHER

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, TracerProvider

SYSTEM = "tidemill"
SPAN, KEPT = "span", "kept"
LINKED_FOR = 7 * 86400.0


def instrument(app: Any, tracer_provider: TracerProvider | None = None) -> None:
    """Spans for every job this application sends and runs: `instrument(app)`, before its workers start. By
    default they go to the provider that the program has set up. Harmless when repeated."""
    try:
        from opentelemetry import trace
    except ImportError:
        raise ConfigurationError(
            "instrument: needs the package opentelemetry-api; run pip install opentelemetry-sdk"
        ) from None
    if app.client.tracing is not None:
        return
    tracer = trace.get_tracer("tidemill", tracer_provider=tracer_provider)
    tracing = Spans(tracer, app.client.store, app.secrets.text)
    app.client.tracing = tracing
    app.middlewares.insert(0, tracing.around)


class Spans:
    """`store` is that of the running loop, as the client has it. `redacted` takes the secrets of a job of
    that task and payload out of a text."""

    def __init__(
        self, tracer: Any, store: Callable[[], Awaitable[Any]], redacted: Callable[[str, str, bytes], str]
    ) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._api, self._tracer, self._store = trace, tracer, store
        self._redacted = redacted
        self._format = TraceContextTextMapPropagator()

    @contextmanager
    def sending(self, queue: str, job: NewJob) -> Iterator[NewJob]:
        with self._tracer.start_as_current_span(
            f"send {queue}", kind=self._api.SpanKind.PRODUCER, attributes=_of_job("send", queue, job)
        ):
            yield self._placed(job)

    @contextmanager
    def sending_many(self) -> Iterator[Callable[[str, NewJob], NewJob]]:
        sent = 0

        def create(queue: str, job: NewJob) -> NewJob:
            nonlocal sent
            sent += 1
            with self._tracer.start_as_current_span(
                f"create {queue}", kind=self._api.SpanKind.PRODUCER, attributes=_of_job("create", queue, job)
            ):
                return self._placed(job)

        attributes = {"messaging.system": SYSTEM, **_operation("send")}
        with self._tracer.start_as_current_span(
            "send many", kind=self._api.SpanKind.CLIENT, attributes=attributes
        ) as span:
            yield create
            span.set_attribute("messaging.batch.message_count", sent)

    def here(self) -> str | None:
        carrier: dict[str, str] = {}
        self._format.inject(carrier)
        return carrier.get("traceparent")

    async def around(self, ctx: Any, run: Callable[[], Awaitable[Any]]) -> Any:
        """A middleware: an attempt, or a call for several jobs."""
        claimed = TOGETHER.get() if ctx.batch else (CURRENT.get(),)
        jobs = [job for job in claimed if job is not None]
        before = await self._before(jobs)
        first = jobs[0]
        with self._tracer.start_as_current_span(
            f"process {ctx.queue}",
            context=self._format.extract({"traceparent": first.trace or ""}),
            kind=self._api.SpanKind.CONSUMER,
            attributes=_of_attempt(ctx, jobs),
            links=[*self._links(before), *self._others(jobs)],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            kept = CURRENT.set(replace(first, trace=self.here() or first.trace))
            try:
                return await run()
            except BaseException as error:
                if _failed(error):
                    self._record(span, error, first)
                    await self._keep(jobs, before)
                raise
            finally:
                CURRENT.reset(kept)

    # Spans are exported by the worker, also of a handler in a child process.
    around.stays_in_worker = True  # type: ignore[attr-defined]

    def _placed(self, job: NewJob) -> NewJob:
        return job if job.trace is not None else replace(job, trace=self.here())

    def _context_of(self, traceparent: str) -> Any:
        found = self._format.extract({"traceparent": traceparent})
        return self._api.get_current_span(found).get_span_context()

    def _others(self, jobs: Sequence[Claimed]) -> list[Link]:
        """The first job of a call has it in its trace, the others are linked."""
        contexts = [self._context_of(job.trace) for job in jobs[1:] if job.trace]
        return [self._api.Link(context) for context in contexts if context.is_valid]

    def _links(self, before: Mapping[str, Course]) -> list[Link]:
        contexts = [self._context_of(course.record.decode()) for course in before.values()]
        links = {context.span_id: self._api.Link(context) for context in contexts if context.is_valid}
        return list(links.values())

    async def _before(self, jobs: Sequence[Claimed]) -> dict[str, Course]:
        """Where the attempts before were, of jobs that are not at their first."""
        again = [job for job in jobs if job.attempt > 1 or job.generation]
        if not again:
            return {}
        with suppress(StoreError):
            store = await self._store()
            found = await store.courses(Kind.RECORD, [_record_of(job) for job in again])
            return {job.id: course for job, course in zip(again, found, strict=True) if course is not None}
        return {}

    async def _keep(self, jobs: Sequence[Claimed], before: Mapping[str, Course]) -> None:
        """An attempt must not fail otherwise because this cannot be kept."""
        if (here := self.here()) is None:
            return
        then = Next(name=SPAN, state=KEPT, record=here.encode(), keep=LINKED_FOR)
        known = {job.id: before[job.id].revision if job.id in before else 0 for job in jobs}
        with suppress(StoreError):
            store = await self._store()
            await store.advance(
                [
                    Advance(kind=Kind.RECORD, id=_record_of(job), expected=known[job.id], next=then)
                    for job in jobs
                ]
            )

    def _record(self, span: Span, error: BaseException, job: Claimed) -> None:
        """Of what ended in a process of its own only the words came back."""
        told = getattr(getattr(error, "outcome", None), "error", None)
        kind, message = (type(error).__name__, str(error)) if told is None else (told.type, told.message)
        message = self._redacted(message, job.task, job.payload)
        span.set_attribute("error.type", kind)
        span.set_status(self._api.Status(self._api.StatusCode.ERROR, f"{kind}: {message}"))
        said = {"exception.type": kind, "exception.message": message}
        if told is None:
            whole = "".join(traceback.format_exception(error))
            said["exception.stacktrace"] = self._redacted(whole, job.task, job.payload)
        span.add_event("exception", said)


def _failed(error: BaseException) -> bool:
    """Whether the attempt did. One that puts itself off, was told to stop or is handed back did not."""
    if isinstance(error, SnoozeFor | ClaimLost | asyncio.CancelledError | GeneratorExit):
        return False
    outcome = getattr(error, "outcome", None)
    return outcome is None or getattr(outcome, "error", None) is not None


def _record_of(job: Claimed) -> str:
    return f"{SPAN}-{job.id}"[:MAX_NAME]


def _operation(name: str) -> dict[str, str]:
    return {"messaging.operation.name": name, "messaging.operation.type": name}


def _of_job(operation: str, queue: str, job: NewJob) -> dict[str, str]:
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": queue,
        "messaging.message.id": job.id,
        "tidemill.task": job.task,
        **_operation(operation),
    }


def _of_attempt(ctx: Any, jobs: Sequence[Claimed]) -> dict[str, str | int]:
    named: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.destination.name": ctx.queue,
        "messaging.message.id": ctx.job_id,
        "tidemill.task": ctx.task,
        "tidemill.attempt": ctx.attempt,
        **_operation("process"),
    }
    return named | ({"messaging.batch.message_count": len(jobs)} if ctx.batch else {})
