"""The witness: what producers were told and what handlers did, kept outside the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidemill.core.job import NewJob


@dataclass(frozen=True, slots=True)
class Run:
    """One handler of one attempt, from the inside. `isolated`: alone in a process of its own."""

    job: str
    attempt: int
    generation: int
    worker: str
    isolated: bool
    at: float


@dataclass(slots=True)
class Ledger:
    now: Callable[[], float]
    sent: dict[str, tuple[str, NewJob]] = field(default_factory=dict)  # id → queue, request
    accepted: dict[str, float] = field(default_factory=dict)
    starts: list[Run] = field(default_factory=list)
    commits: list[Run] = field(default_factory=list)
    interrupted: list[Run] = field(default_factory=list)
    enqueues: list[tuple[str, float]] = field(default_factory=list)  # id, seconds until it returned
    cancels: dict[tuple[str, int], float] = field(default_factory=dict)  # id, generation → returned at
    paused_at: dict[str, float] = field(default_factory=dict)  # process → its last pause
    last_number: dict[str, int] = field(default_factory=dict)  # worker → its last claim before SIGTERM
    terminated: dict[str, float] = field(default_factory=dict)  # worker → SIGTERM
    drained: dict[str, float] = field(default_factory=dict)  # worker → how long its undisturbed drain took

    def send(self, queue: str, request: NewJob) -> None:
        self.sent[request.id] = (queue, request)

    def accept(self, job: str) -> None:
        self.accepted.setdefault(job, self.now())

    def enqueued(self, process: str, job: str, began: float) -> None:
        """A process that was paused meanwhile could not keep its deadline, and nobody expects it to."""
        if self.paused_at.get(process, -1.0) < began:
            self.enqueues.append((job, self.now() - began))
