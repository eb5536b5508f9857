"""A log outside the store: the answers that producers got, and the runs of handlers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidemill.core.jobs import NewJob


@dataclass(frozen=True, slots=True)
class HandlerRun:
    """One run of a handler. `isolated` means alone in a child process."""

    job: str
    attempt: int
    generation: int
    worker: str
    isolated: bool
    at: float


@dataclass(slots=True)
class OutcomeLog:
    now: Callable[[], float]
    sent: dict[str, tuple[str, NewJob]] = field(default_factory=dict)  # id → queue, request
    accepted: dict[str, float] = field(default_factory=dict)
    starts: list[HandlerRun] = field(default_factory=list)
    commits: list[HandlerRun] = field(default_factory=list)
    interrupted: list[HandlerRun] = field(default_factory=list)
    enqueues: list[tuple[str, float]] = field(default_factory=list)  # id, seconds until it returned
    cancels: dict[tuple[str, int], float] = field(default_factory=dict)  # id, generation → returned at
    paused_at: dict[str, float] = field(default_factory=dict)  # process → its last pause
    last_number: dict[str, int] = field(default_factory=dict)  # worker → its last claim before SIGTERM
    terminated: dict[str, float] = field(default_factory=dict)  # worker → SIGTERM
    drained: dict[str, float] = field(default_factory=dict)  # worker → duration of its undisturbed drain

    def send(self, queue: str, request: NewJob) -> None:
        self.sent[request.id] = (queue, request)

    def accept(self, job: str) -> None:
        self.accepted.setdefault(job, self.now())

    def enqueued(self, process: str, job: str, began: float) -> None:
        """Records an accepted job. A process that was paused meanwhile cannot keep its deadline, so it is
        not checked."""
        if self.paused_at.get(process, -1.0) < began:
            self.enqueues.append((job, self.now() - began))
