"""The ways to call a handler, other than straight from the executor: through middleware, as a call of many
jobs, in a thread, in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from tidemill.clock import Entropy
from tidemill.core.claims import Claimed
from tidemill.core.outcomes import Done, Release, Snooze
from tidemill.errors import InvalidPayload
from tidemill.tasks.context import Context
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.telemetry.base import WorkerEvent
from tidemill.telemetry.events import ChildNotReady, LifespanSkipped, SuspectNotIsolated
from tidemill.worker.attempt import Attempt
from tidemill.worker.batch_verdicts import EndsTogether, Item, Verdict
from tidemill.worker.call import Call
from tidemill.worker.emitter import Emitter
from tidemill.worker.in_flow import unreadable
from tidemill.worker.runners.isolated import ChildNotStarted, Isolation, cannot_isolate
from tidemill.worker.runners.middleware import divided, surrounded
from tidemill.worker.runners.places import CannotIsolate
from tidemill.worker.runners.threads import Threads
from tidemill.worker.stopping import Stopper
from tidemill.worker.translate import Ends


class Handling:
    """`on_thread_over` is told of a thread that went on after its attempt had ended."""

    def __init__(
        self,
        stopper: Stopper,
        threads: Threads,
        isolated: Isolation | None,
        middleware: Sequence[Middleware],
        *,
        entropy: Entropy,
        emitter: Emitter,
        on_thread_over: Callable[[Attempt], None],
    ) -> None:
        self._stopper, self._threads, self._isolated = stopper, threads, isolated
        self._emitter = emitter
        self._told: set[tuple[type[WorkerEvent], str, str]] = set()
        self._middleware = tuple(middleware)
        self._staying, self._moving = divided(middleware)
        self._entropy, self._on_thread_over = entropy, on_thread_over

    async def run(self, attempt: Attempt, definition: TaskDefinition, context: Context) -> Any:
        if self._isolated is not None and (definition.isolate or attempt.job.suspect):
            around = self._staying if self._isolated.surrounds else self._middleware
            call = surrounded(around, context, lambda: self._run_isolated(attempt, definition, context))
        else:
            around = self._middleware
            call = surrounded(around, context, lambda: self._run_here(attempt, definition, context))
        if around:  # which may hang before it calls the handler
            self._stopper.watch(attempt)
        result = await call()
        if attempt.spending is not None and attempt.spending.late:
            raise Ends(Release())  # which middleware has kept to itself
        return result

    def _run_here(self, attempt: Attempt, definition: TaskDefinition, context: Context) -> Awaitable[Any]:
        run = self._run_async if definition.is_async else self._run_in_thread
        return run(attempt, definition, context)

    async def _run_async(self, attempt: Attempt, definition: TaskDefinition, context: Context) -> Any:
        self._stopper.watch(attempt)
        args, kwargs = _arguments_of(attempt, definition)
        if definition.takes_context:
            args = (context, *args)
        begin(attempt)
        return await definition.handler(*args, **kwargs)

    async def _run_in_thread(self, attempt: Attempt, definition: TaskDefinition, context: Context) -> Any:
        args, kwargs = _arguments_of(attempt, definition)
        if definition.takes_context:
            args = (context, *args)
        self._stopper.queueing(attempt)
        await self._threads.free()
        self._stopper.watch(attempt)
        try:
            begin(attempt)
        except Ends:
            self._threads.leave()
            raise
        call = self._threads.start(definition.handler, args, kwargs)
        try:
            return await call.future
        except asyncio.CancelledError:
            if not call.over:
                attempt.lingers = True
                self._stopper.stuck(attempt)
                call.when_over = lambda: self._on_thread_over(attempt)
            raise

    async def _run_isolated(self, attempt: Attempt, definition: TaskDefinition, context: Context) -> Any:
        assert self._isolated is not None  # noqa: S101 - asked by `run`
        self._stopper.queueing(attempt)
        chance = self._entropy.chance()

        isolated = self._isolated

        def started() -> None:
            if isolated.lifespan_problem is not None:
                self._tell_once(LifespanSkipped, definition, isolated.lifespan_problem)
            self._stopper.watch(attempt)
            begin(attempt)

        try:
            outcome = await self._isolated.run(attempt, definition, chance, started, len(self._moving))
        except ChildNotStarted as error:
            if error.is_new:
                told = {"problem": error.problem, "again_in": error.again_in}
                self._emitter.attempt_event(ChildNotReady, attempt, **told)
            raise Ends(Snooze(error.again_in, f"no process for it: {error.problem}")) from None
        except CannotIsolate as error:
            if definition.isolate:
                raise Ends(cannot_isolate(str(error))) from None
            # A suspect, and more likely the neighbour of what crashed: failing it would punish the
            # innocent. The store counts its next crash as its own, also here.
            self._tell_once(SuspectNotIsolated, definition, str(error))
            around = self._moving if self._isolated.surrounds else ()
            return await surrounded(around, context, lambda: self._run_here(attempt, definition, context))()
        if isinstance(outcome, Verdict):
            raise EndsTogether(outcome)
        if isinstance(outcome, list):
            return [self._result_of(definition, one) for one in outcome]
        if self._middleware and isinstance(outcome, Done):
            return _returned(definition, outcome.result)
        raise Ends(outcome)

    def _tell_once(self, kind: type[WorkerEvent], definition: TaskDefinition, problem: str) -> None:
        if (known := (kind, definition.name, problem)) not in self._told:
            self._told.add(known)
            self._emitter.worker_event(kind, task=definition.name, problem=problem)

    def _result_of(self, definition: TaskDefinition, item: Item) -> Any:
        """As middleware wants to see it; else as it was written down already."""
        if not isinstance(item, Done):
            return item
        if self._middleware or item.result is None:
            return _returned(definition, item.result)
        return msgspec.Raw(item.result)


def begin(attempt: Attempt) -> None:
    """The handler is called next, or its job goes back because its units are too old or its lease is over."""
    if not attempt.is_leased:
        attempt.expired = True
        raise Ends(Release())
    if attempt.spending is not None and not attempt.spending.begin():
        raise Ends(Release())


def arguments(definition: TaskDefinition, job: Claimed) -> tuple[tuple[Any, ...], dict[str, Any]]:
    try:
        return definition.payload.decode(job.payload)
    except InvalidPayload as error:
        raise Ends(unreadable(job, error)) from None


def _arguments_of(attempt: Attempt, definition: TaskDefinition) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(attempt, Call):
        return (attempt.items,), {}
    return arguments(definition, attempt.job)


def _returned(definition: TaskDefinition, result: bytes | None) -> Any:
    """What the handler returned, for middleware; as plain data when it is not what was annotated."""
    try:
        return definition.result.decode(result)
    except Exception:  # noqa: BLE001 - decoding runs a user's own methods
        return msgspec.json.decode(result or b"null")
