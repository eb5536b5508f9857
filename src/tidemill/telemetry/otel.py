"""OpenTelemetry spans for enqueues and attempts, and the interface through which the client creates spans."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from tidemill.core.claims import ClaimedJob
from tidemill.core.documents import Advance, Document, DocumentKind, DocumentUpdate
from tidemill.core.jobs import NewJob
from tidemill.core.validation import MAX_NAME_CHARS
from tidemill.errors import ClaimLost, ConfigurationError, SnoozeFor, StoreError
from tidemill.telemetry.current_attempt import CURRENT_ATTEMPT, CURRENT_BATCH

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, TracerProvider


class EnqueueTracer(Protocol):
    """Protocol of the tracer that the client calls when it enqueues. A job that already has a trace keeps
    it."""

    def trace_enqueue(self, queue: str, job: NewJob) -> AbstractContextManager[NewJob]:
        """Opens a span while one job is enqueued. Yields the job with its trace set."""
        ...

    def trace_enqueue_many(self) -> AbstractContextManager[Callable[[str, NewJob], NewJob]]:
        """Opens a span while many jobs are enqueued. Yields a function that takes a queue and a job, and
        returns the job with its trace set."""
        ...

    def current_trace(self) -> str | None:
        """Returns the `traceparent` of the current span, for jobs that another process will enqueue. None if
        there is no span."""
        ...


MESSAGING_SYSTEM = "tidemill"
SPAN_DOCUMENT, SPAN_STATE = "span", "stored"
SPAN_RETENTION_SECONDS = 7 * 86400.0


def instrument(app: Any, tracer_provider: TracerProvider | None = None) -> None:
    """Makes the application create spans for every job that it enqueues and runs. Call it before the workers
    start. `tracer_provider=None`: uses the tracer provider that the program has set up."""
    try:
        from opentelemetry import trace
    except ImportError:
        raise ConfigurationError(
            "instrument: needs the package opentelemetry-api; run pip install opentelemetry-sdk"
        ) from None
    if app.client.tracing is not None:
        return
    tracer = trace.get_tracer("tidemill", tracer_provider=tracer_provider)
    tracing = OpenTelemetryTracer(tracer, app.client.store, app.secrets.text)
    app.client.tracing = tracing
    app.middlewares.insert(0, tracing.around)


class OpenTelemetryTracer:
    """Creates spans for enqueues and attempts.

    - `store`: returns the store of the running event loop
    - `redacted`: takes a text, a task and a payload, and removes the job's secrets from the text"""

    def __init__(
        self, tracer: Any, store: Callable[[], Awaitable[Any]], redacted: Callable[[str, str, bytes], str]
    ) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._api, self._tracer, self._store = trace, tracer, store
        self._redacted = redacted
        self._format = TraceContextTextMapPropagator()

    @contextmanager
    def trace_enqueue(self, queue: str, job: NewJob) -> Iterator[NewJob]:
        with self._tracer.start_as_current_span(
            f"send {queue}", kind=self._api.SpanKind.PRODUCER, attributes=_job_attributes("send", queue, job)
        ):
            yield self._with_trace(job)

    @contextmanager
    def trace_enqueue_many(self) -> Iterator[Callable[[str, NewJob], NewJob]]:
        sent = 0

        def create(queue: str, job: NewJob) -> NewJob:
            nonlocal sent
            sent += 1
            with self._tracer.start_as_current_span(
                f"create {queue}",
                kind=self._api.SpanKind.PRODUCER,
                attributes=_job_attributes("create", queue, job),
            ):
                return self._with_trace(job)

        attributes = {"messaging.system": MESSAGING_SYSTEM, **_operation_attributes("send")}
        with self._tracer.start_as_current_span(
            "send many", kind=self._api.SpanKind.CLIENT, attributes=attributes
        ) as span:
            yield create
            span.set_attribute("messaging.batch.message_count", sent)

    def current_trace(self) -> str | None:
        carrier: dict[str, str] = {}
        self._format.inject(carrier)
        return carrier.get("traceparent")

    async def around(self, ctx: Any, run: Callable[[], Awaitable[Any]]) -> Any:
        """A middleware that opens a span around an attempt, or around one call for a batch."""
        claimed = CURRENT_BATCH.get() if ctx.batch else (CURRENT_ATTEMPT.get(),)
        jobs = [job for job in claimed if job is not None]
        before = await self._before(jobs)
        first = jobs[0]
        with self._tracer.start_as_current_span(
            f"process {ctx.queue}",
            context=self._format.extract({"traceparent": first.trace or ""}),
            kind=self._api.SpanKind.CONSUMER,
            attributes=_attempt_attributes(ctx, jobs),
            links=[*self._links(before), *self._others(jobs)],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            token = CURRENT_ATTEMPT.set(replace(first, trace=self.current_trace() or first.trace))
            try:
                return await run()
            except BaseException as error:
                if _is_failure(error):
                    self._record(span, error, first)
                    await self._keep(jobs, before)
                raise
            finally:
                CURRENT_ATTEMPT.reset(token)

    # The worker exports the span, also if the handler runs in a child process.
    around.stays_in_worker = True  # type: ignore[attr-defined]

    def _with_trace(self, job: NewJob) -> NewJob:
        return job if job.trace is not None else replace(job, trace=self.current_trace())

    def _context_of(self, traceparent: str) -> Any:
        found = self._format.extract({"traceparent": traceparent})
        return self._api.get_current_span(found).get_span_context()

    def _others(self, jobs: Sequence[ClaimedJob]) -> list[Link]:
        """Returns links to the traces of the other jobs of a batch. The span itself belongs to the trace of
        the first job."""
        contexts = [self._context_of(job.trace) for job in jobs[1:] if job.trace]
        return [self._api.Link(context) for context in contexts if context.is_valid]

    def _links(self, before: Mapping[str, Document]) -> list[Link]:
        contexts = [self._context_of(document.record.decode()) for document in before.values()]
        links = {context.span_id: self._api.Link(context) for context in contexts if context.is_valid}
        return list(links.values())

    async def _before(self, jobs: Sequence[ClaimedJob]) -> dict[str, Document]:
        """Returns a dict from job id to the document that stores the span of the job's last failed attempt.
        The dict is empty if the store cannot be read."""
        repeated = [job for job in jobs if job.attempt > 1 or job.generation]
        if not repeated:
            return {}
        with suppress(StoreError):
            store = await self._store()
            found = await store.documents(DocumentKind.RECORD, [_span_document_id(job) for job in repeated])
            return {
                job.id: document
                for job, document in zip(repeated, found, strict=True)
                if document is not None
            }
        return {}

    async def _keep(self, jobs: Sequence[ClaimedJob], before: Mapping[str, Document]) -> None:
        """Stores the current span for each job, so that the span of its next attempt can link to it. `before`
        has the documents to replace. A store error is ignored."""
        if (trace := self.current_trace()) is None:
            return
        then = DocumentUpdate(
            name=SPAN_DOCUMENT, state=SPAN_STATE, record=trace.encode(), keep=SPAN_RETENTION_SECONDS
        )
        known = {job.id: before[job.id].revision if job.id in before else 0 for job in jobs}
        with suppress(StoreError):
            store = await self._store()
            await store.advance(
                [
                    Advance(
                        kind=DocumentKind.RECORD, id=_span_document_id(job), expected=known[job.id], next=then
                    )
                    for job in jobs
                ]
            )

    def _record(self, span: Span, error: BaseException, job: ClaimedJob) -> None:
        """Records the handler's error on the span, without secrets. An error of a child process has no stack
        trace."""
        recorded = getattr(getattr(error, "outcome", None), "error", None)
        kind, message = (
            (type(error).__name__, str(error)) if recorded is None else (recorded.type, recorded.message)
        )
        message = self._redacted(message, job.task, job.payload)
        span.set_attribute("error.type", kind)
        span.set_status(self._api.Status(self._api.StatusCode.ERROR, f"{kind}: {message}"))
        attributes = {"exception.type": kind, "exception.message": message}
        if recorded is None:
            text = "".join(traceback.format_exception(error))
            attributes["exception.stacktrace"] = self._redacted(text, job.task, job.payload)
        span.add_event("exception", attributes)


def _is_failure(error: BaseException) -> bool:
    """True if the error means that the attempt failed. False for a snoozed, cancelled or released attempt."""
    if isinstance(error, SnoozeFor | ClaimLost | asyncio.CancelledError | GeneratorExit):
        return False
    outcome = getattr(error, "outcome", None)
    return outcome is None or getattr(outcome, "error", None) is not None


def _span_document_id(job: ClaimedJob) -> str:
    return f"{SPAN_DOCUMENT}-{job.id}"[:MAX_NAME_CHARS]


def _operation_attributes(name: str) -> dict[str, str]:
    return {"messaging.operation.name": name, "messaging.operation.type": name}


def _job_attributes(operation: str, queue: str, job: NewJob) -> dict[str, str]:
    return {
        "messaging.system": MESSAGING_SYSTEM,
        "messaging.destination.name": queue,
        "messaging.message.id": job.id,
        "tidemill.task": job.task,
        **_operation_attributes(operation),
    }


def _attempt_attributes(ctx: Any, jobs: Sequence[ClaimedJob]) -> dict[str, str | int]:
    named: dict[str, str | int] = {
        "messaging.system": MESSAGING_SYSTEM,
        "messaging.destination.name": ctx.queue,
        "messaging.message.id": ctx.job_id,
        "tidemill.task": ctx.task,
        "tidemill.attempt": ctx.attempt,
        **_operation_attributes("process"),
    }
    return named | ({"messaging.batch.message_count": len(jobs)} if ctx.batch else {})
