"""A job moves, and what follows from it.

Every verb that changes a job's state goes through `move`, so that no end of a job
forgets its successor, no minute its count and no waiter its wake-up.
"""

from __future__ import annotations

from collections import deque

from tidemill.contract.reader import ATTEMPTS_KEPT, AttemptRecord
from tidemill.contract.wakeups import job_topic, queue_topic
from tidemill.core import ledger, transitions
from tidemill.core.courses import Kind
from tidemill.core.job import Job
from tidemill.core.states import FINAL, State
from tidemill.engine.records import Records

_STARTABLE = (State.READY, State.SCHEDULED)


def move(records: Records, after: Job, now: float) -> None:
    """Store the job as it is after a verb (or as it comes into being), with all consequences.

    Its queue is rung when it may start now or later (a parked worker has to learn the new
    time) and when the end of a run frees a limit; its own topic when it ends. An ended
    job's waiting successor is released in the same step.
    """
    before = records.jobs.get(after.id)
    records.put(after)
    if after.state in _STARTABLE or (before is not None and _frees_a_limit(records, before, after)):
        records.topics[queue_topic(after.queue)] = None
    had_ended = before is not None and before.state in FINAL
    if after.flow is not None and (after.state in FINAL) is not had_ended:
        records.stir(Kind.FLOW, after.flow.id, after.id)
    if after.state in FINAL and not had_ended:
        if transitions.is_counted(None if before is None else before.state, after.state):
            records.queue(after.queue).count(after.state.value, now)
        if before is not None:
            withdraw(records, before)
        gone(records, after, now)


def gone(records: Records, job: Job, now: float) -> None:
    """Nothing more will come of the job: tell who waits for it, and let its successor go."""
    records.topics[job_topic(job.id)] = None
    successor = records.successor_of(job.id)
    if successor is not None:
        move(records, transitions.released(successor, now), now)


def withdraw(records: Records, job: Job) -> None:
    """P15: a job that ends while it waits keeps no place in a pool; what one that runs has is settled."""
    if job.state is not State.RUNNING and (job.needs or job.extra):
        ledger.withdraw(records.books, job.id, (*job.needs, *job.extra))


def record_attempt(records: Records, before: Job, after: Job, outcome: str, now: float) -> None:
    """Keep how a run that did not succeed ended; the newest ATTEMPTS_KEPT stay."""
    kept = records.attempts.setdefault(before.id, deque(maxlen=ATTEMPTS_KEPT))
    kept.append(
        AttemptRecord(
            generation=before.generation,
            attempt=before.attempts + 1,
            started=before.started,
            ended=now,
            worker=before.worker,
            outcome=outcome,
            error=after.error,
        )
    )


def _frees_a_limit(records: Records, before: Job, after: Job) -> bool:
    ended = before.state is State.RUNNING and after.state is not State.RUNNING
    return ended and records.queue(after.queue).limited
