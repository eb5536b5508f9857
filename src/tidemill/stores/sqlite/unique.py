"""A request whose unique key may be held: skip, merge, replace or wait in line."""

from __future__ import annotations

from tidemill.core import transitions
from tidemill.core.job import Job, NewJob
from tidemill.core.queues import Inserted, Verdict
from tidemill.core.states import PENDING
from tidemill.core.uniqueness import Conflict, holds_key, resolve
from tidemill.stores.sqlite.expire import expire
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("insert")


def insert_unique(step: Transaction, new: NewJob, queue: str) -> Inserted:
    unique = new.unique
    if unique is None:
        raise ValueError("a plain job takes the short way")
    with_key = _holders(step, queue, unique.key)
    # A waiting successor is its key's holder only when the job it waits for has lost the key.
    holders = [job for job in with_key if holds_key(job, step.now)]
    holder = max(holders, key=lambda job: (job.after is None, job.seq), default=None)
    if holder is None:
        return _accept(step, transitions.created(new, queue, 0, step.now))
    successor = step.successor_of(holder.id)
    match resolve(unique, holder):
        case Conflict.EXISTING:
            return _existing(step, new, holder)
        case Conflict.MERGE:
            _replace(step, successor)
            step.save(holder, transitions.merged(holder, transitions.created(new, queue, 0, step.now)))
            return _existing(step, new, holder)
        case Conflict.REPLACE:
            # The successor first, or the holder's end would release it beside the new job.
            _replace(step, successor)
            _replace(step, holder)
            return _accept(step, transitions.created(new, queue, 0, step.now))
        case Conflict.SUCCEED:
            return _succeed(step, new, holder, successor)


def _holders(step: Transaction, queue: str, key: str) -> list[Job]:
    """A pending one past its expiry is only not swept yet: nothing may be merged into it."""
    found = step.jobs(SQL.holders, (queue, key))
    over = [job.id for job in found if job.state in PENDING and transitions.is_expired(job, step.now)]
    if not over:
        return found
    expire(step, over)
    return step.jobs(SQL.holders, (queue, key))


def _succeed(step: Transaction, new: NewJob, holder: Job, successor: Job | None) -> Inserted:
    """Wait in line for a running holder, with or instead of whoever waits there already."""
    request = transitions.created(new, holder.queue, 0, step.now)
    if successor is not None and new.unique is not None and new.unique.on_conflict == "rerun":
        step.save(successor, transitions.merged(successor, request))
        return _existing(step, new, successor)
    _replace(step, successor)
    return _accept(step, transitions.waiting_for(request, holder.id))


def _replace(step: Transaction, job: Job | None) -> None:
    if job is not None:
        step.save(job, transitions.cancelled(job, transitions.REPLACED, step.now))


def _accept(step: Transaction, job: Job) -> Inserted:
    step.add(job)
    return Inserted(Verdict.ACCEPTED, job.id)


def _existing(step: Transaction, new: NewJob, holder: Job) -> Inserted:
    step.remember(new.id, Verdict.EXISTING, holder.id)
    return Inserted(Verdict.EXISTING, holder.id)
