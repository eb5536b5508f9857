"""How a job ended."""

from __future__ import annotations

from tidemill.core.states import State
from tidemill.core.transitions import EXPIRED, POISON, REFUSED, REPLACED, SUPERSEDED, UNKNOWN_TASK
from tidemill.inspect.causes import Cause, Code, data_of, words_of
from tidemill.inspect.facts import Facts
from tidemill.inspect.words import Times, full_stop, plural

_CANCELLED = {
    EXPIRED: "it had not started by the time it expired",
    REPLACED: "a newer request for its unique key took its place",
    SUPERSEDED: "its attempt failed while a newer request for its unique key waited to run instead",
}


def describe_end(facts: Facts, times: Times) -> Cause:
    job = facts.job
    finished = times.now if job.finished is None else job.finished
    tell = {State.DONE: _done, State.FAILED: _failed, State.CANCELLED: _cancelled}[job.state]
    return Cause(
        Code(job.state.value),
        tell(facts, times.past(finished)),
        {"at": finished, "attempts": job.attempts, "reason": job.reason, "error": data_of(job.error)},
    )


def _done(facts: Facts, when: str) -> str:
    return f"The job is done: attempt {facts.job.attempts} succeeded {when}."


def _cancelled(facts: Facts, when: str) -> str:
    reason = facts.job.reason or "no reason was given"
    return f"The job was cancelled {when}: {full_stop(_CANCELLED.get(reason, reason))}"


def _failed(facts: Facts, when: str) -> str:
    job = facts.job
    error = "" if job.error is None else f" with {words_of(job.error)}"
    if job.reason == POISON:
        crashes = plural(job.crashes, "time")
        return f"The job failed {when}: it crashed {crashes}, the last{error or ' without a word.'}"
    if job.reason == UNKNOWN_TASK:
        return f"The job failed {when}: no worker knew its task {job.task!r} for a day."
    if job.reason == REFUSED:
        return f"The job was refused {when}: {words_of(job.error) if job.error else 'no reason was given.'}"
    if not _ended_by_attempt(facts):
        before = f" Before that, {plural(job.attempts, 'attempt')} failed, the last{error}" if error else ""
        given = full_stop(job.reason or "no reason was given")
        return f"The job was put among the failed ones by hand {when}: {given}{before}"
    cause = "" if job.reason in (None, "failed") else f" ({job.reason})"
    return f"The job failed for good {when}{cause}: attempt {job.attempts} ended{error or '.'}"


def _ended_by_attempt(facts: Facts) -> bool:
    """An archived job may have failed before, but that is not why it ended."""
    job, last = facts.job, facts.last
    if last is None or job.finished is None:
        return False
    return last.generation == job.generation and last.ended >= job.finished
