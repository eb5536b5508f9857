"""Runs attempts: one task each, from its start to its outcome.

This is the hot path: what is done here is done per job. Hence one wrapper coroutine, no
timeout scope, no lock, no log line on success; see `benchmarks/worker_cost.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from tidemill.clock import Entropy
from tidemill.core.claims import Claimed
from tidemill.core.outcomes import Done, Fail, Outcome, Release, Split
from tidemill.errors import InvalidPayload
from tidemill.tasks.context import Context
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.telemetry.current import CURRENT
from tidemill.telemetry.events import BatchSplit, JobStarted, SlotStuck
from tidemill.worker import batch_verdicts as verdicts
from tidemill.worker.attempt import LINGER, Attempt, Stop
from tidemill.worker.batch_splits import Splits
from tidemill.worker.batch_verdicts import EndsTogether, Item, Verdict
from tidemill.worker.call import Call
from tidemill.worker.deadlines import Deadlines
from tidemill.worker.emitter import Emitter
from tidemill.worker.hands import Hands
from tidemill.worker.in_flow import fitting, give_results, unreadable
from tidemill.worker.pace import Pace
from tidemill.worker.refused import is_overloaded, refused
from tidemill.worker.runners.isolated import Isolation, cannot_isolate
from tidemill.worker.runners.places import CannotIsolate
from tidemill.worker.runners.threads import Threads
from tidemill.worker.stats import Stats
from tidemill.worker.translate import Ends, describe, outcome_of, timed_out

_DONE = Done()


class Executor:
    """`on_outcome` is called when an attempt is over for the store, `on_room` when a slot comes free
    without one."""

    def __init__(
        self,
        hands: Hands,
        pace: Pace,
        stats: Stats,
        emitter: Emitter,
        *,
        concurrency: int,
        entropy: Entropy,
        threads: Threads,
        isolated: Isolation | None,
        middleware: Sequence[Middleware],
        state: Any,
        on_outcome: Callable[[Attempt], None],
        on_room: Callable[[], None],
    ) -> None:
        self._hands, self._pace, self._stats, self._emitter = hands, pace, stats, emitter
        self._concurrency, self._entropy = concurrency, entropy
        self._threads, self._isolated = threads, isolated
        self._middleware = tuple(middleware)
        self._state = state
        self._on_outcome, self._on_room = on_outcome, on_room
        self._loop = asyncio.get_running_loop()
        self._worker = asyncio.current_task()
        self._wants = emitter.wants
        self._clean = contextvars.copy_context()
        self._deadlines = Deadlines(hands.under_way, self._overdue, self._clean)
        self._splits = Splits()

    def fill(self) -> None:
        """Start what was claimed ahead while slots are free."""
        hands = self._hands
        now = self._loop.time()
        while hands.ahead and hands.running < self._concurrency:
            attempt = hands.ahead.popleft()
            if attempt.stop is None:
                hands.running += 1
                attempt.started = now
                # A slot is often filled from the task of the attempt that left it: without a context of
                # its own, the next would begin with what that one's handler has set.
                run = self._run_call if attempt.shared else self._run
                attempt.task = self._loop.create_task(run(attempt), context=self._clean.copy())

    def stop(self, attempt: Attempt, why: Stop) -> None:
        """Cancel an attempt; one that was not started just never will be. A member of a call that is lost
        leaves the others to go on. One that has committed its own end is not lost."""
        if why is Stop.LOST and attempt.committed is not None:
            return
        if isinstance(attempt.call, Call):
            if why is Stop.LOST and attempt.stop is None:
                attempt.stop = why
                self._stats.lost += 1
            if why is Stop.LOST and not attempt.call.is_lost:
                return
            attempt = attempt.call
        if attempt.stop is None and attempt.outcome is None:
            attempt.stop = why
            if attempt.begun and attempt.task is not None:
                attempt.task.cancel()

    def abandon(self, attempt: Attempt, outcome: Outcome) -> None:
        """Settle an attempt whose code does not stop. It keeps its slot until it does."""
        attempt = attempt.call or attempt
        if attempt.outcome is None:
            self._stuck(attempt)
            self._conclude(attempt, outcome)

    def close(self) -> None:
        self._deadlines.close()

    async def _run(self, attempt: Attempt) -> None:
        definition = attempt.definition
        assert definition is not None  # noqa: S101 - an unknown task is never started
        job = attempt.job
        attempt.begun = True
        CURRENT.set(job)
        try:
            if attempt.stop is not None:
                raise asyncio.CancelledError  # noqa: TRY301 - stopped between its start and its first step
            if job.flow is not None or self._wants(JobStarted):
                await self._prepare(attempt)
            if self._middleware or not definition.is_async or definition.isolate or job.crashes:
                result = await self._run_otherwise(attempt, definition)
            else:
                attempt.deadline = deadline = attempt.started + (job.timeout or definition.timeout)
                if deadline < self._deadlines.soonest:
                    self._deadlines.arm(deadline)
                args, kwargs = _arguments(definition, job)
                if attempt.spending is not None:
                    _begin(attempt)
                if definition.takes_context:
                    result = await definition.handler(self._context(attempt), *args, **kwargs)
                else:
                    result = await definition.handler(*args, **kwargs)
            outcome: Outcome | None = _DONE if result is None else _encoded(definition, result)
        except asyncio.CancelledError as error:
            outcome = self._cancelled(attempt, error)
        except (KeyboardInterrupt, GeneratorExit):  # not the handler's: the process or the loop is ending
            raise
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, a Rust panic too
            outcome = self._raised(definition, attempt, error)
        self._ended(attempt, outcome)

    async def _prepare(self, attempt: Attempt) -> None:
        if self._wants(JobStarted):
            self._emitter.attempt_event(JobStarted, attempt, waited=self._emitter.waited(attempt))
        if attempt.job.flow is not None and attempt.job.flow.reads:
            self._watch(attempt)
            await give_results(attempt)

    async def _run_call(self, call: Attempt) -> None:
        """As `_run`, for several jobs at once: what becomes of each is in the call's verdicts."""
        definition = call.definition
        assert definition is not None  # noqa: S101 - an unknown task is never started
        assert isinstance(call, Call)  # noqa: S101 - asked by fill
        try:
            await self._give_results(call)
            call.begin()
            if call.stop is not None:
                raise asyncio.CancelledError  # noqa: TRY301 - stopped between its start and its first step
            outcome: Outcome | None = await self._results(call, definition) if call.runs else Release()
        except asyncio.CancelledError as error:
            outcome = self._cancelled(call, error)
        except (KeyboardInterrupt, GeneratorExit):  # not the handler's: the process or the loop is ending
            raise
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, a Rust panic too
            outcome = self._raised(definition, call, error)
        self._ended(call, outcome)

    async def _give_results(self, call: Call) -> None:
        """A member whose item is the result of another step that cannot be had ends alone."""
        for member in call.members:
            if member.job.flow is not None and member.job.flow.reads and member.stop is None:
                self._watch(call)
                try:
                    await give_results(member)
                except Ends as end:
                    call.verdicts[member.job.id] = end.outcome

    async def _results(self, call: Call, definition: TaskDefinition) -> Outcome:
        CURRENT.set(call.runs[0].job)
        if self._wants(JobStarted):
            for member in call.runs:
                self._emitter.attempt_event(JobStarted, member, waited=self._emitter.waited(member))
        results = verdicts.check(await self._run_otherwise(call, definition), len(call.runs))
        if call.spending is not None:
            call.spending.answered = True
        self._splits.went_well(call.job, len(call.runs))
        chance = self._entropy.chance()
        return call.judged(verdicts.answered(results, definition.result, call.jobs, definition.retry, chance))

    def _divided(self, definition: TaskDefinition, call: Call, error: BaseException) -> Outcome:
        """Jobs that are retried together get one wait: they may share their next call too."""
        assert definition.batch is not None  # noqa: S101 - or it would be no call
        meter = None if call.spending is None else call.spending.meter
        jobs, chance = call.jobs, self._entropy.chance()
        verdict = verdicts.raised(error, meter, jobs, definition.retry, chance)
        outcomes = self._splits.outcomes(call.job, jobs, verdict, definition.batch.on_error)
        parts = {outcome.part for outcome in outcomes if isinstance(outcome, Split)}
        if parts and verdict.error is not None:
            told = {"error": verdict.error.type, "message": verdict.error.message}
            self._emitter.attempt_event(BatchSplit, call, jobs=len(jobs), parts=len(parts), **told)
        return call.judged(outcomes, verdict.charged)

    def _ended(self, attempt: Attempt, outcome: Outcome | None) -> None:
        hands, pace = self._hands, self._pace
        attempt.task = None
        attempt.ended = ended = self._loop.time()
        pace.spent += ended - attempt.started
        pace.ended += 1
        if attempt.outcome is not None:  # settled when it was abandoned
            self._stats.stuck -= 1
            self._on_room()
        elif attempt.stop is Stop.LOST or outcome is None:
            self._stats.lost += not attempt.shared  # the members of a call have been counted
            self._on_room()
            if attempt.spending is not None:  # what it used is booked all the same (I6)
                self._conclude(attempt, Release())
        else:
            self._conclude(attempt, outcome)
        if not attempt.lingers:
            hands.running -= 1
            if hands.ahead:
                self.fill()

    def _stuck(self, attempt: Attempt) -> None:
        self._stats.stuck += 1
        self._emitter.attempt_event(SlotStuck, attempt, seconds=self._loop.time() - attempt.started)

    def _conclude(self, attempt: Attempt, outcome: Outcome) -> None:
        attempt.conclude(outcome if attempt.job.flow is None else fitting(outcome))
        self._on_outcome(attempt)

    def _watch(self, attempt: Attempt) -> None:
        """The timeout counts from here: waiting for a thread or a process does not count. One that was
        stopped keeps the deadline it has."""
        if attempt.stop is not None:
            return
        attempt.deadline = deadline = self._loop.time() + attempt.timeout
        if deadline < self._deadlines.soonest:
            self._deadlines.arm(deadline)

    def _queueing(self, attempt: Attempt) -> None:
        """It waits for a thread or a process, for which nobody is to blame."""
        if attempt.stop is None:
            attempt.deadline = math.inf

    def _overdue(self, attempt: Attempt) -> None:
        """First cancel; when the code is still there LINGER later, settle without it."""
        if attempt.stop is None and attempt.outcome is None:
            attempt.deadline += LINGER
            self.stop(attempt, Stop.TIMEOUT)
            return
        attempt.deadline = math.inf
        if attempt.stop is Stop.TIMEOUT:
            self.abandon(attempt, self._timed_out(attempt))

    def _context(self, attempt: Attempt) -> Context:
        if isinstance(attempt, Call):
            first, batch = attempt.runs[0].job, tuple(job.id for job in attempt.jobs)
            return Context.of(first, attempt, self._state, batch=batch)
        return Context.of(attempt.job, attempt, self._state)

    async def _run_otherwise(self, attempt: Attempt, definition: TaskDefinition) -> Any:
        """In a thread, in a process, or through middleware."""
        context = self._context(attempt)
        call = self._runner(attempt, definition, context)
        if self._middleware:  # which may hang before it calls the handler
            self._watch(attempt)
        for around in reversed(self._middleware):
            call = _wrapped(around, context, call)
        result = await call()
        if attempt.spending is not None and attempt.spending.late:
            raise Ends(Release())  # which middleware has kept to itself
        return result

    def _runner(
        self, attempt: Attempt, definition: TaskDefinition, context: Context
    ) -> Callable[[], Awaitable[Any]]:
        if self._isolated is not None and (definition.isolate or attempt.job.alone):
            return lambda: self._run_isolated(attempt, definition, context)
        return lambda: self._run_here(attempt, definition, context)

    def _run_here(self, attempt: Attempt, definition: TaskDefinition, context: Context) -> Awaitable[Any]:
        run = self._run_async if definition.is_async else self._run_in_thread
        return run(attempt, definition, context)

    async def _run_async(self, attempt: Attempt, definition: TaskDefinition, context: Context) -> Any:
        self._watch(attempt)
        args, kwargs = _arguments_of(attempt, definition)
        if definition.takes_context:
            args = (context, *args)
        _begin(attempt)
        return await definition.handler(*args, **kwargs)

    async def _run_in_thread(self, attempt: Attempt, definition: TaskDefinition, context: Context) -> Any:
        args, kwargs = _arguments_of(attempt, definition)
        if definition.takes_context:
            args = (context, *args)
        self._queueing(attempt)
        await self._threads.free()
        self._watch(attempt)
        try:
            _begin(attempt)
        except Ends:
            self._threads.leave()
            raise
        call = self._threads.start(definition.handler, args, kwargs)
        try:
            return await call.future
        except asyncio.CancelledError:
            if not call.over:
                attempt.lingers = True
                self._stuck(attempt)
                call.when_over = lambda: self._thread_over(attempt)
            raise

    def _thread_over(self, attempt: Attempt) -> None:
        attempt.lingers = False
        self._stats.stuck -= 1
        self._hands.running -= 1
        self.fill()
        self._on_room()

    async def _run_isolated(self, attempt: Attempt, definition: TaskDefinition, context: Context) -> Any:
        assert self._isolated is not None  # noqa: S101 - asked by _runner
        self._queueing(attempt)
        chance = self._entropy.chance()

        def started() -> None:
            self._watch(attempt)
            _begin(attempt)

        try:
            outcome = await self._isolated.run(attempt, definition, chance, started)
        except CannotIsolate as error:
            if definition.isolate:
                raise Ends(cannot_isolate(str(error))) from None
            # A suspect, and more likely the neighbour of what crashed: failing it would punish the
            # innocent. The store counts it as running alone all the same.
            return await self._run_here(attempt, definition, context)
        if isinstance(outcome, Verdict):
            raise EndsTogether(outcome)
        if isinstance(outcome, list):
            return [self._result_of(definition, one) for one in outcome]
        if self._middleware and isinstance(outcome, Done):
            return _returned(definition, outcome.result)
        raise Ends(outcome)

    def _result_of(self, definition: TaskDefinition, item: Item) -> Any:
        """As middleware wants to see it; else as it was written down already."""
        if not isinstance(item, Done):
            return item
        if self._middleware or item.result is None:
            return _returned(definition, item.result)
        return msgspec.Raw(item.result)

    def _raised(self, definition: TaskDefinition, attempt: Attempt, error: BaseException) -> Outcome:
        job, spending = attempt.job, attempt.spending
        if spending is not None and spending.late:
            return Release()
        if isinstance(attempt, Call):
            return self._divided(definition, attempt, error)
        told = None if spending is None else refused(spending.meter, error)
        if told is not None and spending is not None and not is_overloaded(spending.meter, error):
            return told
        failed = outcome_of(error, definition.retry, job.attempt, job.priority, self._entropy.chance())
        if told is None:
            return failed
        attempt.charged = failed
        return told

    def _timed_out(self, attempt: Attempt) -> Outcome:
        definition = attempt.definition
        assert definition is not None  # noqa: S101 - it ran
        seconds, chance = attempt.timeout, self._entropy.chance()
        jobs = attempt.jobs if isinstance(attempt, Call) else (attempt.job,)
        outcomes = [timed_out(seconds, definition.retry, job.attempt, job.priority, chance) for job in jobs]
        return attempt.judged(outcomes) if isinstance(attempt, Call) else outcomes[0]

    @property
    def _worker_is_ending(self) -> bool:
        return self._worker is not None and self._worker.cancelling() > 0

    def _cancelled(self, attempt: Attempt, error: asyncio.CancelledError) -> Outcome | None:
        match attempt.stop:
            case Stop.TIMEOUT:
                return self._timed_out(attempt)
            case Stop.DRAIN:
                return Release()
            case Stop.LOST:
                return None
            case None if self._worker_is_ending:  # and everything on its loop is cancelled with it
                return Release()
            case None:  # something the handler awaited was cancelled: its own failure
                assert attempt.definition is not None  # noqa: S101 - it ran
                return self._raised(attempt.definition, attempt, error)


