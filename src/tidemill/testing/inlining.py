"""Inline mode: enqueueing runs the handler at once, in the same call.

For tests of something else that happens to enqueue: there is no worker to run and nothing to wait
for. What the client checks is checked as always; there are no retries and no delays, and the
handler's error is the caller's.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from tidemill.app import Tidemill
from tidemill.client.handle import JobHandle
from tidemill.client.request import JobRequest
from tidemill.core.changes import RunNow
from tidemill.core.claims import Claimed, ClaimRequest, Heartbeat, Held, Said, Settlement
from tidemill.core.filters import Filter
from tidemill.core.job import Error
from tidemill.core.outcomes import Done, Fail, Outcome
from tidemill.core.queues import DAY
from tidemill.core.retry import NEVER
from tidemill.errors import ConfigurationError, GiveUp, SnoozeFor
from tidemill.hooks.calls import BEGIN_CALL
from tidemill.tasks.batches import Failed
from tidemill.tasks.context import Context
from tidemill.tasks.definition import TaskDefinition
from tidemill.tasks.metering import Meter
from tidemill.tasks.steps import Steps
from tidemill.tasks.transactions import Transaction, no_database
from tidemill.telemetry.current import CURRENT
from tidemill.testing.apart import call_apart, run_apart
from tidemill.testing.looking import Looking
from tidemill.testing.place import UNSET, KitClock, Place, check_app
from tidemill.testing.virtual import START
from tidemill.worker.attempt import storable
from tidemill.worker.batch_verdicts import check
from tidemill.worker.spending import Metering, Spending
from tidemill.worker.stepping import Stepping
from tidemill.worker.translate import outcome_of

R = TypeVar("R")


class inline(Looking):  # noqa: N801 - read as the function it is called like
    """`with testing.inline(app) as kit:`, in a plain or an async test.

    `errors="store"` keeps a handler's error with its job, where `job.result()` finds it, instead of
    raising it where the job is enqueued. `state` takes the place of what the lifespan opens.
    """

    def __init__(
        self, app: Tidemill, *, errors: Literal["raise", "store"] = "raise", state: Any = UNSET
    ) -> None:
        check_app(app)
        if errors not in ("raise", "store"):
            raise ConfigurationError(f'errors: must be "raise" or "store", is {errors!r}')
        super().__init__(Place(app, KitClock(START), state=state))
        self._raises = errors == "raise"
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            entered.enter_context(self._place.moved())
            entered.callback(call_apart, self._app.close_sync)
            entered.callback(self._leave_client)
            self._enter_client()
            self._entered = entered.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.close()

    def _enter_client(self) -> None:
        """Tasks hold on to their client: its own four ways to enqueue are covered, and called below."""
        client = self._app.client
        self._send, self._send_sync = client.enqueue, client.enqueue_sync
        self._send_many, self._send_many_sync = client.enqueue_many, client.enqueue_many_sync
        vars(client).update(
            enqueue=self._enqueue,
            enqueue_sync=self._enqueue_sync,
            enqueue_many=self._enqueue_many,
            enqueue_many_sync=self._enqueue_many_sync,
        )

    def _leave_client(self) -> None:
        for name in ("enqueue", "enqueue_sync", "enqueue_many", "enqueue_many_sync"):
            del vars(self._app.client)[name]

    async def _enqueue(self, request: JobRequest[R]) -> JobHandle[R]:
        handle = await self._send(request)
        await self._run([handle])
        return handle

    def _enqueue_sync(self, request: JobRequest[R]) -> JobHandle[R]:
        handle = self._send_sync(request)
        run_apart(self._run([handle]))
        return handle

    async def _enqueue_many(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        handles = await self._send_many(requests)
        await self._run(handles)
        return handles

    def _enqueue_many_sync(self, requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
        handles = self._send_many_sync(requests)
        run_apart(self._run(handles))
        return handles

    async def _run(self, handles: Iterable[JobHandle[Any]]) -> None:
        for handle in handles:
            if not handle.existing:
                await self._run_one(handle.id)

    async def _run_one(self, id_: str) -> None:
        """A job that cannot start (its queue is paused or at its limit) stays as it is."""
        store = self._place.look
        await store.amend(Filter(ids=(id_,)), RunNow())
        # A worker for each: one that holds a job and does not list it has lost it, and handlers enqueue.
        worker = f"inline {id_}"
        request = ClaimRequest(worker=worker, number=1, shares=(), limit=1, lease=DAY, ids=(id_,))
        error: BaseException | None = None
        for job in (await store.claim(request)).jobs:
            news = _News(self._spending(job), self._metering(), job)
            outcome, error = await self._outcome(job, news)
            await store.extend(news.as_heartbeat(worker, job))
            spent = news.spending.spent(outcome)
            await store.settle([Settlement(job.id, job.fence, job.claim, outcome, spent)])
        await store.extend(Heartbeat(worker=worker, received=1, lease=0.0))  # off the list of workers
        if error is not None and self._raised(error):
            raise error

    def _metering(self) -> Metering:
        clock, loop = self._place.clock, asyncio.get_running_loop()
        return Metering(self._app.pools, self._place.look, clock.wall, loop)

    def _spending(self, job: Claimed) -> Spending:
        own = self._app.classifiers
        return Spending(self._metering(), job, lambda: math.inf, made=True, classifiers=own)

    def _raised(self, error: BaseException) -> bool:
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            return True  # meant for the test, not for its job
        return self._raises and not isinstance(error, SnoozeFor)

    async def _outcome(self, job: Claimed, news: _News) -> tuple[Outcome, BaseException | None]:
        definition = self._app.tasks[job.task]
        try:
            result = await self._attempt(job, definition, news)
            if definition.batch is not None:
                [result] = check(result, 1)
            if isinstance(result, Failed):
                return _failed(result)
            return Done(definition.result.encode(result)), None
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, and its job must end
            return outcome_of(error, NEVER, job.attempt, job.priority, 0.0), error

    async def _attempt(self, job: Claimed, definition: TaskDefinition, news: _News) -> Any:
        lifespan = self._app._lifespan or nullcontext  # noqa: SLF001 - this stands in for the worker
        async with lifespan() as state:
            context = Context.of(job, news, state, batch=() if definition.batch is None else (job.id,))
            call: Callable[[], Awaitable[Any]] = partial(_call, definition, job, context)
            for around in reversed(self._app.middlewares):
                call = partial(around, context, call)
            before, calls = CURRENT.set(job), BEGIN_CALL.set(news.spending.meter.begin_call)
            try:
                return await call()
            finally:
                CURRENT.reset(before)
                BEGIN_CALL.reset(calls)


def _failed(failed: Failed) -> tuple[Outcome, BaseException]:
    """An item without a result: the caller of enqueue is told as by any error of a handler."""
    return Fail(Error("Failed", storable(failed.reason))), GiveUp(failed.reason)


async def _call(definition: TaskDefinition, job: Claimed, context: Context) -> Any:
    args, kwargs = definition.payload.decode(job.payload)
    if definition.batch is not None:
        args = (list(args),)  # of one: nothing waits for company here
    if definition.takes_context:
        args = (context, *args)
    if definition.is_async:
        return await definition.handler(*args, **kwargs)
    return call_apart(definition.handler, *args, **kwargs)


class _News:
    """What a handler says of its attempt."""

    def __init__(self, spending: Spending, metering: Metering, job: Claimed) -> None:
        self.spending = spending
        self._steps = Stepping(metering, job).steps
        self._lines: list[str] = []
        self._progress: tuple[float | None, str | None] = (None, None)

    def progress(self, fraction: float, note: str | None) -> None:
        self._progress = (fraction, note)

    def log(self, line: str) -> None:
        self._lines.append(line)

    def cancelled(self) -> bool:
        return False

    def meter(self) -> Meter:
        return self.spending.meter

    def steps(self) -> Steps:
        return self._steps

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        raise no_database()

    def as_heartbeat(self, worker: str, job: Claimed) -> Heartbeat:
        fraction, note = self._progress
        lines = tuple(Said(storable(line)) for line in self._lines)
        held = Held(job=job.id, fence=job.fence, claim=job.claim, progress=fraction, note=note, log=lines)
        return Heartbeat(worker=worker, received=1, lease=DAY, held=(held,))
