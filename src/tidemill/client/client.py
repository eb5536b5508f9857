"""The client: sends job requests to the store and returns job handles."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from tidemill.client.background_loop import BackgroundLoop, refuse_on_loop
from tidemill.client.enqueuer import (
    ENQUEUE_DEADLINE_SECONDS,
    FIRST_RETRY_SECONDS,
    MAX_RETRY_SECONDS,
    add_ids_to_errors,
    enqueue_deadline_error,
)
from tidemill.client.job_handle import JobHandle
from tidemill.client.request import JobRequest, RequestBuilder, RequestChunk, split_requests
from tidemill.client.store_sessions import StoreSession, StoreSessions
from tidemill.clock import Clock, Entropy
from tidemill.core.jobs import Job, JobGroup, trace_id
from tidemill.core.queues import InsertResult, InsertVerdict, QueueSettings
from tidemill.errors import EnqueueError, InvalidJob, QueueFull, StoreUnavailable
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.job_events import JobEnqueued
from tidemill.telemetry.listeners import Signals

if TYPE_CHECKING:
    from tidemill.contract.store import BlockingVerbs, Store
    from tidemill.core.pools import PoolSettings
    from tidemill.telemetry.otel import EnqueueTracer


R = TypeVar("R")
T = TypeVar("T")


def _wait_without_limit(_: Job) -> None:
    """Does nothing. It is the default of `Client.on_wait`, which is called while a caller waits for a
    result."""


class Client:
    """Sends jobs to the store and returns their handles.

    - `store`: a function that returns the application's store.
    - `tasks`, `queues`, `pools`: the application's own dicts by name, not copies."""

    def __init__(
        self,
        store: Callable[[], Store],
        tasks: Mapping[str, TaskDefinition],
        queues: Mapping[str, QueueSettings],
        pools: Mapping[str, PoolSettings],
        *,
        clock: Clock,
        entropy: Entropy,
        signals: Signals,
    ) -> None:
        self.tasks = tasks
        self.requests = RequestBuilder(clock, entropy, signals)
        self._clock, self.signals = clock, signals
        self._sessions = StoreSessions(store, queues, pools)
        self._background = BackgroundLoop()
        self._blocking: BlockingVerbs | None = None
        self.on_wait: Callable[[Job], None] = _wait_without_limit
        """Called regularly while a caller waits for a job; raises if no worker will ever run it."""
        self.tracing: EnqueueTracer | None = None
        """Creates a span for every enqueue; None unless `tidemill.telemetry.otel` is used."""
        _CLIENTS.add(self)

    async def store(self, *, declare: bool = True) -> Store:
        """Returns the store of the running event loop and opens it if necessary. `declare=False`: opening
        does not write the declared queues and pools to the store."""
        return (await self.session(declare=declare)).store

    async def store_for_reading(self) -> Store:
        """Returns the store of the running event loop, and opens it if necessary. Does not write declared
        queues and pools."""
        return (self._sessions.current() or await self._sessions.open_for_reading()).store

    async def session(self, *, declare: bool = True) -> StoreSession:
        return self._sessions.current() or await self._sessions.open(declare=declare)

    @property
    def store_identity(self) -> object:
        """An object that identifies the current store. Compare it with `is`: the same object means the same
        store. Inside a block of `Application.use_store` it is another object."""
        return self._sessions

    def current_store(self) -> Store | None:
        """Returns the store of the running event loop; None if that store is not open or no loop runs."""
        try:
            return self._sessions.current_store()
        except RuntimeError:
            return None

    def settings_changed(self) -> None:
        """Records that a queue or pool was added or changed. The next use of the store writes the
        declarations to it."""
        self._blocking = None
        self._sessions.settings_changed()

    @contextmanager
    def use_new_sessions(
        self, clock: Clock, entropy: Entropy, on_wait: Callable[[Job], None]
    ) -> Iterator[None]:
        """Context manager for tests: inside the block, the client uses new sessions and the given `clock`,
        `entropy` and `on_wait`.

        `on_wait` is called while a caller waits for a job. Call `close` before the block ends."""
        before = self._clock, self._sessions, self._background, self._blocking, self.on_wait
        self._clock, self._sessions, self.on_wait = clock, self._sessions.reopened(), on_wait
        self._background, self._blocking = BackgroundLoop(), None
        try:
            with self.requests.use_clock(clock, entropy):
                yield
        finally:
            self._clock, self._sessions, self._background, self._blocking, self.on_wait = before

    async def close(self) -> None:
        """Closes the session of the running event loop, and that of the background thread for blocking calls.
        The next use opens them again."""
        if self._background.started and not self._background.is_here():  # it cannot wait for itself
            await asyncio.to_thread(self.close_sync)
        self._blocking = None
        await self._sessions.close()

    def close_sync(self) -> None:
        refuse_on_loop("close")
        self._blocking = None
        if self._background.started:
            self._background.run(self._sessions.close)
            self._background.stop()

    def run_sync(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine of this client from a program without an event loop, and returns its result.
        `work` is a function that creates the coroutine."""
        return self._background.run(work)

    def blocking(self) -> BlockingVerbs | None:
        """Returns the blocking methods of the store, and opens the store if necessary. None if the store has
        no blocking methods."""
        if self._blocking is None:
            store = self.current_store() if self._background.is_here() else None
            self._blocking = store.blocking if store else self._background.run(self._open_blocking)
        return self._blocking

    def opened(self) -> Store:
        """Returns the store of the background event loop, and opens it if necessary. Programs without an
        event loop use this store."""
        return self._background.run(self.store)

    def enqueue(self, request: JobRequest[R]) -> Coroutine[Any, Any, JobHandle[R]]:
        return self._enqueue(request) if self.tracing is None else self._enqueue_traced(request)

    async def _enqueue_traced(self, request: JobRequest[R]) -> JobHandle[R]:
        with self.traced(request) as traced:
            return await self._enqueue(traced)

    async def _enqueue(self, request: JobRequest[R]) -> JobHandle[R]:
        answers = await self._insert((JobGroup(request.queue, (request.job,)),))
        self._emit_enqueued((request,), answers[0])
        return self._handle(request, answers[0][0])

    def enqueue_sync(self, request: JobRequest[R]) -> JobHandle[R]:
        if self.tracing is None:
            return self._enqueue_sync(request)
        with self.traced(request) as traced:
            return self._enqueue_sync(traced)

    def _enqueue_sync(self, request: JobRequest[R]) -> JobHandle[R]:
        answers = self._insert_sync((JobGroup(request.queue, (request.job,)),))
        self._emit_enqueued((request,), answers[0])
        return self._handle(request, answers[0][0])

    @contextmanager
    def traced(self, request: JobRequest[R]) -> Iterator[JobRequest[R]]:
        """Context manager that yields the request to send. If tracing is on, the block runs inside a span,
        and the request carries the trace context."""
        if self.tracing is None:
            yield request
            return
        with self.tracing.trace_enqueue(request.queue, request.job) as job:
            yield JobRequest(request.queue, job)

    def current_trace(self) -> str | None:
        """Returns the caller's trace context (`traceparent`); None if tracing is off or no span is active."""
        return None if self.tracing is None else self.tracing.current_trace()

    @contextmanager
    def _all_traced(self, requests: Iterable[JobRequest[R]]) -> Iterator[Iterable[JobRequest[R]]]:
        if self.tracing is None:
            yield requests
            return
        with self.tracing.trace_enqueue_many() as add_trace:
            yield (JobRequest(request.queue, add_trace(request.queue, request.job)) for request in requests)

    async def enqueue_many(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        with self._all_traced(requests) as traced:
            return await self._enqueue_many(traced)

    async def _enqueue_many(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        """Sends the requests in chunks and returns a handle for each, in order. While one chunk is sent, the
        next chunk is built."""
        handles: list[JobHandle[R]] = []
        pending: tuple[RequestChunk[R], asyncio.Task[list[list[InsertResult]]]] | None = None

        async def finish_pending() -> None:
            if pending is not None:
                chunk, sending = pending
                answers = await sending
                handles.extend(self._handles(chunk.requests, chunk.in_order(answers), len(handles)))

        try:
            for chunk in split_requests(requests):
                await finish_pending()
                pending = chunk, asyncio.create_task(self._insert(chunk.groups))
                await asyncio.sleep(0)  # starts the send before the next chunk is built
        finally:
            await finish_pending()
        return handles

    async def offer(self, requests: Sequence[JobRequest[Any]]) -> list[InsertResult]:
        """Sends the requests in chunks and returns one `InsertResult` per request, in order. A refused
        request raises no error."""
        answers: list[InsertResult] = []
        for chunk in split_requests(requests):
            groups = tuple(JobGroup(request.queue, (request.job,)) for request in chunk.requests)
            inserted = [only for (only,) in await self._insert(groups)]
            self._emit_enqueued(chunk.requests, inserted)
            answers += inserted
        return answers

    def enqueue_many_sync(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        handles: list[JobHandle[R]] = []
        with self._all_traced(requests) as traced:
            for chunk in split_requests(traced):
                answers = self._insert_sync(chunk.groups)
                handles += self._handles(chunk.requests, chunk.in_order(answers), len(handles))
        return handles

    def after_fork(self) -> None:
        """Drops the event loops, threads and sessions of the parent process. Runs in the child process after
        a fork."""
        self._sessions.forget()
        self._background = BackgroundLoop()
        self._blocking = None

    async def _open_blocking(self) -> BlockingVerbs | None:
        deadline = asyncio.get_running_loop().time() + ENQUEUE_DEADLINE_SECONDS
        session = self._sessions.current() or await self._open_by(deadline)
        return session.store.blocking

    async def _insert(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
        session = self._sessions.current()
        if session is not None:
            return await session.enqueuer.insert(groups)
        deadline = asyncio.get_running_loop().time() + ENQUEUE_DEADLINE_SECONDS
        with add_ids_to_errors(groups):
            session = await self._open_by(deadline)
        return await session.enqueuer.insert(groups, deadline)

    async def _open_by(self, deadline: float) -> StoreSession:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._sessions.open()
        except TimeoutError:
            raise StoreUnavailable(
                f"the store could not be opened within {ENQUEUE_DEADLINE_SECONDS:g} s; nothing was sent to it"
            ) from None

    def _insert_sync(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
        started, pause = self._clock.boot(), FIRST_RETRY_SECONDS
        blocking = self._blocking
        if blocking is None:
            with add_ids_to_errors(groups):
                blocking = self.blocking()
        if blocking is None:
            refuse_on_loop("enqueue")
            return self._background.run(lambda: self._insert(groups))
        while True:
            call_started = self._clock.boot()
            try:
                return blocking.insert(groups)
            except StoreUnavailable as error:
                # A blocking call cannot be interrupted: retry only if it can be answered in time.
                now = self._clock.boot()
                if now + pause + (now - call_started) > started + ENQUEUE_DEADLINE_SECONDS:
                    raise enqueue_deadline_error(error, groups) from error
            threading.Event().wait(pause)
            pause = min(pause * 2, MAX_RETRY_SECONDS)

    def _handles(
        self, requests: Sequence[JobRequest[R]], answers: Sequence[InsertResult], before: int
    ) -> list[JobHandle[R]]:
        """Returns a handle per request. Raises if a request was refused. `before`: how many jobs are stored
        already."""
        self._emit_enqueued(requests, answers)
        for request, answer in zip(requests, answers, strict=True):
            if refusal := _refusal_error(request.queue, answer):
                stored = sum(a.verdict in (InsertVerdict.ACCEPTED, InsertVerdict.EXISTING) for a in answers)
                raise type(refusal)(
                    f"{refusal}. Of this enqueue_many {before + stored} jobs are stored and "
                    f"{len(answers) - stored} were refused; any beyond these were not sent. "
                    "Sending the same requests again doubles none"
                )
        return [self._handle(request, answer) for request, answer in zip(requests, answers, strict=True)]

    def _handle(self, request: JobRequest[R], answer: InsertResult) -> JobHandle[R]:
        if answer.verdict is InsertVerdict.ACCEPTED:
            return JobHandle(self, answer.id, existing=False, queue=request.queue)
        if answer.verdict is InsertVerdict.EXISTING:
            return JobHandle(self, answer.id, existing=True, queue=request.queue)
        raise _refusal_error(request.queue, answer) or EnqueueError(f"job {answer.id}: {answer.problem}")

    def _emit_enqueued(self, requests: Sequence[JobRequest[Any]], answers: Sequence[InsertResult]) -> None:
        if not self.signals.wants(JobEnqueued):
            return
        for request, answer in zip(requests, answers, strict=True):
            if answer.verdict in (InsertVerdict.ACCEPTED, InsertVerdict.EXISTING):
                self.signals.emit(
                    JobEnqueued(
                        job=answer.id,
                        task=request.job.task,
                        queue=request.queue,
                        trace=trace_id(request.job.trace, answer.id),
                        existing=answer.verdict is InsertVerdict.EXISTING,
                    )
                )


def _refusal_error(queue: str, answer: InsertResult) -> EnqueueError | None:
    if answer.verdict is InsertVerdict.FULL:
        return QueueFull(
            f"queue {queue!r} is full ({answer.problem or 'max_length is reached'}), and the job is not "
            "stored: try later, or raise the queue's max_length"
        )
    if answer.verdict is InsertVerdict.INVALID:
        return InvalidJob(f"{answer.problem}; the job is not stored")
    return None


_CLIENTS: weakref.WeakSet[Client] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_CLIENTS):
        client.after_fork()


os.register_at_fork(after_in_child=_after_fork)
