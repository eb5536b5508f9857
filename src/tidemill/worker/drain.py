"""Stopping without losing or charging anything: first ask, then insist, then hand back."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidemill.core.outcomes import Release
from tidemill.telemetry.events import Draining, GraceOver, OutcomesUntold
from tidemill.worker.attempt import LINGER, Stop
from tidemill.worker.emitter import Emitter
from tidemill.worker.executor import Executor
from tidemill.worker.hands import Hands

TELL_WITHIN = 5.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)
INSIST_AFTER = 1.0
"""A service manager and a terminal signal a whole process group, and a supervisor passes the signal
on to its workers: what comes this soon after the first is the first once more."""


class Drain:
    """`begin` lets what runs finish within the grace time; `hurry` ends that time now.

    A store that does not answer cannot keep a worker from stopping: `give_up` is called when all that
    is left is telling it."""

    def __init__(
        self,
        hands: Hands,
        executor: Executor,
        emitter: Emitter,
        *,
        grace: float,
        give_up: Callable[[], None],
    ) -> None:
        self._hands, self._executor, self._emitter = hands, executor, emitter
        self._give_up = give_up
        self._grace = grace
        self._hurried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._drain())
            running = sum(attempt.outcome is None for attempt in self._hands.held.values())
            self._emitter.worker_event(Draining, running=running, grace=self._grace)

    def hurry(self) -> None:
        self._hurried.set()
        self.begin()

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._grace):
                await self._hurried.wait()
        except TimeoutError:
            pass
        unfinished = [a for a in self._hands.held.values() if a.outcome is None]
        self._emitter.worker_event(GraceOver, running=len(unfinished))
        for attempt in unfinished:
            self._executor.stop(attempt, Stop.DRAIN)
        await asyncio.sleep(LINGER)
        for attempt in list(self._hands.held.values()):
            self._executor.abandon(attempt, Release())
        await asyncio.sleep(TELL_WITHIN)
        self._emitter.worker_event(OutcomesUntold, outcomes=len(self._hands.held))
        self._give_up()


class StopRequests:
    def __init__(self, stop: Callable[[], None], hurry: Callable[[], None]) -> None:
        self._stop, self._hurry = stop, hurry
        self._loop = asyncio.get_running_loop()
        self._first: float | None = None

    def received(self) -> None:
        if self._first is None:
            self._first = self._loop.time()
            self._stop()
        elif self._loop.time() - self._first >= INSIST_AFTER:
            self._hurry()


@contextmanager
def on_signals(stop: Callable[[], None], hurry: Callable[[], None]) -> Iterator[None]:
    """The first SIGTERM or SIGINT drains; another, a second later or more, hands back at once."""
    loop = asyncio.get_running_loop()
    requests = StopRequests(stop, hurry)
    for number in SIGNALS:
        loop.add_signal_handler(number, requests.received)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
