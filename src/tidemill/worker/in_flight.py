"""The attempts of the jobs that this worker has claimed, and the slots in which they run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidemill.core.claims import ClaimedJob
from tidemill.worker.attempt import Attempt


class InFlight:
    """All jobs that a worker has claimed and not settled.

    `held` maps job ids to attempts. `received` is the number of the last claim whose jobs are in `held`. A
    heartbeat must list every job of this worker, so keep this order:

    - A job enters `held` before `received` gets the number of its claim.
    - The heartbeat's thread reads `received` first and then copies `held`.
    - A job leaves `held` after the store has answered its settlement."""

    def __init__(self) -> None:
        self.held: dict[str, Attempt] = {}
        self.received = 0

    def under_way(self) -> Iterable[Attempt]:
        """Returns the attempts that can be cancelled. For each job of a batch this is the batch attempt, so
        it appears several times."""
        return (attempt.batch or attempt for attempt in self.held.values())

    def knows(self, job: ClaimedJob) -> bool:
        """True if the attempt of this claim is already in `held`. That happens if the store's answer to the
        claim arrived twice."""
        attempt = self.held.get(job.id)
        return attempt is not None and (attempt.job.fence, attempt.job.claim) == (job.fence, job.claim)

    def forget(self, attempt: Attempt) -> None:
        """Removes the attempt, unless a newer claim of the same job has replaced it."""
        if self.held.get(attempt.job.id) is attempt:
            del self.held[attempt.job.id]


class Slots:
    """The slots of a worker. `concurrency` is their number, `running` how many are in use. `buffered` holds
    attempts that wait for a slot."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.running = 0
        self.buffered: deque[Attempt] = deque()

    @property
    def busy(self) -> int:
        """The number of running and buffered attempts. Attempts that only wait to be settled do not count."""
        return self.running + len(self.buffered)
