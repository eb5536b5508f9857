"""Ends attempts that are over their time, lost, or in the way of the worker's own end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextvars import Context

from tidemill.core.outcomes import Outcome
from tidemill.telemetry.events import SlotStuck
from tidemill.worker.attempt import LINGER, Attempt, Stop
from tidemill.worker.call import Call
from tidemill.worker.deadlines import Deadlines
from tidemill.worker.emitter import Emitter
from tidemill.worker.hands import Hands
from tidemill.worker.judging import Judge
from tidemill.worker.stats import Stats


class Stopper:
    """`conclude` settles an attempt without its code. Timers fire in `context`."""

    def __init__(
        self,
        hands: Hands,
        stats: Stats,
        emitter: Emitter,
        judge: Judge,
        *,
        conclude: Callable[[Attempt, Outcome], None],
        context: Context,
    ) -> None:
        self._stats, self._emitter, self._judge, self._conclude = stats, emitter, judge, conclude
        self._loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(hands.under_way, self._overdue, context)

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
            self.stuck(attempt)
            self._conclude(attempt, outcome)

    def stuck(self, attempt: Attempt) -> None:
        self._stats.stuck += 1
        self._emitter.attempt_event(SlotStuck, attempt, seconds=self._loop.time() - attempt.started)

    def watch(self, attempt: Attempt) -> None:
        """The timeout counts from here: waiting for a thread or a process does not count. One that was
        stopped keeps the deadline it has."""
        if attempt.stop is not None:
            return
        attempt.deadline = deadline = self._loop.time() + attempt.timeout
        if deadline < self.deadlines.soonest:
            self.deadlines.arm(deadline)

    def queueing(self, attempt: Attempt) -> None:
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
            self.abandon(attempt, self._judge.timed_out(attempt))
