"""Builds the worker's events, and only those somebody wants."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from tidemill.clock import Clock
from tidemill.contract.jobs import Reading
from tidemill.core.claims import Claimed
from tidemill.core.secrecy import redacted_text
from tidemill.core.traces import trace_id
from tidemill.tasks.redaction import EventTexts, TaskSecrets
from tidemill.telemetry.base import AttemptEvent, WorkerEvent
from tidemill.telemetry.signals import Signals
from tidemill.worker.attempt import Attempt

_TEXTS = ("message", "traceback", "reason", "problem")


class Emitter:
    """Fills in what all events of a worker carry, and takes the secrets out of their texts. How long a job
    waited is told by the store's wall clock as it was last read; before that, the worker's own has to do."""

    def __init__(
        self,
        signals: Signals,
        worker: str,
        clock: Clock,
        now: float,
        secrets: TaskSecrets | None = None,
    ) -> None:
        self.signals, self.worker = signals, worker
        self.secrets = secrets or TaskSecrets({})
        self.wants = signals.wants
        self._wall_at_zero = clock.wall() - now

    def clock_read(self, reading: Reading, now: float) -> None:
        """What the store's clock said when the event loop's said `now`."""
        self._wall_at_zero = reading.wall - now

    def wall(self, now: float) -> float:
        """The store's wall time when the event loop's clock says `now`."""
        return now + self._wall_at_zero

    def waited(self, attempt: Attempt) -> float:
        """Seconds from due to start."""
        return max(0.0, attempt.started + self._wall_at_zero - attempt.job.due)

    def worker_event(self, kind: type[WorkerEvent], **fields: Any) -> None:
        if self.wants(kind):
            shown = self._shown(fields, lambda text: redacted_text(text, self.secrets.usual))
            self.signals.emit(kind(worker=self.worker, **shown))

    def attempt_event(self, kind: type[AttemptEvent], attempt: Attempt, **fields: Any) -> None:
        self.job_event(kind, attempt.job, **fields)

    def job_event(self, kind: type[AttemptEvent], job: Claimed, **fields: Any) -> None:
        if self.wants(kind):
            shown = self._shown(fields, EventTexts(self.secrets, job.task, job.payload).text)
            self.signals.emit(
                kind(
                    job=job.id,
                    task=job.task,
                    queue=job.queue,
                    trace=trace_id(job.trace, job.id),
                    attempt=job.attempt,
                    worker=self.worker,
                    **shown,
                )
            )

    def _shown(self, fields: dict[str, Any], redacted: Callable[[str], str]) -> dict[str, Any]:
        """Texts that may repeat what a handler was given: events become log lines, and leave the machine."""
        texts = {name: redacted(text) for name in _TEXTS if isinstance(text := fields.get(name), str)}
        return fields | texts


def described(error: BaseException) -> dict[str, str]:
    """The two fields every event about an error has."""
    return {"error": type(error).__name__, "message": str(error)}


def with_traceback(error: BaseException) -> dict[str, str]:
    return {**described(error), "traceback": "".join(traceback.format_exception(error))}
