"""What a handler sees of its own attempt."""

from __future__ import annotations

from typing import Any, Protocol, Self

from tidemill.core.claims import Claimed


class Reporter(Protocol):
    """Where news of an attempt goes: the worker's heartbeat, or the pipe to it."""

    def progress(self, fraction: float, note: str | None) -> None: ...
    def log(self, line: str) -> None: ...
    def cancelled(self) -> bool: ...


class Context:
    """`attempt` counts from 1. `state` is what the application's lifespan opened."""

    __slots__ = ("_reporter", "attempt", "generation", "job_id", "queue", "state", "task", "trace_id")

    def __init__(
        self,
        reporter: Reporter,
        *,
        job_id: str,
        task: str,
        queue: str,
        attempt: int,
        generation: int = 0,
        trace_id: str | None = None,
        state: Any = None,
    ) -> None:
        self._reporter = reporter
        self.job_id = job_id
        self.task = task
        self.queue = queue
        self.attempt = attempt
        self.generation = generation
        self.trace_id = trace_id or job_id
        self.state = state

    @classmethod
    def of(cls, job: Claimed, reporter: Reporter, state: Any = None) -> Self:
        """What a handler sees of the job in its worker's hands."""
        return cls(
            reporter,
            job_id=job.id,
            task=job.task,
            queue=job.queue,
            attempt=job.attempt,
            generation=job.generation,
            trace_id=job.trace,
            state=state,
        )

    @property
    def cancelled(self) -> bool:
        """True when the attempt was told to stop: its job was cancelled, its lease lost, its timeout is
        over, or the worker's grace time. Stop soon: what a thread still returns is not recorded. An
        isolated handler is killed instead."""
        return self._reporter.cancelled()

    async def progress(self, fraction: float, note: str | None = None) -> None:
        """Show how far the attempt is, from 0 to 1, and what it is doing. It returns at once: news goes
        to the store with a heartbeat, twice a second at most, of which only the latest is kept. A sync
        handler calls `progress_sync`."""
        self.progress_sync(fraction, note)

    def progress_sync(self, fraction: float, note: str | None = None) -> None:
        """`progress` for sync handlers."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"fraction: must lie between 0 and 1, is {fraction}")
        self._reporter.progress(fraction, note)

    def log(self, message: str) -> None:
        """Keep a line with the job: the last 200 of each attempt are shown with it."""
        self._reporter.log(message)
