"""All errors of Tidemill.

  TidemillError
  ├── ConfigurationError       a declaration or setting cannot work
  ├── EnqueueError             a job was not accepted and is not stored
  │   ├── InvalidPayload       an argument does not fit the task's annotations
  │   ├── PayloadTooLarge      the payload is over the task's limit
  │   ├── InvalidJob           an option of the job is out of range
  │   └── QueueFull            the queue is at its length limit
  ├── StoreError               the store could not do what it was asked
  │   ├── StoreUnavailable     unreachable, locked for too long, closed, or its file is gone
  │   ├── StoreFull            no space left; continues by itself when space returns
  │   ├── StoreReadOnly        the store may not be written to
  │   ├── StoreCorrupt         the file is not a Tidemill database, or is damaged
  │   └── SchemaMismatch       the schema is of a version this Tidemill does not know
  ├── QueueNotFound            there is no such queue
  ├── PoolNotFound             there is no such pool
  ├── ScheduleNotFound         there is no such schedule
  ├── WebhookNotFound          there is no such webhook
  ├── TokenNotFound            there is no such valid token
  ├── SignatureInvalid         the webhook's signature is wrong or too old
  ├── JobError                 about one job
  │   ├── JobNotFound          there is no such job (any more)
  │   ├── JobFailed            it failed for good
  │   ├── JobCancelled         it was cancelled
  │   ├── ResultUnreadable     it is done, but its result does not have the declared type
  │   ├── ResultTimeout        it did not end in time; it may still end later
  │   └── WaitRefused          its handler must not wait for another job here; use a flow
  ├── AnswerUnavailable        `app.answer` got no result before its deadline
  └── FlowError                about one flow
      ├── FlowNotFound         there is no such flow (any more)
      ├── FlowFailed           a step of it failed, or it timed out
      └── FlowCancelled        it was cancelled

Raised by handlers to end an attempt on purpose:

  AttemptExit
  ├── RetryAfter               failed, retry after a delay; the attempt counts
  ├── SnoozeFor                not now, run again after a delay; the attempt does not count
  │   └── DependencyUnavailable  a service that the handler needs is away; units of unsent calls come back
  ├── GiveUp                   failed for good, regardless of the retry policy
  │   ├── UnknownOutcome       a paid step may have been paid already (`on_unknown="park"`)
  │   └── StepUnusable         a step's result cannot be stored, or not be read as annotated
  └── ClaimLost                the worker no longer holds the job: stop"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from tidemill.times import to_seconds


class TidemillError(Exception):
    """Base class of all errors that Tidemill raises."""


class ConfigurationError(TidemillError):
    """A declaration or a setting is invalid."""


class EnqueueError(TidemillError):
    """A job was not accepted and is not stored."""


class InvalidPayload(EnqueueError):
    """An argument does not fit the task's annotations."""


class PayloadTooLarge(EnqueueError):
    """The payload is larger than the task's limit. Store the data elsewhere and send a reference."""


class InvalidJob(EnqueueError):
    """An option of the job is out of range."""


class QueueFull(EnqueueError):
    """The queue has reached its length limit. Try again later or raise `max_length`."""


class StoreError(TidemillError):
    """The store could not do what it was asked to do."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, is locked for too long or closed, or its file was deleted or replaced.

    `ids` are the jobs of an enqueue that were not sent, or that may or may not have been accepted. If you
    send them again with the same ids, no job is stored twice."""

    ids: tuple[str, ...] = ()


class StoreFull(StoreError):
    """The store has no space left to write. It continues by itself when space is free again."""


class StoreReadOnly(StoreError):
    """The store must not be written to, for example because its file is read-only."""


class StoreCorrupt(StoreError):
    """The file is not a Tidemill database, or it is damaged."""


class SchemaMismatch(StoreError):
    """The store's schema has a version that this version of Tidemill does not know."""


class QueueNotFound(TidemillError):
    """There is no such queue: it is not declared and never had a job."""


class PoolNotFound(TidemillError):
    """There is no such pool: it is not declared."""


class ScheduleNotFound(TidemillError):
    """There is no such schedule: it was never created, or it was removed."""


class WebhookNotFound(TidemillError):
    """There is no such webhook: it was never added, or it was removed."""


