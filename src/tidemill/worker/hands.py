"""Everything the worker holds a claim on: running, claimed ahead, or awaiting the store's answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidemill.core.claims import Claimed
from tidemill.worker.attempt import Attempt


class Hands:
    """The heartbeat's thread reads `received`, then copies `held`: jobs enter `held` before
    `received` names their claim, and leave it after the store has answered, so a beat never
    leaves out a job the store believes to be here."""

    def __init__(self) -> None:
        self.held: dict[str, Attempt] = {}
        self.ahead: deque[Attempt] = deque()
        self.outcomes: list[Attempt] = []
        self.running = 0
        self.received = 0

    @property
    def busy(self) -> int:
        """Slots and places taken. Outcomes waiting for the store take none."""
        return self.running + len(self.ahead)

    def under_way(self) -> Iterable[Attempt]:
        """What is run and stopped for them: members of a call have one in common."""
        return (attempt.call or attempt for attempt in self.held.values())

    def knows(self, job: Claimed) -> bool:
        """True when this very claim is here already: its reply came twice."""
        attempt = self.held.get(job.id)
        return attempt is not None and (attempt.job.fence, attempt.job.claim) == (job.fence, job.claim)

    def forget(self, attempt: Attempt) -> None:
        """A newer claim on the same job may have taken the place: that one stays."""
        if self.held.get(attempt.job.id) is attempt:
            del self.held[attempt.job.id]
