"""Runs attempts: one task each, from its start to its outcome.

This is the hot path: what is done here is done per job. Hence one wrapper coroutine, no
timeout scope, no lock, no log line on success; see `benchmarks/worker_cost.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Any

from tidemill.clock import Entropy
from tidemill.core.outcomes import Done, Fail, Outcome, Release
from tidemill.tasks.context import Context
from tidemill.tasks.definition import Middleware, TaskDefinition
from tidemill.tasks.waits import ATTEMPT_WAITS
from tidemill.telemetry.current import CURRENT, TOGETHER
from tidemill.telemetry.events import JobStarted, LeaseExpired
from tidemill.worker.attempt import Attempt, Stop
from tidemill.worker.batch_verdicts import check
from tidemill.worker.call import Call
from tidemill.worker.emitter import Emitter
from tidemill.worker.handling import Handling, arguments, begin
from tidemill.worker.hands import Hands
from tidemill.worker.in_flow import fitting, give_results, lacks_needs, take_needs
from tidemill.worker.judging import Judge
from tidemill.worker.runners.isolated import Isolation
from tidemill.worker.runners.threads import Threads
from tidemill.worker.stats import Stats
from tidemill.worker.stopping import Stopper
from tidemill.worker.translate import Ends, describe
from tidemill.worker.waits import SlotLender

_DONE = Done()


class Executor:
    """`on_outcome` is called when an attempt is over for the store, `on_room` when a slot comes free
    without one."""

    def __init__(
        self,
        hands: Hands,
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
        self._hands, self._stats, self._emitter = hands, stats, emitter
        self._concurrency, self._state, self._has_middleware = concurrency, state, bool(middleware)
        self._on_outcome, self._on_room = on_outcome, on_room
        self._loop = asyncio.get_running_loop()
        self._wants = emitter.wants
        self._clean = contextvars.copy_context()
        self._lender = SlotLender(hands, concurrency=concurrency, on_room=self._slot_lent)
        self._clean.run(ATTEMPT_WAITS.set, self._lender)
        self._judge = Judge(emitter, entropy)
        self._stopper = Stopper(
            hands, stats, emitter, self._judge, conclude=self._conclude, context=self._clean
        )
        self.stop, self.abandon = self._stopper.stop, self._stopper.abandon
        self._deadlines = self._stopper.deadlines
        self._handling = Handling(
            self._stopper,
            threads,
            isolated,
            middleware,
            entropy=entropy,
            emitter=emitter,
            on_thread_over=self._thread_over,
        )

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
            if self._has_middleware or not definition.is_async or definition.isolate or job.crashes:
                result = await self._handling.run(attempt, definition, self._context(attempt))
            else:
                attempt.deadline = deadline = attempt.started + (job.timeout or definition.timeout)
                if deadline < self._deadlines.soonest:
                    self._deadlines.arm(deadline)
                args, kwargs = arguments(definition, job)
                begin(attempt)
                if definition.takes_context:
                    result = await definition.handler(self._context(attempt), *args, **kwargs)
                else:
                    result = await definition.handler(*args, **kwargs)
            outcome: Outcome | None = _DONE if result is None else _encoded(definition, result)
        except asyncio.CancelledError as error:
            outcome = self._judge.cancelled(attempt, error)
        except (KeyboardInterrupt, GeneratorExit):  # not the handler's: the process or the loop is ending
            raise
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, a Rust panic too
            outcome = self._judge.raised(definition, attempt, error)
        self._ended(attempt, outcome)

    async def _prepare(self, attempt: Attempt) -> None:
        if self._wants(JobStarted):
            self._emitter.attempt_event(JobStarted, attempt, waited=self._emitter.waited(attempt))
        if attempt.job.flow is not None and attempt.job.flow.reads:
            self._stopper.watch(attempt)
            await give_results(attempt)
        if lacks_needs(attempt):
            self._stopper.watch(attempt)
            await take_needs(attempt)

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
            outcome = self._judge.cancelled(call, error)
        except (KeyboardInterrupt, GeneratorExit):  # not the handler's: the process or the loop is ending
            raise
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, a Rust panic too
            outcome = self._judge.raised(definition, call, error)
        self._ended(call, outcome)

    async def _give_results(self, call: Call) -> None:
        """A member whose item is the result of another step that cannot be had ends alone."""
        for member in call.members:
            if member.job.flow is not None and member.job.flow.reads and member.stop is None:
                self._stopper.watch(call)
                try:
                    await give_results(member)
                except Ends as end:
                    call.verdicts[member.job.id] = end.outcome

    async def _results(self, call: Call, definition: TaskDefinition) -> Outcome:
        CURRENT.set(call.runs[0].job)
        TOGETHER.set(call.jobs)
        if self._wants(JobStarted):
            for member in call.runs:
                self._emitter.attempt_event(JobStarted, member, waited=self._emitter.waited(member))
        context = self._context(call)
        results = check(await self._handling.run(call, definition, context), len(call.runs))
        if call.spending is not None:
            call.spending.answered = True
        return self._judge.answered(definition, call, results)

    def _ended(self, attempt: Attempt, outcome: Outcome | None) -> None:
        hands = self._hands
        attempt.task = None
        attempt.ended = self._loop.time()
        if attempt.expired:
            self._tell_expired(attempt.runs if isinstance(attempt, Call) else [attempt])
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
        if self._lender.open:
            self._lender.attempt_ended(attempt)
        if not attempt.lingers:
            hands.running -= 1
            if hands.ahead:
                self.fill()

    def _tell_expired(self, attempts: Sequence[Attempt]) -> None:
        self._stats.expired += len(attempts)
        for attempt in attempts:
            late = attempt.boot() - attempt.leased_until
            self._emitter.attempt_event(LeaseExpired, attempt, late=late)

    def _slot_lent(self) -> None:
        self.fill()
        self._on_room()

    def _thread_over(self, attempt: Attempt) -> None:
        attempt.lingers = False
        self._stats.stuck -= 1
        self._hands.running -= 1
        self.fill()
        self._on_room()

    def _conclude(self, attempt: Attempt, outcome: Outcome) -> None:
        attempt.conclude(outcome if attempt.job.flow is None else fitting(outcome))
        self._on_outcome(attempt)

    def _context(self, attempt: Attempt) -> Context:
        if isinstance(attempt, Call):
            first, batch = attempt.runs[0].job, tuple(job.id for job in attempt.jobs)
            return Context.of(first, attempt, self._state, batch=batch)
        return Context.of(attempt.job, attempt, self._state)


def _encoded(definition: TaskDefinition, result: Any) -> Outcome:
    try:
        return Done(definition.result.encode(result))
    except Exception as error:  # noqa: BLE001 - encoding runs a user's own methods
        return Fail(describe(error), "result cannot be stored")
