"""insert: requests become jobs."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.core import transitions
from tidemill.core.job import Group, Job, NewJob, problem_with
from tidemill.core.queues import Inserted, Verdict
from tidemill.core.states import PENDING
from tidemill.core.uniqueness import Conflict, Unique, holds_key, resolve
from tidemill.engine.moves import move
from tidemill.engine.pools import problem_with_needs
from tidemill.engine.records import Records


def insert(records: Records, groups: Sequence[Group]) -> list[list[Inserted]]:
    """J10 to J16. Groups are taken in order, each on top of the one before."""
    return [_insert_group(records, group) for group in groups]


def _insert_group(records: Records, group: Group) -> list[Inserted]:
    """A refused group changes nothing and its ids are not remembered: the client may send it again."""
    now = records.clock.wall()
    if problem := problem_with(group):
        return [Inserted(Verdict.INVALID, job.id, problem) for job in group.jobs]
    new = [job for job in group.jobs if _known(records, job.id) is None]
    if problem := problem_with_needs(records, new):
        return [_known(records, job.id) or Inserted(Verdict.INVALID, job.id, problem) for job in group.jobs]
    if problem := _too_long(records, group.queue, len(new)):
        return [_known(records, job.id) or Inserted(Verdict.FULL, job.id, problem) for job in group.jobs]
    return [insert_one(records, group.queue, job, now) for job in group.jobs]


def insert_one(records: Records, queue: str, new: NewJob, now: float) -> Inserted:
    """Length limits and validity are the caller's business."""
    if known := _known(records, new.id):
        return known
    holder = holder_of(records, queue, new.unique, now)
    if holder is None or new.unique is None:
        return _accept(records, _job(records, new, queue, now), now)
    match resolve(new.unique, holder):
        case Conflict.EXISTING:
            return _existing(records, new.id, holder.id)
        case Conflict.MERGE:
            _replace(records, records.successor_of(holder.id), now)
            return _merge(records, holder, new, now)
        case Conflict.REPLACE:
            _replace(records, records.successor_of(holder.id), now)
            _replace(records, holder, now)
            return _accept(records, _job(records, new, queue, now), now)
        case Conflict.SUCCEED:
            return _succeed(records, holder, new, now)


def holder_of(records: Records, queue: str, unique: Unique | None, now: float) -> Job | None:
    """The newest job that holds the key. A waiting successor is its key's holder only when the
    job it waits for has lost the key (`at_most` is over): else two jobs would be live at once."""
    if unique is None:
        return None
    _expire_holders(records, queue, unique.key, now)
    jobs = (records.jobs[id_] for id_ in records.keys.of((queue, unique.key)))
    holders = [job for job in jobs if holds_key(job, now)]
    return max(holders, key=lambda job: (job.after is None, job.seq), default=None)


def _expire_holders(records: Records, queue: str, key: str, now: float) -> None:
    """A pending holder past its expiry is only not swept yet: nothing may be merged into it."""
    for id_ in records.keys.of((queue, key)):
        job = records.jobs[id_]
        if job.state in PENDING and transitions.is_expired(job, now):
            move(records, transitions.expired(job, now), now)


def _known(records: Records, request: str) -> Inserted | None:
    """The first verdict of an id, while there is a job of it and MEMORY_OF_IDS after that."""
    if request in records.jobs:
        return Inserted(Verdict.ACCEPTED, request)
    remembered = records.recall(request)
    return None if remembered is None else Inserted(remembered.verdict, remembered.id)


def _too_long(records: Records, name: str, new: int) -> str | None:
    """J12. New are the jobs whose id is not known, whatever their unique keys will make of them:
    a caller who fills a queue learns it by the count of what was sent."""
    queue = records.queues.get(name)
    if queue is None or queue.settings.max_length is None:
        return None
    pending, limit = queue.pending, queue.settings.max_length
    if not new or pending + new <= limit:
        return None
    return f"queue {name!r} holds {pending} pending jobs of at most {limit}, {new} more do not fit"


def _job(records: Records, new: NewJob, queue: str, now: float) -> Job:
    return transitions.created(new, queue, records.next_seq(), now)


def _accept(records: Records, job: Job, now: float) -> Inserted:
    move(records, job, now)
    return Inserted(Verdict.ACCEPTED, job.id)


def _existing(records: Records, request: str, stands_for_it: str) -> Inserted:
    records.remember(request, Verdict.EXISTING, stands_for_it)
    return Inserted(Verdict.EXISTING, stands_for_it)


def _merge(records: Records, holder: Job, new: NewJob, now: float) -> Inserted:
    """The request never becomes a job, so it takes no seq."""
    request = transitions.created(new, holder.queue, 0, now)
    move(records, transitions.merged(holder, request), now)
    return _existing(records, new.id, holder.id)


def _succeed(records: Records, holder: Job, new: NewJob, now: float) -> Inserted:
    """One successor at most: a second request is merged into it (rerun) or takes its place."""
    waiting = records.successor_of(holder.id)
    if waiting is not None and new.unique is not None and new.unique.on_conflict == "rerun":
        return _merge(records, waiting, new, now)
    _replace(records, waiting, now)
    successor = transitions.waiting_for(_job(records, new, holder.queue, now), holder.id)
    return _accept(records, successor, now)


def _replace(records: Records, job: Job | None, now: float) -> None:
    """Newer data has come: the older request ends. A pending holder's successor (the holder came
    back from a run) goes first, or the holder's end would release it beside the new job."""
    if job is not None:
        move(records, transitions.cancelled(job, transitions.REPLACED, now), now)