def _begin(attempt: Attempt) -> None:
    """The handler is called next, or its job goes back because its units are too old."""
    if attempt.spending is not None and not attempt.spending.begin():
        raise Ends(Release())


def _arguments_of(attempt: Attempt, definition: TaskDefinition) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(attempt, Call):
        return (attempt.items,), {}
    return _arguments(definition, attempt.job)


def _arguments(definition: TaskDefinition, job: Claimed) -> tuple[tuple[Any, ...], dict[str, Any]]:
    try:
        return definition.payload.decode(job.payload)
    except InvalidPayload as error:
        raise Ends(unreadable(job, error)) from None


def _returned(definition: TaskDefinition, result: bytes | None) -> Any:
    """What the handler returned, for middleware; as plain data when it is not what was annotated."""
    try:
        return definition.result.decode(result)
    except Exception:  # noqa: BLE001 - decoding runs a user's own methods
        return msgspec.json.decode(result or b"null")


def _encoded(definition: TaskDefinition, result: Any) -> Outcome:
    try:
        return Done(definition.result.encode(result))
    except Exception as error:  # noqa: BLE001 - encoding runs a user's own methods
        return Fail(describe(error), "result cannot be stored")


def _wrapped(around: Middleware, context: Context, call: Callable[[], Awaitable[Any]]) -> Callable[[], Any]:
    return lambda: around(context, call)
