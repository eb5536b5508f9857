"""I13 Running ≤ limit, per key and per queue; the counters equal a recount.
I22 A queue's length limit holds whatever arrives together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.simulation.trace import Violation
from tests.simulation.watch import Event
from tidemill.core.queues import QueueSettings
from tidemill.core.states import PENDING, State


class Limits:
    """A limit that an operator lowers takes nothing away from what runs; it holds for new claims."""

    def __init__(
        self,
        settings: Callable[[str], QueueSettings],
        counts: Callable[[], dict[str, dict[State, int]]],
        running_in: Callable[[], dict[tuple[str, str], int]],
    ) -> None:
        self._settings = settings
        self._counts = counts
        self._running_in = running_in

    def see(self, event: Event) -> None:
        if not event.changes:
            return
        claimed = {(job.queue, job.key) for job in event.claimed()}
        running = Counter((job.queue, job.key) for job in event.jobs.values() if job.state is State.RUNNING)
        for queue, lane in claimed:
            self._check(queue, lane, running)
        if event.verb == "insert":
            self._check_length(event)
        self._check_counters(event)
        if (counted := self._running_in()) != dict(running):
            raise Violation("I13", f"after {event.verb} {counted} are said to run, {dict(running)} do")

    def _check(self, queue: str, lane: str, running: Counter[tuple[str, str]]) -> None:
        settings = self._settings(queue)
        limit = settings.key_concurrency
        if limit is not None and lane and running[queue, lane] > limit:
            raise Violation("I13", f"{running[queue, lane]} jobs of key {lane!r} run, {limit} may")
        together = sum(count for (name, _), count in running.items() if name == queue)
        if settings.concurrency is not None and together > settings.concurrency:
            raise Violation("I13", f"{together} jobs of queue {queue!r} run, {settings.concurrency} may")

    def _check_length(self, event: Event) -> None:
        for queue in {job.queue for job in event.created()}:
            limit = self._settings(queue).max_length
            pending = sum(1 for job in event.jobs.values() if job.queue == queue and job.state in PENDING)
            if limit is not None and pending > limit:
                raise Violation("I22", f"{pending} jobs wait in {queue!r}, which holds {limit}")

    def _check_counters(self, event: Event) -> None:
        recount: Counter[tuple[str, State]] = Counter((job.queue, job.state) for job in event.jobs.values())
        counted = {(q, s): n for q, states in self._counts().items() for s, n in states.items() if n}
        if counted != dict(recount):
            raise Violation(
                "I13", f"after {event.verb} the counters say {counted}, a recount says {dict(recount)}"
            )
