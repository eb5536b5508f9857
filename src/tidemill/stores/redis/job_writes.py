"""What becomes of a job's record, and of every order, index and count it stands in."""

from __future__ import annotations

from tidemill.core.job import Job
from tidemill.core.states import FINAL, LIVE, PENDING, State
from tidemill.engine.changes import Moved
from tidemill.stores.redis import keys
from tidemill.stores.redis.records import LETTERS, in_lane, member, packed
from tidemill.stores.redis.writes import Writes


def write_job(writes: Writes, moved: Moved) -> None:
    before, after = moved.before, moved.after
    if before is not None:
        _unfile(writes, before)
    if after is not None:
        writes.set(keys.JOBS, after.id, packed(after))
        _file(writes, after)
        if before is None:
            number = str(after.seq // keys.PAGE)
            writes.set(keys.page(after.seq), after.seq % keys.PAGE, after.id)
            writes.add(keys.PAGES, int(number), number)
            if after.flow is not None:
                writes.add(keys.parts(after.flow.id), after.seq, member(after))
    elif before is not None:
        _forget(writes, before)


def _forget(writes: Writes, job: Job) -> None:
    writes.unset(keys.JOBS, job.id)
    writes.command("UNPAGE", keys.page(job.seq), str(job.seq // keys.PAGE), job.seq % keys.PAGE)
    writes.command("DEL", keys.attempts(job.id))
    writes.command("DEL", keys.steps(job.id))
    writes.command("UNLOG", keys.logs(job.id), job.id)
    if job.flow is not None:
        writes.remove(keys.parts(job.flow.id), member(job))


def _file(writes: Writes, job: Job) -> None:
    name, queue = member(job), job.queue
    writes.count(keys.COUNTS, keys.count(job.state, queue), 1)
    match job.state:
        case State.READY:
            writes.add(keys.lane(queue, job.lane), job.priority, in_lane(job))
            writes.touch(queue, job.lane)
        case State.SCHEDULED:
            writes.add(keys.scheduled(queue), job.due, name)
            writes.count(keys.COUNTS, keys.retrying(queue), int(job.attempts > 0))
        case State.RUNNING:
            writes.set(keys.running(queue), name, repr(job.lease))
            writes.include(keys.held(job.worker or ""), name)
            writes.tally(keys.RUNNING_IN, keys.running_in(queue, job.key), int(job.key != ""))
        case State.WAITING if job.after is not None:
            writes.add(keys.successors(job.after), job.seq, name)
        case state if state in FINAL and job.flow is not None:
            writes.add(keys.ended_parts(queue, state), job.finished or 0.0, name)
            writes.set(keys.part_ends(job.flow.id), job.id, LETTERS[state])
        case state if state in FINAL:
            writes.add(keys.ended(queue, state), job.finished or 0.0, name)
    if job.expires is not None and job.state in PENDING:
        writes.add(keys.EXPIRING, job.expires, name)
    if job.unique_key is not None and (job.unique_holds or job.state in LIVE):
        writes.add(keys.unique(queue, job.unique_key), job.seq, name)


def _unfile(writes: Writes, job: Job) -> None:
    name, queue = member(job), job.queue
    writes.count(keys.COUNTS, keys.count(job.state, queue), -1)
    match job.state:
        case State.READY:
            writes.remove(keys.lane(queue, job.lane), in_lane(job))
            writes.touch(queue, job.lane)
        case State.SCHEDULED:
            writes.remove(keys.scheduled(queue), name)
            writes.count(keys.COUNTS, keys.retrying(queue), -int(job.attempts > 0))
        case State.RUNNING:
            writes.unset(keys.running(queue), name)
            writes.exclude(keys.held(job.worker or ""), name)
            writes.tally(keys.RUNNING_IN, keys.running_in(queue, job.key), -int(job.key != ""))
        case State.WAITING if job.after is not None:
            writes.remove(keys.successors(job.after), name)
        case state if state in FINAL and job.flow is not None:
            writes.remove(keys.ended_parts(queue, state), name)
            writes.unset(keys.part_ends(job.flow.id), job.id)
        case state if state in FINAL:
            writes.remove(keys.ended(queue, state), name)
    if job.expires is not None and job.state in PENDING:
        writes.remove(keys.EXPIRING, name)
    if job.unique_key is not None and (job.unique_holds or job.state in LIVE):
        writes.remove(keys.unique(queue, job.unique_key), name)
