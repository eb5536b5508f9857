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


def insert_unique(transaction: Transaction, new: NewJob, queue: str) -> Inserted:
    unique = new.unique
    if unique is None:
        raise ValueError("a plain job takes the short way")
    with_key = _holders(transaction, queue, unique.key)
    # A waiting successor is its key's holder only when the job it waits for has lost the key.
    holders = [job for job in with_key if holds_key(job, transaction.now)]
    holder = max(holders, key=lambda job: (job.after is None, job.seq), default=None)
    if holder is None:
        return _accept(transaction, transitions.created(new, queue, 0, transaction.now))
    successor = transaction.successor_of(holder.id)
    match resolve(unique, holder):
        case Conflict.EXISTING:
            return _existing(transaction, new, holder)
        case Conflict.MERGE:
            _replace(transaction, successor)
            transaction.save(
                holder, transitions.merged(holder, transitions.created(new, queue, 0, transaction.now))
            )
            return _existing(transaction, new, holder)
        case Conflict.REPLACE:
            # The successor first, or the holder's end would release it beside the new job.
            _replace(transaction, successor)
            _replace(transaction, holder)
            return _accept(transaction, transitions.created(new, queue, 0, transaction.now))
        case Conflict.SUCCEED:
            return _succeed(transaction, new, holder, successor)


def _holders(transaction: Transaction, queue: str, key: str) -> list[Job]:
    """A pending one past its expiry is only not swept yet: nothing may be merged into it."""
    found = transaction.jobs(SQL.holders, (queue, key))
    over = [job.id for job in found if job.state in PENDING and transitions.is_expired(job, transaction.now)]
    if not over:
        return found
    expire(transaction, over)
    return transaction.jobs(SQL.holders, (queue, key))


def _succeed(transaction: Transaction, new: NewJob, holder: Job, successor: Job | None) -> Inserted:
    """Wait in line for a running holder, with or instead of whoever waits there already."""
    request = transitions.created(new, holder.queue, 0, transaction.now)
    if successor is not None and new.unique is not None and new.unique.on_conflict == "rerun":
        transaction.save(successor, transitions.merged(successor, request))
        return _existing(transaction, new, successor)
    _replace(transaction, successor)
    return _accept(transaction, transitions.waiting_for(request, holder.id))


def _replace(transaction: Transaction, job: Job | None) -> None:
    if job is not None:
        transaction.save(job, transitions.cancelled(job, transitions.REPLACED, transaction.now))


def _accept(transaction: Transaction, job: Job) -> Inserted:
    transaction.add(job)
    return Inserted(Verdict.ACCEPTED, job.id)


def _existing(transaction: Transaction, new: NewJob, holder: Job) -> Inserted:
    transaction.remember(new.id, Verdict.EXISTING, holder.id)
    return Inserted(Verdict.EXISTING, holder.id)
