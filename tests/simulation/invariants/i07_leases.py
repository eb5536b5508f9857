"""I7 A heartbeating owner is never reclaimed; a silent one within L + R + 1 s."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.facts import Facts
from tests.simulation.trace import Violation
from tests.simulation.watch import Event, identity
from tidemill.core.claims import Heartbeat
from tidemill.core.job import Job
from tidemill.core.states import State


class Leases:
    """`calm_since` tells since when some worker could reclaim undisturbed; None when none can.
    `holds` looks into a worker's hands: is this very claim there?"""

    def __init__(
        self,
        facts: Facts,
        patience: float,
        calm_since: Callable[[], float | None],
        holds: Callable[[str, Job], bool],
    ) -> None:
        self._facts = facts
        self._patience = patience
        self._calm_since = calm_since
        self._holds = holds

    def see(self, event: Event) -> None:
        if event.verb in ("reclaim", "extend"):
            for before, after in event.changes.values():
                if before is not None and before.state is State.RUNNING and _taken(before, after):
                    self._check_taken(event, before)
        self._check_overdue(event)

    def _check_taken(self, event: Event, job: Job) -> None:
        claim = self._facts.claim(job.id, *identity(job))
        if claim is None:
            raise Violation("I7", f"{job.id} ran under a claim nobody was given")
        if event.verb == "reclaim":
            if claim.lease_end > event.boot and claim.worker not in event.call.args[0]:
                left = claim.lease_end - event.boot
                raise Violation(
                    "I7", f"{job.id} was reclaimed although its lease ran for another {left:.3f} s"
                )
            return
        heartbeat: Heartbeat = event.call.args[0]
        listed = any((h.job, h.fence, h.claim) == (job.id, claim.fence, claim.id) for h in heartbeat.held)
        if heartbeat.worker != claim.worker or claim.number > heartbeat.received or listed:
            raise Violation(
                "I7", f"{job.id} was taken from {claim.worker} by a heartbeat of {heartbeat.worker}"
            )
        if self._holds(claim.worker, job):
            raise Violation("I7", f"{job.id} was taken from {claim.worker}, which holds it and says so")

    def _check_overdue(self, event: Event) -> None:
        calm = self._calm_since()
        if calm is None:
            return
        for job in event.jobs.values():
            if job.state is not State.RUNNING:
                continue
            claim = self._facts.claim(job.id, *identity(job))
            if claim is None:  # given in this very event
                continue
            overdue = event.boot - max(claim.lease_end, calm)
            if overdue > self._patience:
                raise Violation(
                    "I7", f"{job.id} of the silent {claim.worker} is {overdue:.1f} s over its lease"
                )


def _taken(before: Job, after: Job | None) -> bool:
    return after is None or after.state is not State.RUNNING or identity(before) != identity(after)
