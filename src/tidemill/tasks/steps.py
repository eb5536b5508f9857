"""`ctx.step`: a call whose result is stored, so that a later attempt does not make it again.

What a step does is one generator, `_course`: it yields what it wants to know of the store, and the call it
wants made. Async handlers drive it on a loop, sync ones in their thread; the order of things is the same.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Any, Protocol

from tidemill.core.checkpoints import Begun, Step
from tidemill.errors import ClaimLost, ConfigurationError, StoreError, UnknownOutcome
from tidemill.feedback.paying import known_unpaid
from tidemill.tasks.step_plans import Plan, planned
from tidemill.tasks.step_questions import BeginStep, ForgetStep, KeepStep, LookUpStep, Reply, StepQuestion

Course = Generator[StepQuestion | None, Any, Any]
"""None asks for the call itself."""


class Keeper(Protocol):
    """Who answers a step's questions: the worker's own record of the attempt, or the pipe to it."""

    async def ask(self, question: StepQuestion) -> Reply: ...
    def ask_sync(self, question: StepQuestion) -> Reply: ...
    def wall(self) -> float: ...


class Steps:
    """Of one attempt. A step that is asked for twice at the same time is called once: the second waits,
    and finds the result of the first."""

    def __init__(self, job: str, keeper: Keeper) -> None:
        self._job, self._keeper = job, keeper
        self._locks: dict[Step, asyncio.Lock] = {}
        self._thread_locks: dict[Step, threading.Lock] = {}
        self._late: set[asyncio.Task[None]] = set()

    async def run(self, name: str, call: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        plan = planned(name, call, args, kwargs)
        async with self._locks.setdefault(plan.step, asyncio.Lock()):
            course = self._course(plan)
            wanted, number = next(course), 0
            try:
                while True:
                    try:
                        if wanted is None:
                            got = await self._call(plan, number)
                        else:
                            got = await self._keeper.ask(wanted)
                            number = got.number
                    except BaseException as error:  # noqa: BLE001 - the course judges it, and raises it again
                        wanted = course.throw(error)
                    else:
                        wanted = course.send(got)
            except StopIteration as end:
                return end.value

    def run_sync(self, name: str, call: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        plan = planned(name, call, args, kwargs)
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - None where there is none
            raise ConfigurationError(
                f"step {name!r}: step_sync would stop the event loop; in async code await ctx.step"
            )
        if plan.is_async:
            raise ConfigurationError(
                f"step {name!r}: step_sync calls plain functions; make the handler async and await ctx.step"
            )
        with self._thread_locks.setdefault(plan.step, threading.Lock()):
            course = self._course(plan)
            wanted = next(course)
            try:
                while True:
                    try:
                        got = plan.made() if wanted is None else self._keeper.ask_sync(wanted)
                    except BaseException as error:  # noqa: BLE001 - the course judges it, and raises it again
                        wanted = course.throw(error)
                    else:
                        wanted = course.send(got)
            except StopIteration as end:
                return end.value

    def _course(self, plan: Plan) -> Course:
        step = plan.step
        begun: Reply = yield BeginStep(step, plan.on_unknown) if plan.paid else LookUpStep(step)
        if begun.verdict is not Begun.FRESH:
            return self._found(plan, begun)
        try:
            value = yield None
        except BaseException as error:
            if plan.paid and known_unpaid(error, now=self._keeper.wall()):
                with suppress(StoreError):  # then nobody knows, which is safe
                    yield ForgetStep(step, begun.number)
            raise
        kept: Reply = yield KeepStep(step, begun.number, plan.encode(value), plan.paid)
        # What the handler gets is what was stored, whoever stored it: the same in every attempt.
        return self._found(plan, kept)

    def _found(self, plan: Plan, reply: Reply) -> Any:
        name = plan.step.name
        if reply.verdict is Begun.UNKNOWN:
            raise UnknownOutcome(
                f"step {name!r} (arguments {plan.step.arguments}) was begun before, and nobody knows whether "
                f"its call was paid for; look at the provider's bill, then `tidemill jobs retry {self._job}` "
                "runs the job again, and pays for this step again"
            )
        if reply.result is None:
            raise ClaimLost(f"step {name!r}: the job is somebody else's by now, or gone: this attempt stops")
        return plan.decode(reply.result)

    async def _call(self, plan: Plan, number: int) -> Any:
        if plan.is_async:
            return await plan.made()
        running = asyncio.ensure_future(asyncio.to_thread(plan.made))
        try:
            value = await asyncio.shield(running)
        except asyncio.CancelledError:
            if plan.paid:
                # A thread goes on whatever is cancelled: what it pays for is kept for the next attempt.
                late = asyncio.ensure_future(self._keep_late(plan, number, running))
                self._late.add(late)
                late.add_done_callback(self._late.discard)
            raise
        return await value if inspect.isawaitable(value) else value

    async def _keep_late(self, plan: Plan, number: int, running: asyncio.Future[Any]) -> None:
        with suppress(Exception):  # nobody is there to be told
            result = plan.encode(await running)
            await self._keeper.ask(KeepStep(plan.step, number, result, paid=True))


def refused_in_batch() -> ConfigurationError:
    return ConfigurationError(
        "ctx.step: the handler of a batch task speaks for several jobs, and a step belongs to one; call the "
        "function itself, or give it a task of its own"
    )
