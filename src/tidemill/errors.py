"""Every error Tidemill raises.

TidemillError
├── ConfigurationError       something was declared or set in a way that cannot work
├── EnqueueError             a job was not accepted and is not stored
│   ├── InvalidPayload       an argument does not fit the task's annotations
│   ├── PayloadTooLarge      the payload is over the task's limit
│   ├── InvalidJob           an option of the job is out of range
│   └── QueueFull            the queue is at its length limit
├── StoreError               the store could not do what it was asked
│   ├── StoreUnavailable     unreachable, locked for too long, closed, or its file is gone
│   ├── StoreFull            no space left; heals by itself when space returns
│   ├── StoreReadOnly        it may not be written to
│   ├── StoreCorrupt         the file is not a Tidemill database, or is damaged
│   └── SchemaMismatch       the schema is of a version this Tidemill does not know
├── QueueNotFound            there is no such queue
├── PoolNotFound             there is no such pool
├── ScheduleNotFound         there is no such schedule
├── WebhookNotFound          there is no such webhook
├── TokenNotFound            there is no such token that holds
├── SignatureInvalid         what came as a webhook is not ours, was changed, or is old
├── JobError                 about one job
│   ├── JobNotFound          there is no such job (any more)
│   ├── JobFailed            it failed for good
│   ├── JobCancelled         it was cancelled
│   ├── ResultUnreadable     it is done, but its result is not what the task says it returns
│   ├── ResultTimeout        it did not end in time; it may still
│   └── WaitRefused          its handler must not wait for another job here; use a flow
└── FlowError                about one flow
    ├── FlowNotFound         there is no such flow (any more)
    ├── FlowFailed           a step of it failed, or its time was over
    └── FlowCancelled        it was cancelled

Raised by handlers to end an attempt on purpose:

Steer
├── RetryAfter               failed, try again after a delay; charged
├── SnoozeFor                not now, come back after a delay; not charged
├── GiveUp                   failed for good, whatever the retry policy says
│   ├── UnknownOutcome       nobody knows whether a paid step was paid for, and it says park
│   └── StepUnusable         a step's result cannot be stored, or not be read as annotated
└── ClaimLost                the job is somebody else's by now: stop
"""

from __future__ import annotations

from datetime import timedelta

from tidemill.times import in_seconds


class TidemillError(Exception):
    """Root of everything Tidemill raises."""


class ConfigurationError(TidemillError):
    """Something was declared or set in a way that cannot work."""


class EnqueueError(TidemillError):
    """A job was not accepted and is not stored."""


class InvalidPayload(EnqueueError):
    """An argument does not fit the task's annotations."""


class PayloadTooLarge(EnqueueError):
    """The payload is over the task's limit; store the data elsewhere and send a reference."""


class InvalidJob(EnqueueError):
    """An option of the job is out of range."""


class QueueFull(EnqueueError):
    """The queue is at its length limit; try later or raise `max_length`."""


class StoreError(TidemillError):
    """The store could not do what it was asked."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, is locked for too long, or is closed, or its file was deleted or replaced.

    `ids` are the jobs of an enqueue that were not sent, or may or may not have been accepted: sent
    again with the same ids, each exists once.
    """

    ids: tuple[str, ...] = ()


class StoreFull(StoreError):
    """No space left where the store writes; it goes on by itself when space returns."""


class StoreReadOnly(StoreError):
    """The store may not be written to."""


class StoreCorrupt(StoreError):
    """The file is not a Tidemill database, or it is damaged."""


class SchemaMismatch(StoreError):
    """The store's schema is of a version that this Tidemill does not know."""


class QueueNotFound(TidemillError):
    """There is no such queue: nobody declared it and it never had a job."""


class PoolNotFound(TidemillError):
    """There is no such pool: nobody declared it."""


class ScheduleNotFound(TidemillError):
    """There is no such schedule: nobody made it, or it was removed."""


class WebhookNotFound(TidemillError):
    """There is no such webhook: nobody added it, or it was removed."""


class TokenNotFound(TidemillError):
    """There is no token that holds of that id or that user: nobody made it, or it is over or revoked."""


class SignatureInvalid(TidemillError):
    """What came as a webhook was not signed with the secret, was changed on its way, or is too old."""


class JobError(TidemillError):
    """About one job."""


class JobNotFound(JobError):
    """There is no such job, or it has been pruned."""


class JobFailed(JobError):
    """The job failed for good."""


class JobCancelled(JobError):
    """The job was cancelled."""


class ResultUnreadable(JobError):
    """The job is done, but its result is not what the task says it returns."""


class ResultTimeout(JobError):
    """The job did not end in time; it may still."""


class WaitRefused(JobError):
    """A handler must not wait for the result of another job or flow here: the wait could keep that job from
    starting. Use a flow instead.

    `lasting` is False when only the load of the worker stands in the way: then the retry policy decides.
    Else the job fails for good, as a new attempt would meet the same."""

    def __init__(self, message: str, *, lasting: bool = True) -> None:
        super().__init__(message)
        self.lasting = lasting


class FlowError(TidemillError):
    """About one flow."""


class FlowNotFound(FlowError):
    """There is no such flow, or it has been pruned."""


class FlowFailed(FlowError):
    """A step of the flow failed for good, or its time was over."""


class FlowCancelled(FlowError):
    """The flow was cancelled."""


class Steer(Exception):
    """Raised by a handler to end its attempt on purpose."""


class RetryAfter(Steer):
    """Failed; try again after `delay` seconds if attempts are left."""

    def __init__(self, delay: float | timedelta, message: str = "asked to be retried") -> None:
        super().__init__(message)
        self.delay = in_seconds(delay)


class SnoozeFor(Steer):
    """Not now; come back after `delay` seconds without spending an attempt. The job's note has the
    `reason` until it runs again."""

    def __init__(self, delay: float | timedelta, reason: str | None = None) -> None:
        super().__init__(reason or "snoozed")
        self.delay, self.reason = in_seconds(delay), reason


class GiveUp(Steer):
    """Failed for good, whatever the retry policy says."""


class UnknownOutcome(GiveUp):
    """A paid step was begun before, and nobody knows whether it was paid for: a person decides."""


class StepUnusable(GiveUp):
    """A step was called and its result cannot be stored, or what is stored is not what it says it returns."""


class ClaimLost(Steer):
    """The attempt's job is somebody else's by now, or gone: nothing it does counts any more."""
