"""J34 A paused queue gives nothing. J36 A job past its expiry is cancelled instead of started."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.trace import Violation
from tests.simulation.watch import Event
from tidemill.core.queues import Pause


class OnlyOpen:
    def __init__(self, pause_of: Callable[[str], Pause | None]) -> None:
        self._pause_of = pause_of

    def see(self, event: Event) -> None:
        for job in event.claimed():
            pause = self._pause_of(job.queue)
            if pause is not None and (pause.until is None or event.wall < pause.until):
                raise Violation("J34", f"{job.id} was claimed from {job.queue!r}, which is paused")
            if job.expires is not None and event.wall >= job.expires:
                raise Violation(
                    "J36", f"{job.id} was claimed {event.wall - job.expires:.3f} s after it expired"
                )