class TokenNotFound(TidemillError):
    """There is no valid token with that id or of that user. It was never created, has expired, or was
    revoked."""


class SignatureInvalid(TidemillError):
    """The webhook was not signed with the secret, was changed on its way, or is too old."""


class JobError(TidemillError):
    """Base class of errors about one job."""


class JobNotFound(JobError):
    """There is no job with that id, or it has been pruned."""


class JobFailed(JobError):
    """The job failed for good."""


class JobCancelled(JobError):
    """The job was cancelled."""


class ResultUnreadable(JobError):
    """The job is done, but its result does not have the type that the task declares."""


class ResultTimeout(JobError):
    """The job did not end within the time that the caller waited. The job may still end later."""


class WaitRefused(JobError):
    """A handler must not wait here for the result of another job or flow, because the wait could keep that
    job from starting. Use a flow instead.

    - `lasting=False`: only the worker's current load prevents the wait, and the retry policy decides
    - `lasting=True`: the job fails for good"""

    def __init__(self, message: str, *, lasting: bool = True) -> None:
        super().__init__(message)
        self.lasting = lasting


AnswerProblem = Literal["pool_closed", "too_late", "timeout", "cancelled", "failed"]


class AnswerUnavailable(TidemillError):
    """`app.answer` got no result. An HTTP route that raises it answers 503, with `Retry-After` if
    `retry_after` is not None.

    - `code`: `pool_closed` (a pool stays closed beyond the deadline; no job was sent), `too_late` (the job
      cannot start before the deadline), `timeout`, `cancelled`, or `failed` (the job failed for good)
    - `reason`: why the pool is closed, the job's explanation, or its error
    - `retry_after`: seconds after which a new try makes sense; None if a person has to act first"""

    def __init__(
        self, message: str, *, code: AnswerProblem, reason: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.retry_after = code, reason, retry_after


class FlowError(TidemillError):
    """Base class of errors about one flow."""


class FlowNotFound(FlowError):
    """There is no flow with that id, or it has been pruned."""


class FlowFailed(FlowError):
    """A step of the flow failed for good, or the flow timed out."""


class FlowCancelled(FlowError):
    """The flow was cancelled."""


class AttemptExit(Exception):
    """Base class of the exceptions that a handler raises to end its attempt on purpose."""


class RetryAfter(AttemptExit):
    """Ends the attempt as failed. The job is retried after `delay` seconds if attempts are left."""

    def __init__(self, delay: float | timedelta, message: str = "asked to be retried") -> None:
        super().__init__(message)
        self.delay = to_seconds(delay)


class SnoozeFor(AttemptExit):
    """Ends the attempt and runs the job again after `delay` seconds. The attempt does not count. `reason` is
    the job's note until then."""

    def __init__(self, delay: float | timedelta, reason: str | None = None) -> None:
        super().__init__(reason or "snoozed")
        self.delay, self.reason = to_seconds(delay), reason


class DependencyUnavailable(SnoozeFor):
    """Ends the attempt because a service that the handler needs, such as Qdrant or S3, cannot be used now.
    The job runs again after `retry_in` seconds. The attempt does not count.

    - `dependency`: the service's name. Use few names, because metrics have a series for each.
    - `problem`: why it cannot be used, such as "connection refused". The job's explanation shows it.

    The units of calls that were not sent are returned. If you have sent a call without a hook, report it with
    `ctx.used` before you raise. On an HTTP route the answer is 503 with `Retry-After`."""

    def __init__(self, dependency: str, problem: str, *, retry_in: float | timedelta = 30.0) -> None:
        super().__init__(retry_in, f"waiting for {dependency}: {problem}")
        self.dependency, self.problem = dependency, problem

    def __str__(self) -> str:
        return f"{self.dependency} is unavailable: {self.problem}"


class GiveUp(AttemptExit):
    """Ends the job as failed for good, regardless of the retry policy."""


class UnknownOutcome(GiveUp):
    """A paid step began in an earlier attempt, and it is unknown whether it was paid. The job fails, and an
    operator decides."""


class StepUnusable(GiveUp):
    """The result of a step cannot be stored, or the stored result does not have the declared type."""


class ClaimLost(AttemptExit):
    """The worker no longer holds the job, or the job is gone. The store refuses further writes of this
    attempt, so the handler should stop."""
