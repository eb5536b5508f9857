"""I5 The fence grows with every claim; no two claims share an identity.

A worker's claim number is part of it: repeated after a lost reply, it gives nothing new (J33)."""

from __future__ import annotations

from tests.simulation.facts import claim_request
from tests.simulation.trace import Violation
from tests.simulation.watch import Event


class Fences:
    def __init__(self) -> None:
        self._highest = 0
        self._given: set[tuple[str, int, int]] = set()
        self._numbers: set[tuple[str, int]] = set()

    def see(self, event: Event) -> None:
        claimed = list(event.claimed())
        if (request := claim_request(event)) is not None:
            number = (request.worker, request.number)
            if claimed and number in self._numbers:
                raise Violation(
                    "I5", f"claim {number[1]} of {number[0]}, repeated, got {claimed[0].id} as new"
                )
            self._numbers.add(number)
        fences = {job.fence for job in claimed}
        if len(fences) > 1:
            raise Violation("I5", f"one claim got the fences {sorted(fences)}")
        for job in claimed:
            if job.fence <= self._highest:
                raise Violation("I5", f"{job.id} got fence {job.fence} after {self._highest} was given")
            if not job.claim or (job.id, job.fence, job.claim) in self._given:
                raise Violation("I5", f"{job.id} got claim {job.claim} a second time, or none")
            self._given.add((job.id, job.fence, job.claim))
        self._highest = max([self._highest, *fences])
