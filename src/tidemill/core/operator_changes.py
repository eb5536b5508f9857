"""Changes that an operator makes to jobs, and the job states that each change applies to."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tidemill.core import transitions
from tidemill.core.jobs import Job, problem_with_priority
from tidemill.core.states import FINAL, LIVE, PENDING, State


class CancelJobs(msgspec.Struct, frozen=True, tag="cancel"):
    """Cancels live jobs. `generations` has a generation by job id. If it is given, a job that was retried
    meanwhile is not cancelled."""

    reason: str = "cancelled by hand"
    generations: dict[str, int] | None = None


class ArchiveJobs(msgspec.Struct, frozen=True, tag="archive"):
    """Makes pending jobs failed without running them. They are kept and searchable, and can be retried."""

    reason: str = "archived by hand"


class RetryJobs(msgspec.Struct, frozen=True, tag="retry"):
    """Runs finished jobs again as a new generation."""


class RunJobsNow(msgspec.Struct, frozen=True, tag="run"):
    """Makes scheduled jobs ready now, without waiting for their due time."""


class ReprioritiseJobs(msgspec.Struct, frozen=True, tag="reprioritise"):
    """Changes the priority of pending jobs."""

    priority: int

    def __post_init__(self) -> None:
        if problem := problem_with_priority(self.priority):
            raise ValueError(problem)


class DeleteJobs(msgspec.Struct, frozen=True, tag="delete"):
    """Deletes jobs. A running job must be cancelled first."""


OperatorChange = CancelJobs | ArchiveJobs | RetryJobs | RunJobsNow | ReprioritiseJobs | DeleteJobs


class AmendResult(msgspec.Struct, frozen=True):
    """The result of an operator's change.

    - `changed`: the ids of the changed jobs.
    - `unchanged`: the ids of matching jobs whose state did not allow the change."""

    changed: tuple[str, ...]
    unchanged: tuple[str, ...]


def applies_to(change: OperatorChange, job: Job) -> bool:
    match change:
        case CancelJobs(_, generations):
            meant = generations is None or generations.get(job.id) == job.generation
            return meant and job.state in LIVE
        case ArchiveJobs():
            return job.state in PENDING
        case RetryJobs():
            return job.state in FINAL
        case RunJobsNow():
            return job.state is State.SCHEDULED
        case ReprioritiseJobs():
            return job.state in PENDING
        case DeleteJobs():
            return job.state is not State.RUNNING


def apply_change(change: OperatorChange, job: Job, now: float) -> Job | None:
    """Returns the job after the change; None if the change deletes the job. `now` is a wall time."""
    match change:
        case CancelJobs(reason):
            return transitions.cancel_job(job, reason, now)
        case ArchiveJobs(reason):
            return transitions.archive_job(job, reason, now)
        case RetryJobs():
            return transitions.retry_job(job, now)
        case RunJobsNow():
            return transitions.run_job_now(job, now)
        case ReprioritiseJobs(priority):
            return replace(job, priority=priority)
        case DeleteJobs():
            return None
