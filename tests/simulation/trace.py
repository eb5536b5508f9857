"""The trace of a simulation, violations, and a listener for worker errors."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.telemetry.events import Event, HeartbeatCrashed, MaintenanceCrashed
from tidemill.telemetry.listeners import Signals


class Violation(Exception):
    """Raised if an invariant does not hold. `number` is its number in the list."""

    def __init__(self, number: str, sentence: str) -> None:
        super().__init__(f"{number}: {sentence}")
        self.number = number


class Trace:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lines: list[tuple[float, str, str]] = []

    def add(self, who: str, what: str) -> None:
        self._lines.append((self._now(), who, what))

    def render(self, about: str | None = None) -> str:
        """Returns all lines, or those that name a job or a process."""
        shown = (line for line in self._lines if about is None or about in line[1] or about in line[2])
        return "\n".join(f"{at:10.3f}  {who:<12} {what}" for at, who, what in shown)


def report_worker_errors(signals: Signals, on_exception: Callable[[str], None]) -> None:
    """Subscribes to all events, so that every event is built; reports each one with a traceback."""

    def hear(event: Event) -> None:
        if isinstance(event, MaintenanceCrashed | HeartbeatCrashed):
            on_exception(event.traceback)

    signals.subscribe(hear)
