"""`ctx.step`: a call whose result is stored, so that a later attempt does not repeat it.

The generator `StepRunner._exchange` contains the rules. It yields requests to the store, or None to call the
step's function. `run` executes the generator on the event loop, and `run_sync` in a thread."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Any, Protocol

from tidemill.core.checkpoints import StepKey, StepVerdict
from tidemill.errors import ClaimLost, ConfigurationError, StoreError, UnknownOutcome
from tidemill.feedback.classification import is_known_unpaid
from tidemill.tasks.step_calls import (
    StepBeginRequest,
    StepCall,
    StepForgetRequest,
    StepLookupRequest,
    StepReply,
    StepRequest,
    StepSaveRequest,
    prepare_step_call,
)

StepExchange = Generator[StepRequest | None, Any, Any]
"""Yields requests to the store; None means: make the call."""


class CheckpointClient(Protocol):
    """Answers the requests of a step, such as the lookup of a stored result. In a child process it is the
    pipe to the worker."""

    async def ask(self, question: StepRequest) -> StepReply: ...
    def ask_sync(self, question: StepRequest) -> StepReply: ...
    def wall(self) -> float: ...


class StepRunner:
    """Runs the steps of one attempt. A step that is called twice at the same time runs once: the second
    call waits for the result of the first."""

    def __init__(self, job: str, checkpoints: CheckpointClient) -> None:
        self._job, self._checkpoints = job, checkpoints
        self._locks: dict[StepKey, asyncio.Lock] = {}
        self._thread_locks: dict[StepKey, threading.Lock] = {}
        self._late: set[asyncio.Task[None]] = set()

    async def run(self, name: str, call: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        plan = prepare_step_call(name, call, args, kwargs)
        async with self._locks.setdefault(plan.step, asyncio.Lock()):
            exchange = self._exchange(plan)
            request, number = next(exchange), 0
            try:
                while True:
                    try:
                        if request is None:
                            reply = await self._call(plan, number)
                        else:
                            reply = await self._checkpoints.ask(request)
                            number = reply.number
                    except BaseException as error:  # noqa: BLE001 - the generator handles it and raises it again
                        request = exchange.throw(error)
                    else:
                        request = exchange.send(reply)
            except StopIteration as end:
                return end.value

    def run_sync(self, name: str, call: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        plan = prepare_step_call(name, call, args, kwargs)
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - None without a loop
            raise ConfigurationError(
                f"step {name!r}: step_sync would stop the event loop; in async code await ctx.step"
            )
        if plan.is_async:
            raise ConfigurationError(
                f"step {name!r}: step_sync calls plain functions; make the handler async and await ctx.step"
            )
        with self._thread_locks.setdefault(plan.step, threading.Lock()):
            exchange = self._exchange(plan)
            request = next(exchange)
            try:
                while True:
                    try:
                        reply = plan.invoke() if request is None else self._checkpoints.ask_sync(request)
                    except BaseException as error:  # noqa: BLE001 - the generator handles it and raises it again
                        request = exchange.throw(error)
                    else:
                        request = exchange.send(reply)
            except StopIteration as end:
                return end.value

    def _exchange(self, plan: StepCall) -> StepExchange:
        step = plan.step
        begun: StepReply = (
            yield StepBeginRequest(step, plan.on_unknown) if plan.paid else StepLookupRequest(step)
        )
        if begun.verdict is not StepVerdict.FRESH:
            return self._decode_reply(plan, begun)
        try:
            value = yield None
        except BaseException as error:
            if plan.paid and is_known_unpaid(error, now=self._checkpoints.wall()):
                with suppress(StoreError):  # the outcome stays unknown, which is safe
                    yield StepForgetRequest(step, begun.number)
            raise
        saved: StepReply = yield StepSaveRequest(step, begun.number, plan.encode(value), plan.paid)
        # The handler gets the stored result, so every attempt sees the same value.
        return self._decode_reply(plan, saved)

    def _decode_reply(self, plan: StepCall, reply: StepReply) -> Any:
        name = plan.step.name
        if reply.verdict is StepVerdict.UNKNOWN:
            raise UnknownOutcome(
                f"step {name!r} (arguments {plan.step.arguments}) was started before, and it is unknown "
                f"whether its call was paid for; look at the provider's bill, then `tidemill jobs retry "
                f"{self._job}` runs the job again, and pays for this step again"
            )
        if reply.result is None:
            raise ClaimLost(
                f"step {name!r}: another worker has the job by now, or it is gone: this attempt stops"
            )
        return plan.decode(reply.result)

    async def _call(self, plan: StepCall, number: int) -> Any:
        if plan.is_async:
            return await plan.invoke()
        running = asyncio.ensure_future(asyncio.to_thread(plan.invoke))
        try:
            value = await asyncio.shield(running)
        except asyncio.CancelledError:
            if plan.paid:
                # A thread cannot be cancelled: its paid result is stored for the next attempt.
                late = asyncio.ensure_future(self._save_late(plan, number, running))
                self._late.add(late)
                late.add_done_callback(self._late.discard)
            raise
        return await value if inspect.isawaitable(value) else value

    async def _save_late(self, plan: StepCall, number: int, running: asyncio.Future[Any]) -> None:
        with suppress(Exception):  # no caller is left to receive an error
            result = plan.encode(await running)
            await self._checkpoints.ask(StepSaveRequest(plan.step, number, result, paid=True))


def no_steps_in_batch_error() -> ConfigurationError:
    return ConfigurationError(
        "ctx.step: the handler of a batch task speaks for several jobs, and a step belongs to one; call the "
        "function itself, or give it a task of its own"
    )
