"""I23 Correct with every wake-up lost: due jobs start within the poll period."""

from __future__ import annotations

from tests.simulation.facts import Facts
from tests.simulation.trace import Violation
from tidemill.core.job import Job


def check_started_in_time(facts: Facts, jobs: dict[str, Job], epoch: float, within: float) -> None:
    """Only asked of quiet histories: workers with room, a good network, no limits, no clock steps."""
    for job in jobs.values():
        claims = facts.by_job.get(job.id)
        if claims is None:
            continue
        late = claims[0].at - (max(job.created, facts.due.get(job.id, job.created)) - epoch)
        if late > within:
            raise Violation("I23", f"{job.id} was claimed {late:.3f} s after it was due")
