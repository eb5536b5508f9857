"""Timeouts of all running attempts, with one timer.

A worker runs some tens or hundreds of attempts at once but ends thousands a second, so
nothing is filed or removed per attempt: each carries its deadline, one timer stands at
the soonest one seen, and when it fires the few that are held are looked through.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from contextvars import Context

from tidemill.worker.attempt import Attempt

PRECISION = 0.005
"""Deadlines closer together than this share one look, which bounds the cost of looking."""


class Deadlines:
    """`soonest` is when the timer fires; whoever starts an attempt with an earlier deadline calls `arm`.
    `due` is called in `context`: not in that of the attempt which happened to arm the timer."""

    def __init__(
        self, held: Callable[[], Iterable[Attempt]], due: Callable[[Attempt], None], context: Context
    ) -> None:
        self._held = held
        self._due = due
        self._context = context
        self._timer: asyncio.TimerHandle | None = None
        self.soonest = math.inf

    def arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.soonest = deadline
        self._timer = asyncio.get_running_loop().call_at(deadline, self._fire, context=self._context)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.soonest = math.inf

    def _fire(self) -> None:
        now = asyncio.get_running_loop().time()
        self.soonest = math.inf
        self._timer = None
        for attempt in list(self._held()):
            if attempt.deadline <= now:
                self._due(attempt)
        following = min((attempt.deadline for attempt in self._held()), default=math.inf)
        if following < self.soonest:
            self.arm(max(following, now + PRECISION))
