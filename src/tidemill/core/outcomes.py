"""The outcomes of one attempt. The worker chooses an outcome, and the store applies it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tidemill.core.jobs import Error
from tidemill.core.needs import Need


class Success(msgspec.Struct, frozen=True, tag="done"):
    """The job succeeded. `result` is JSON. The attempt counts."""

    result: bytes | None = None


class RetryLater(msgspec.Struct, frozen=True, tag="retry"):
    """The attempt failed, and the job runs again after `delay` seconds. The attempt counts. `priority` is the
    job's new priority, None to keep the old one."""

    delay: float
    error: Error
    priority: int | None = None


class Snooze(msgspec.Struct, frozen=True, tag="snooze"):
    """The handler asked to run the job again after `delay` seconds. The attempt does not count. `dependency`
    is the name of a dependency that the handler could not use, if that is the reason."""

    delay: float
    reason: str | None = None
    dependency: str | None = None


class FinalFailure(msgspec.Struct, frozen=True, tag="fail"):
    """The job failed for good and becomes a dead letter. The attempt counts."""

    error: Error
    reason: str = "failed"


class Cancellation(msgspec.Struct, frozen=True, tag="cancelled"):
    """The job ends as cancelled. The attempt does not count."""

    reason: str


class SmallerBatch(msgspec.Struct, frozen=True, tag="split"):
    """The job goes back to its queue for a smaller batch. The attempt does not count. The job can be claimed
    again at once, but only together with jobs of the same `part`."""

    part: str


class JobRelease(msgspec.Struct, frozen=True, tag="release"):
    """The job goes back to its queue and keeps its position. The attempt does not count.

    - `unknown`: True if the worker does not know the task. The job is then postponed.
    - `excused`: True if the handler reported a provider's refusal and then raised another error."""

    unknown: bool = False
    excused: bool = False


class UnitWait(msgspec.Struct, frozen=True, tag="await"):
    """The job goes back to its queue until its pools have the units that its handler asked for. The attempt
    does not count, and the job keeps its position. The next claim reserves `needs` in addition to the job's
    own needs."""

    needs: tuple[Need, ...]


class Crash(msgspec.Struct, frozen=True, tag="crashed"):
    """The child process that ran only this job has died. The crash counts towards the queue's crash limit."""

    error: Error


Outcome = (
    Success | RetryLater | Snooze | FinalFailure | Cancellation | SmallerBatch | JobRelease | UnitWait | Crash
)


def needs_too_much(problem: str) -> FinalFailure:
    """Returns the failure of a job whose handler asked for more units than its pools ever allow. `problem` is
    the error message."""
    return FinalFailure(Error("ConfigurationError", problem), "needs too much")


class WriteAnswer(StrEnum):
    """A store's answer to one write with a fence.

    - `ok`: written.
    - `charged`: written, but with `Settlement.charged` as the outcome.
    - `again`: not written, because this claim has settled the job before, or the step already has a result.
    - `stale`: not written, because the claim is no longer current.
    - `gone`: not written, because the job does not exist."""

    OK = "ok"
    CHARGED = "charged"  # ok, and `Settlement.charged` was applied
    AGAIN = "again"  # this claim has settled the job before
    STALE = "stale"  # the claim is no longer current
    GONE = "gone"  # the job does not exist
