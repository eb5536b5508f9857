"""What an operator can do to jobs, and which jobs it applies to."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tidemill.core import transitions
from tidemill.core.job import Job, problem_with_priority
from tidemill.core.states import FINAL, LIVE, PENDING, State


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """With `generations`, by id, only jobs that are still of theirs: one that was retried meanwhile is
    another."""

    reason: str = "cancelled by hand"
    generations: dict[str, int] | None = None


class Archive(msgspec.Struct, frozen=True, tag="archive"):
    """A pending job joins the failed ones without having run: kept, searchable, retryable."""

    reason: str = "archived by hand"


class RetryNow(msgspec.Struct, frozen=True, tag="retry"):
    """An ended job runs again as a new generation."""


class RunNow(msgspec.Struct, frozen=True, tag="run"):
    """A scheduled job becomes ready."""


class Reprioritise(msgspec.Struct, frozen=True, tag="reprioritise"):
    priority: int

    def __post_init__(self) -> None:
        if problem := problem_with_priority(self.priority):
            raise ValueError(problem)


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """The record goes; a running job must be cancelled first."""


Change = Cancel | Archive | RetryNow | RunNow | Reprioritise | Delete


class Amended(msgspec.Struct, frozen=True):
    """Which jobs changed, and which were meant but in no state for it."""

    changed: tuple[str, ...]
    unchanged: tuple[str, ...]


def applies_to(change: Change, job: Job) -> bool:
    match change:
        case Cancel(_, generations):
            meant = generations is None or generations.get(job.id) == job.generation
            return meant and job.state in LIVE
        case Archive():
            return job.state in PENDING
        case RetryNow():
            return job.state in FINAL
        case RunNow():
            return job.state is State.SCHEDULED
        case Reprioritise():
            return job.state in PENDING
        case Delete():
            return job.state is not State.RUNNING


def changed(change: Change, job: Job, now: float) -> Job | None:
    """The job after the change, None when it is to be deleted."""
    match change:
        case Cancel(reason):
            return transitions.cancelled(job, reason, now)
        case Archive(reason):
            return transitions.archived(job, reason, now)
        case RetryNow():
            return transitions.retried(job, now)
        case RunNow():
            return transitions.run_now(job, now)
        case Reprioritise(priority):
            return replace(job, priority=priority)
        case Delete():
            return None
