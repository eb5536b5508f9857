"""The cause codes of an explanation, and the causes of running and finished jobs."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from tidemill.core.jobs import Error
from tidemill.core.states import State
from tidemill.core.transitions import EXPIRED, POISON, REFUSED, REPLACED, SUPERSEDED, UNKNOWN_TASK
from tidemill.inspect.explanation_inputs import AwaitedResult, ExplanationInputs
from tidemill.inspect.formatting import TimeFormatter, as_sentence, format_duration, pluralize


class CauseCode(StrEnum):
    """Codes that say why a job waits, or what happened to it. The meaning of a code never changes; new codes
    may be added."""

    EXPIRED = "expired"  # past its expiry: it will be cancelled
    PAUSED = "paused"  # an operator paused the queue
    NO_WORKER = "no_worker"  # no living worker serves the queue
    UNKNOWN_TASK = "unknown_task"  # no worker that was offered the job knows its task
    SCHEDULED = "scheduled"  # its start time is in the future
    RETRYING = "retrying"  # its last attempt failed; it waits for the backoff
    SNOOZED = "snoozed"  # its handler snoozed it
    PREDECESSOR = "predecessor"  # waits for the previous job with the same unique key
    STEPS_BEFORE = "steps_before"  # a flow step: its job is created when the steps before it are done
    FLOW_ENDED = "flow_ended"  # a flow step: its flow ended before the step started
    POOL_CLOSED = "pool_closed"  # an operator closed a pool that it needs
    POOL_TRIPPED = "pool_tripped"  # a provider refused calls, and the breaker closed the pool
    POOL_PROBED = "pool_probed"  # the pool is closed and one job probes it
    POOL_TOO_SMALL = "pool_too_small"  # it needs more units than a changed limit allows
    POOL_RAMP = "pool_ramp"  # a pool opened again and its ramp is not over
    POOL_RESERVED_SHARE = "pool_reserved_share"  # the rest of a limit is reserved for more urgent jobs
    POOL_HELD = "pool_held"  # a pool holds capacity for a larger job
    POOL_TURN = "pool_turn"  # no call starts around the end of a limit's day, week or month
    POOL_LIMIT = "pool_limit"  # a limit of a pool is used up
    BATCH_WAIT = "batch_wait"  # it waits for more jobs to fill its batch
    QUEUE_LIMIT = "queue_limit"  # the queue's concurrency limit is reached
    KEY_LIMIT = "key_limit"  # the concurrency limit of its key is reached
    WORKERS_BUSY = "workers_busy"  # all slots of the queue's workers are taken
    BEHIND = "behind"  # other jobs of its lane start first
    NEXT = "next"  # nothing blocks it
    RUNNING = "running"
    WORKER_SILENT = "worker_silent"  # claimed, but its worker stopped reporting
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Cause(msgspec.Struct, frozen=True):
    """One reason why a job waits, or what became of it. `sentence` is for people. `details` holds the same
    facts as JSON data; its times are wall times."""

    code: CauseCode
    sentence: str
    details: dict[str, Any]


def format_error(error: Error) -> str:
    return as_sentence(f"{error.type}: {error.message}" if error.message else error.type)


def error_data(error: Error | None) -> dict[str, str] | None:
    return None if error is None else {"type": error.type, "message": error.message}


QUIET_SECONDS = 3.0
"""A shorter silence is normal: a worker reports every ten seconds and with most of its claims."""


def running_cause(facts: ExplanationInputs, times: TimeFormatter) -> Cause:
    job, worker = facts.job, facts.worker
    started = times.now if job.started is None else job.started
    details: dict[str, Any] = {
        "worker": job.worker,
        "host": None if worker is None else worker.host,
        "pid": None if worker is None else worker.pid,
        "seen": None if worker is None else worker.seen,
        "since": started,
        "attempt": job.attempts + 1,
        "progress": job.progress,
        "note": job.note,
        "timeout": facts.timeout,
    }
    if facts.waits_for:
        details["waits_for"] = [msgspec.structs.asdict(target) for target in facts.waits_for]
    where = f"worker {job.worker}" if worker is None else f"worker {worker.id} ({worker.host}, {worker.pid})"
    sentence = (
        f"Attempt {job.attempts + 1} has been running on {where} for "
        f"{format_duration(times.now - started)}, since {times.clock_time(started)}{_progress_text(facts)}."
        f"{_awaited_text(facts)}"
    )
    if worker is None:
        return Cause(CauseCode.WORKER_SILENT, f"{sentence} {_silent_worker_text(facts)}", details)
    last_report = _last_report_text(worker.seen, times)
    return Cause(CauseCode.RUNNING, sentence + _timeout_text(facts, started, times) + last_report, details)


def _progress_text(facts: ExplanationInputs) -> str:
    job = facts.job
    share = "" if job.progress is None else f"; {job.progress:.0%} done"
    return f"{share}; it says {job.note!r}" if job.note and not facts.waits_for else share


def _awaited_text(facts: ExplanationInputs) -> str:
    """Returns a sentence that names the jobs and flows whose results the running handler waits for; empty if
    there are none."""
    if not facts.waits_for:
        return ""
    return f" It waits for the result of {', '.join(map(_awaited_result_text, facts.waits_for))}."


def _awaited_result_text(result: AwaitedResult) -> str:
    queue = "" if result.queue is None else f"queue {result.queue!r}, "
    return f"{result.kind} {result.id} ({queue}{result.state or 'gone'})"


def _timeout_text(facts: ExplanationInputs, started: float, times: TimeFormatter) -> str:
    if facts.timeout is None:
        return ""
    end = started + facts.timeout
    if end <= times.now:
        return f" Its timeout of {format_duration(facts.timeout)} is over: it is about to be stopped."
    return f" Its timeout ends {times.in_future(end)}."


def _last_report_text(seen: float, times: TimeFormatter) -> str:
    """Returns a sentence that says how long ago the worker last reported; empty if less than 3 seconds ago.

    `seen`: the wall time of the last report."""
    # A killed worker counts as alive until its lease ends; silence is the first sign of its death.
    if times.now - seen < QUIET_SECONDS:
        return ""
    return f" Its worker was last heard of {format_duration(times.now - seen)} ago."


def _silent_worker_text(facts: ExplanationInputs) -> str:
    left = facts.job.lease - facts.now.boot
    lease = f"when its lease ends in {format_duration(left)}" if left > 0 else "as soon as any worker looks"
    return f"No worker of that name reports: if it has died, the job goes to another {lease}."


_CANCEL_REASONS = {
    EXPIRED: "it had not started by the time it expired",
    REPLACED: "a newer request for its unique key took its place",
    SUPERSEDED: "its attempt failed while a newer request for its unique key waited to run instead",
}


def finished_cause(facts: ExplanationInputs, times: TimeFormatter) -> Cause:
    job = facts.job
    finished = times.now if job.finished is None else job.finished
    format_outcome = {State.DONE: _done_text, State.FAILED: _failed_text, State.CANCELLED: _cancelled_text}[
        job.state
    ]
    return Cause(
        CauseCode(job.state.value),
        format_outcome(facts, times.in_past(finished)),
        {"at": finished, "attempts": job.attempts, "reason": job.reason, "error": error_data(job.error)},
    )


def _done_text(facts: ExplanationInputs, when: str) -> str:
    return f"The job is done: attempt {facts.job.attempts} succeeded {when}."


def _cancelled_text(facts: ExplanationInputs, when: str) -> str:
    reason = facts.job.reason or "no reason was given"
    return f"The job was cancelled {when}: {as_sentence(_CANCEL_REASONS.get(reason, reason))}"


def _failed_text(facts: ExplanationInputs, when: str) -> str:
    job = facts.job
    error = "" if job.error is None else f" with {format_error(job.error)}"
    if job.reason == POISON:
        crashes = pluralize(job.crashes, "time")
        return f"The job failed {when}: it crashed {crashes}, the last{error or ' without a word.'}"
    if job.reason == UNKNOWN_TASK:
        return f"The job failed {when}: no worker knew its task {job.task!r} for a day."
    if job.reason == REFUSED:
        return (
            f"The job was refused {when}: {format_error(job.error) if job.error else 'no reason was given.'}"
        )
    if not _ended_by_attempt(facts):
        before = (
            f" Before that, {pluralize(job.attempts, 'attempt')} failed, the last{error}" if error else ""
        )
        reason = as_sentence(job.reason or "no reason was given")
        return f"The job was put among the failed ones by hand {when}: {reason}{before}"
    cause = "" if job.reason in (None, "failed") else f" ({job.reason})"
    return f"The job failed for good {when}{cause}: attempt {job.attempts} ended{error or '.'}"


def _ended_by_attempt(facts: ExplanationInputs) -> bool:
    """True if the last attempt ended the job. False if an operator archived the job later, even if the last
    attempt had failed."""
    job, last = facts.job, facts.last_attempt
    if last is None or job.finished is None:
        return False
    return last.generation == job.generation and last.ended >= job.finished
