"""Answers what the steps of one attempt ask of the store, on the worker's loop, whoever asks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

from tidemill.core.checkpoints import Begun, Step, Try
from tidemill.core.claims import Claimed
from tidemill.core.outcomes import Answer
from tidemill.errors import ConfigurationError, StoreError
from tidemill.tasks.step_questions import BeginStep, ForgetStep, KeepStep, LookUpStep, Reply, StepQuestion
from tidemill.tasks.steps import Steps
from tidemill.telemetry.events import StepKept, StepReplayed, StepUnknown
from tidemill.worker.spending import Metering

T = TypeVar("T")
ASK_AGAIN = 0.25
PATIENCE = 5.0
"""Seconds a store that cannot be reached is asked again before a call, which was not made yet ..."""
PAID_PATIENCE = 60.0
"""... and after it, when what is lost was paid for."""


class Stepping:
    """A `Keeper`. Calls are numbered here, for the whole of a claim: a verb that is repeated after a lost
    reply is recognised by its number."""

    def __init__(self, metering: Metering, job: Claimed) -> None:
        self._metering, self._job = metering, job
        self._numbers = count(1)
        self._going: set[asyncio.Task[Reply]] = set()
        self.steps = Steps(job.id, self)

    def wall(self) -> float:
        return self._metering.wall()

    async def ask(self, question: StepQuestion) -> Reply:
        loop = self._metering.loop
        if asyncio.get_running_loop() is loop:
            return await self._ask_here(question)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._ask_here(question), loop))

    def ask_sync(self, question: StepQuestion) -> Reply:
        if threading.get_ident() == self._metering.thread:
            return _at_once(self._answer(question, next(self._numbers)))
        asked = asyncio.run_coroutine_threadsafe(self._ask_here(question), self._metering.loop)
        return asked.result()

    async def _ask_here(self, question: StepQuestion) -> Reply:
        """In the step that asks, so that nothing can come between an answer that was paid for and its
        keeping. When the attempt is cancelled meanwhile, what was paid for is kept all the same, and what
        was begun and will not be called is forgotten: every verb may be repeated."""
        number = next(self._numbers)
        try:
            return await self._answer(question, number)
        except asyncio.CancelledError:
            if isinstance(question, KeepStep) and question.paid:
                self._go_on(self._answer(question, number))
            elif isinstance(question, BeginStep):
                self._go_on(self._answer(ForgetStep(question.step, number), 0))
            raise

    def _go_on(self, main: Coroutine[Any, Any, Reply]) -> None:
        task = asyncio.ensure_future(main)
        self._going.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[Reply]) -> None:
        self._going.discard(task)
        if not task.cancelled():
            task.exception()  # nobody waits for it any more

    async def _answer(self, question: StepQuestion, number: int) -> Reply:
        match question:
            case BeginStep():
                return await self._begin(question, number)
            case LookUpStep(step):
                return await self._look_up(step, number)
            case ForgetStep(step, begun):
                store = self._metering.store
                await _persistently(lambda: store.forget_step(self._job.id, self._try(begun), step), PATIENCE)
                return Reply(Begun.FRESH)
            case KeepStep():
                return await self._keep(question)

    async def _begin(self, asked: BeginStep, number: int) -> Reply:
        store, by = self._metering.store, self._try(number)
        answer = await _persistently(
            lambda: store.begin_step(self._job.id, by, asked.step, asked.on_unknown), PATIENCE
        )
        if answer.verdict is Begun.KEPT:
            self._tell(StepReplayed, asked.step, paid=True)
        elif answer.verdict is Begun.UNKNOWN or answer.unknown:
            self._tell(StepUnknown, asked.step, on_unknown=asked.on_unknown)
        return Reply(answer.verdict, answer.result, number)

    async def _look_up(self, step: Step, number: int) -> Reply:
        store = self._metering.store
        result = await _persistently(lambda: store.kept_step(self._job.id, step), PATIENCE)
        if result is None:
            return Reply(Begun.FRESH, None, number)
        self._tell(StepReplayed, step, paid=False)
        return Reply(Begun.KEPT, result, number)

    async def _keep(self, asked: KeepStep) -> Reply:
        store, by = self._metering.store, self._try(asked.number)
        patience = PAID_PATIENCE if asked.paid else PATIENCE
        answer, result = await _persistently(
            lambda: store.keep_step(self._job.id, by, asked.step, asked.result, paid=asked.paid), patience
        )
        if answer in (Answer.STALE, Answer.GONE):
            return Reply(Begun.STALE)
        if answer is Answer.OK:
            self._tell(StepKept, asked.step, paid=asked.paid, size=len(asked.result))
        return Reply(Begun.KEPT, result)

    def _try(self, number: int) -> Try:
        return Try(self._job.fence, self._job.claim, number)

    def _tell(self, kind: Any, step: Step, **fields: Any) -> None:
        self._metering.tell(kind, self._job, step=step.name, arguments=step.arguments, **fields)


async def _persistently(verb: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Every verb may be repeated; only when the store stays away is the step told so."""
    waited = 0.0
    while True:
        try:
            return await verb()
        except StoreError:
            if waited >= seconds:
                raise
        await asyncio.sleep(ASK_AGAIN)
        waited += ASK_AGAIN


def _at_once(main: Coroutine[Any, Any, T]) -> T:
    """On the loop's own thread, as test kits run sync handlers, nothing can be waited for."""
    try:
        main.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    main.close()
    raise ConfigurationError("step_sync has to wait for the store, on the thread of the event loop")
