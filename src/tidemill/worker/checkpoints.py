"""Reads and writes the checkpoints of one attempt's steps. All store requests run on the worker's event
loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

from tidemill.core.checkpoints import StepAttempt, StepKey, StepVerdict
from tidemill.core.claims import ClaimedJob
from tidemill.core.outcomes import WriteAnswer
from tidemill.errors import ConfigurationError, StoreError
from tidemill.tasks.step_calls import (
    StepBeginRequest,
    StepForgetRequest,
    StepLookupRequest,
    StepReply,
    StepRequest,
    StepSaveRequest,
)
from tidemill.tasks.steps import StepRunner
from tidemill.telemetry.events import CheckpointReused, CheckpointSaved, StepOutcomeUnknown
from tidemill.worker.usage import AttemptEnvironment

T = TypeVar("T")
RETRY_SECONDS = 0.25
STORE_DEADLINE_SECONDS = 5.0
"""Seconds an unreachable store is retried before a call, when nothing was paid yet."""
PAID_STORE_DEADLINE_SECONDS = 60.0
"""Seconds an unreachable store is retried after a call that was paid for."""


class WorkerCheckpoints:
    """The checkpoints of a handler that runs in the worker process. It numbers the requests, so that the
    store can recognise a repeated one."""

    def __init__(self, environment: AttemptEnvironment, job: ClaimedJob) -> None:
        self._environment, self._job = environment, job
        self._numbers = count(1)
        self._unfinished: set[asyncio.Task[StepReply]] = set()
        self.steps = StepRunner(job.id, self)

    def wall(self) -> float:
        return self._environment.wall()

    async def ask(self, question: StepRequest) -> StepReply:
        loop = self._environment.loop
        if asyncio.get_running_loop() is loop:
            return await self._ask_on_loop(question)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._ask_on_loop(question), loop))

    def ask_sync(self, question: StepRequest) -> StepReply:
        if threading.get_ident() == self._environment.thread:
            return _run_without_wait(self._answer(question, next(self._numbers)))
        future = asyncio.run_coroutine_threadsafe(self._ask_on_loop(question), self._environment.loop)
        return future.result()

    async def _ask_on_loop(self, question: StepRequest) -> StepReply:
        """Sends a request about a step to the store and returns the reply.

        If the attempt is cancelled during the request, a background task finishes or undoes it."""
        number = next(self._numbers)
        try:
            return await self._answer(question, number)
        except asyncio.CancelledError:
            if isinstance(question, StepSaveRequest) and question.paid:  # or a retry pays again
                self._finish_later(self._answer(question, number))
            elif isinstance(question, StepBeginRequest):  # its call will not be made
                self._finish_later(self._answer(StepForgetRequest(question.step, number), 0))
            raise

    def _finish_later(self, main: Coroutine[Any, Any, StepReply]) -> None:
        task = asyncio.ensure_future(main)
        self._unfinished.add(task)
        task.add_done_callback(self._on_finished)

    def _on_finished(self, task: asyncio.Task[StepReply]) -> None:
        self._unfinished.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio would log it

    async def _answer(self, question: StepRequest, number: int) -> StepReply:
        match question:
            case StepBeginRequest():
                return await self._begin(question, number)
            case StepLookupRequest(step):
                return await self._load_step(step, number)
            case StepForgetRequest(step, begun):
                store = self._environment.store
                await _retry_on_outage(
                    lambda: store.forget_step(self._job.id, self._step_attempt(begun), step),
                    STORE_DEADLINE_SECONDS,
                )
                return StepReply(StepVerdict.FRESH)
            case StepSaveRequest():
                return await self._save(question)

    async def _begin(self, request: StepBeginRequest, number: int) -> StepReply:
        store, by = self._environment.store, self._step_attempt(number)
        answer = await _retry_on_outage(
            lambda: store.begin_step(self._job.id, by, request.step, request.on_unknown),
            STORE_DEADLINE_SECONDS,
        )
        if answer.verdict is StepVerdict.KEPT:
            self._emit(CheckpointReused, request.step, paid=True)
        elif answer.verdict is StepVerdict.UNKNOWN or answer.unknown:
            self._emit(StepOutcomeUnknown, request.step, on_unknown=request.on_unknown)
        return StepReply(answer.verdict, answer.result, number)

    async def _load_step(self, step: StepKey, number: int) -> StepReply:
        store = self._environment.store
        result = await _retry_on_outage(lambda: store.kept_step(self._job.id, step), STORE_DEADLINE_SECONDS)
        if result is None:
            return StepReply(StepVerdict.FRESH, None, number)
        self._emit(CheckpointReused, step, paid=False)
        return StepReply(StepVerdict.KEPT, result, number)

    async def _save(self, request: StepSaveRequest) -> StepReply:
        store, by = self._environment.store, self._step_attempt(request.number)
        seconds = PAID_STORE_DEADLINE_SECONDS if request.paid else STORE_DEADLINE_SECONDS
        answer, result = await _retry_on_outage(
            lambda: store.keep_step(self._job.id, by, request.step, request.result, paid=request.paid),
            seconds,
        )
        if answer in (WriteAnswer.STALE, WriteAnswer.GONE):
            return StepReply(StepVerdict.STALE)
        if answer is WriteAnswer.OK:
            self._emit(CheckpointSaved, request.step, paid=request.paid, size=len(request.result))
        return StepReply(StepVerdict.KEPT, result)

    def _step_attempt(self, number: int) -> StepAttempt:
        return StepAttempt(self._job.fence, self._job.claim, number)

    def _emit(self, kind: Any, step: StepKey, **fields: Any) -> None:
        self._environment.emit(kind, self._job, step=step.name, arguments=step.arguments, **fields)


async def _retry_on_outage(verb: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Calls `verb`, a store request, and repeats it while the store is unreachable. Raises the StoreError
    after about `seconds`."""
    waited = 0.0
    while True:
        try:
            return await verb()
        except StoreError:
            if waited >= seconds:
                raise
        await asyncio.sleep(RETRY_SECONDS)
        waited += RETRY_SECONDS


def _run_without_wait(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on the thread of the event loop and returns its result. Raises ConfigurationError if
    the coroutine has to wait."""
    try:
        main.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    main.close()
    raise ConfigurationError("step_sync has to wait for the store, on the thread of the event loop")
