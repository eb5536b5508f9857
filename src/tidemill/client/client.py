"""The client: sends requests, and knows the store of the loop it is called from."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from tidemill.client.bulk import Chunk, chunks
from tidemill.client.enqueuer import DEADLINE, FIRST_PAUSE, LONGEST_PAUSE, gave_up, naming
from tidemill.client.handle import JobHandle
from tidemill.client.portal import Portal, refuse_on_a_loop
from tidemill.client.request import JobRequest, RequestMaker
from tidemill.client.sessions import Session, Sessions
from tidemill.clock import Clock, Entropy
from tidemill.core.job import Group, Job
from tidemill.core.queues import Inserted, QueueSettings, Verdict
from tidemill.core.traces import trace_id
from tidemill.errors import EnqueueError, InvalidJob, QueueFull, StoreUnavailable
from tidemill.tasks.definition import TaskDefinition
from tidemill.telemetry.job_events import JobEnqueued
from tidemill.telemetry.signals import Signals

if TYPE_CHECKING:
    from tidemill.contract.store import Blocking, Store
    from tidemill.core.pools import PoolSettings
    from tidemill.telemetry.tracing import Tracing

R = TypeVar("R")
T = TypeVar("T")


def _wait_on(_: Job) -> None:
    """A worker may come at any time."""


class Client:
    """`tasks`, `queues` and `pools` are the application's own mappings and may still grow."""

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
        self.requests = RequestMaker(clock, entropy, signals)
        self._clock, self.signals = clock, signals
        self._sessions = Sessions(store, queues, pools)
        self._portal = Portal()
        self._blocking: Blocking | None = None
        self.mind_waiting: Callable[[Job], None] = _wait_on
        """Asked now and then while somebody waits for a job; raises where nothing will ever run it."""
        self.tracing: Tracing | None = None
        """Who has a span made of every sending; nobody unless `tidemill.telemetry.otel` is used."""
        _CLIENTS.add(self)

    async def store(self, *, declare: bool = True) -> Store:
        """The running loop's store, opened."""
        return (await self.session(declare=declare)).store

    async def look(self) -> Store:
        """The same to read one thing: queues and pools are declared by whoever uses it next."""
        return (self._sessions.here() or await self._sessions.look()).store

    async def session(self, *, declare: bool = True) -> Session:
        return self._sessions.here() or await self._sessions.open(declare=declare)

    @property
    def place(self) -> object:
        """Stands for the store it works on: another one while it is `moved`."""
        return self._sessions

    def store_here(self) -> Store | None:
        """The running loop's store, if there is one."""
        try:
            return self._sessions.store_here()
        except RuntimeError:
            return None

    def settings_changed(self) -> None:
        """A queue or a pool was added: the next use of the store declares it."""
        self._blocking = None
        self._sessions.settings_changed()

    @contextmanager
    def moved(self, clock: Clock, entropy: Entropy, mind_waiting: Callable[[Job], None]) -> Iterator[None]:
        """Begin anew, and take up the old sessions afterwards. For tests: tasks hold on to their
        client, so it is the client that moves. Whoever moved it closes it before the end."""
        before = self._clock, self._sessions, self._portal, self._blocking, self.mind_waiting
        self._clock, self._sessions, self._portal, self._blocking, self.mind_waiting = (
            clock,
            self._sessions.anew(),
            Portal(),
            None,
            mind_waiting,
        )
        try:
            with self.requests.moved(clock, entropy):
                yield
        finally:
            self._clock, self._sessions, self._portal, self._blocking, self.mind_waiting = before

    async def close(self) -> None:
        """Close the running loop's session and the portal's. Both open again when they are needed."""
        if self._portal.started and not self._portal.is_here():  # it cannot wait for its own end
            await asyncio.to_thread(self.close_sync)
        self._blocking = None
        await self._sessions.close()

    def close_sync(self) -> None:
        refuse_on_a_loop("close")
        self._blocking = None
        if self._portal.started:
            self._portal.run(self._sessions.close)
            self._portal.stop()

    def run_sync(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine of this client from a program without a loop."""
        return self._portal.run(work)

    def blocking(self) -> Blocking | None:
        """The store's own blocking verbs, opened; None when it has none."""
        if self._blocking is None:
            here = self.store_here() if self._portal.is_here() else None
            self._blocking = here.blocking if here else self._portal.run(self._open_blocking)
        return self._blocking

    def opened(self) -> Store:
        """The store as programs without an event loop have it."""
        return self._portal.run(self.store)

    def enqueue(self, request: JobRequest[R]) -> Coroutine[Any, Any, JobHandle[R]]:
        return self._enqueue(request) if self.tracing is None else self._enqueue_traced(request)

    async def _enqueue_traced(self, request: JobRequest[R]) -> JobHandle[R]:
        with self.traced(request) as traced:
            return await self._enqueue(traced)

    async def _enqueue(self, request: JobRequest[R]) -> JobHandle[R]:
        answers = await self._insert((Group(request.queue, (request.job,)),))
        self._tell((request,), answers[0])
        return self._handle(request, answers[0][0])

    def enqueue_sync(self, request: JobRequest[R]) -> JobHandle[R]:
        if self.tracing is None:
            return self._enqueue_sync(request)
        with self.traced(request) as traced:
            return self._enqueue_sync(traced)

    def _enqueue_sync(self, request: JobRequest[R]) -> JobHandle[R]:
        answers = self._insert_sync((Group(request.queue, (request.job,)),))
        self._tell((request,), answers[0])
        return self._handle(request, answers[0][0])

    @contextmanager
    def traced(self, request: JobRequest[R]) -> Iterator[JobRequest[R]]:
        """The request as it is sent, within its span where somebody traces."""
        if self.tracing is None:
            yield request
            return
        with self.tracing.sending(request.queue, request.job) as job:
            yield JobRequest(request.queue, job)

    def trace_here(self) -> str | None:
        """Where the caller is in its trace, where somebody traces."""
        return None if self.tracing is None else self.tracing.here()

    @contextmanager
    def _all_traced(self, requests: Iterable[JobRequest[R]]) -> Iterator[Iterable[JobRequest[R]]]:
        if self.tracing is None:
            yield requests
            return
        with self.tracing.sending_many() as placed:
            yield (JobRequest(one.queue, placed(one.queue, one.job)) for one in requests)

    async def enqueue_many(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        with self._all_traced(requests) as traced:
            return await self._enqueue_many(traced)

    async def _enqueue_many(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        """While one chunk is on its way, the next is made."""
        handles: list[JobHandle[R]] = []
        under_way: tuple[Chunk[R], asyncio.Task[list[list[Inserted]]]] | None = None

        async def arrived() -> None:
            if under_way is not None:
                chunk, sending = under_way
                answers = await sending
                handles.extend(self._handles(chunk.requests, chunk.in_order(answers), len(handles)))

        try:
            for chunk in chunks(requests):
                await arrived()
                under_way = chunk, asyncio.create_task(self._insert(chunk.groups))
                await asyncio.sleep(0)  # it goes out before the next is made
        finally:
            await arrived()
        return handles

    async def offer(self, requests: Sequence[JobRequest[Any]]) -> list[Inserted]:
        """A verdict for each: one that is refused stops no other, also of the same queue."""
        answers: list[Inserted] = []
        for chunk in chunks(requests):
            groups = tuple(Group(request.queue, (request.job,)) for request in chunk.requests)
            inserted = [only for (only,) in await self._insert(groups)]
            self._tell(chunk.requests, inserted)
            answers += inserted
        return answers

    def enqueue_many_sync(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        handles: list[JobHandle[R]] = []
        with self._all_traced(requests) as traced:
            for chunk in chunks(traced):
                answers = self._insert_sync(chunk.groups)
                handles += self._handles(chunk.requests, chunk.in_order(answers), len(handles))
        return handles

    def after_fork(self) -> None:
        """The parent's loops and threads are not ours; the store looks after its own."""
        self._sessions.forget()
        self._portal = Portal()
        self._blocking = None

    async def _open_blocking(self) -> Blocking | None:
        deadline = asyncio.get_running_loop().time() + DEADLINE
        session = self._sessions.here() or await self._open_by(deadline)
        return session.store.blocking

    async def _insert(self, groups: Sequence[Group]) -> list[list[Inserted]]:
        session = self._sessions.here()
        if session is not None:
            return await session.enqueuer.insert(groups)
        deadline = asyncio.get_running_loop().time() + DEADLINE
        with naming(groups):
            session = await self._open_by(deadline)
        return await session.enqueuer.insert(groups, deadline)

    async def _open_by(self, deadline: float) -> Session:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._sessions.open()
        except TimeoutError:
            raise StoreUnavailable(
                f"the store could not be opened within {DEADLINE:g} s; nothing was sent to it"
            ) from None

    def _insert_sync(self, groups: Sequence[Group]) -> list[list[Inserted]]:
        began, pause = self._clock.boot(), FIRST_PAUSE
        blocking = self._blocking
        if blocking is None:
            with naming(groups):
                blocking = self.blocking()
        if blocking is None:
            refuse_on_a_loop("enqueue")
            return self._portal.run(lambda: self._insert(groups))
        while True:
            asked = self._clock.boot()
            try:
                return blocking.insert(groups)
            except StoreUnavailable as error:
                # Nothing can interrupt a blocking call: ask again only if it can be answered in time.
                now = self._clock.boot()
                if now + pause + (now - asked) > began + DEADLINE:
                    raise gave_up(error, groups) from error
            threading.Event().wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _handles(
        self, requests: Sequence[JobRequest[R]], answers: Sequence[Inserted], before: int
    ) -> list[JobHandle[R]]:
        """Every group was answered: when one was refused, say what became of the others."""
        self._tell(requests, answers)
        for request, answer in zip(requests, answers, strict=True):
            if problem := _refusal(request.queue, answer):
                taken = sum(a.verdict in (Verdict.ACCEPTED, Verdict.EXISTING) for a in answers)
                raise type(problem)(
                    f"{problem}. Of this enqueue_many {before + taken} jobs are stored and "
                    f"{len(answers) - taken} were refused; any beyond these were not sent. "
                    "Sending the same requests again doubles none"
                )
        return [self._handle(request, answer) for request, answer in zip(requests, answers, strict=True)]

    def _handle(self, request: JobRequest[R], answer: Inserted) -> JobHandle[R]:
        if answer.verdict is Verdict.ACCEPTED:
            return JobHandle(self, answer.id, existing=False, queue=request.queue)
        if answer.verdict is Verdict.EXISTING:
            return JobHandle(self, answer.id, existing=True, queue=request.queue)
        raise _refusal(request.queue, answer) or EnqueueError(f"job {answer.id}: {answer.problem}")

    def _tell(self, requests: Sequence[JobRequest[Any]], answers: Sequence[Inserted]) -> None:
        if not self.signals.wants(JobEnqueued):
            return
        for request, answer in zip(requests, answers, strict=True):
            if answer.verdict in (Verdict.ACCEPTED, Verdict.EXISTING):
                self.signals.emit(
                    JobEnqueued(
                        job=answer.id,
                        task=request.job.task,
                        queue=request.queue,
                        trace=trace_id(request.job.trace, answer.id),
                        existing=answer.verdict is Verdict.EXISTING,
                    )
                )


def _refusal(queue: str, answer: Inserted) -> EnqueueError | None:
    if answer.verdict is Verdict.FULL:
        return QueueFull(
            f"queue {queue!r} is full ({answer.problem or 'max_length is reached'}), and the job is not "
            "stored: try later, or raise the queue's max_length"
        )
    if answer.verdict is Verdict.INVALID:
        return InvalidJob(f"{answer.problem}; the job is not stored")
    return None


_CLIENTS: weakref.WeakSet[Client] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_CLIENTS):
        client.after_fork()


os.register_at_fork(after_in_child=_after_fork)
