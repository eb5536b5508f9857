"""The store methods `insert` and `admit`: requests and arrivals become jobs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from tidemill.contract.jobs import Admission, Arrival, RejectedArrival
from tidemill.core import transitions
from tidemill.core.jobs import Error, Job, JobGroup, NewJob, problem_with_group
from tidemill.core.queues import InsertResult, InsertVerdict
from tidemill.core.states import PENDING
from tidemill.core.transitions import rejected_job
from tidemill.core.unique_keys import Conflict, Unique, holds_key, resolve_conflict
from tidemill.engine.pools import problem_with_needs
from tidemill.engine.records import Records, move_job


def insert(records: Records, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
    """Inserts groups of jobs in order; each group sees the jobs of the groups before it. Returns, for each
    group, one result per job (J10 to J16)."""
    return [_insert_group(records, group) for group in groups]


def _insert_group(records: Records, group: JobGroup) -> list[InsertResult]:
    """Inserts one group and returns one result per job. A refused group changes nothing, so the client may
    send it again with the same ids."""
    now = records.clock.wall()
    if problem := problem_with_group(group):
        return [InsertResult(InsertVerdict.INVALID, job.id, problem) for job in group.jobs]
    new = [job for job in group.jobs if _known_request(records, job.id) is None]
    if problem := problem_with_needs(records, new):
        return _refuse_new_jobs(records, group, InsertVerdict.INVALID, problem)
    if problem := _problem_with_length(records, group.queue, len(new)):
        return _refuse_new_jobs(records, group, InsertVerdict.FULL, problem)
    return [insert_one(records, group.queue, job, now) for job in group.jobs]


def _refuse_new_jobs(
    records: Records, group: JobGroup, verdict: InsertVerdict, problem: str
) -> list[InsertResult]:
    """Returns the refusal `verdict`, with its reason `problem`, for each job of the group. A job that was
    inserted before gets its first answer again (J11)."""
    return [_known_request(records, job.id) or InsertResult(verdict, job.id, problem) for job in group.jobs]


def insert_one(records: Records, queue: str, new: NewJob, now: float) -> InsertResult:
    """Inserts one job and returns the answer. The caller has checked that the job is valid and that the queue
    is not full."""
    if known := _known_request(records, new.id):
        return known
    holder = holder_of(records, queue, new.unique, now)
    if holder is None or new.unique is None:
        return _accept(records, _new_job(records, new, queue, now), now)
    match resolve_conflict(new.unique, holder):
        case Conflict.EXISTING:
            return _answer_existing(records, new.id, holder.id)
        case Conflict.MERGE:
            _cancel_replaced(records, records.successor_of(holder.id), now)
            return _merge(records, holder, new, now)
        case Conflict.REPLACE:
            _cancel_replaced(records, records.successor_of(holder.id), now)
            _cancel_replaced(records, holder, now)
            return _accept(records, _new_job(records, new, queue, now), now)
        case Conflict.SUCCEED:
            return _add_successor(records, holder, new, now)


def holder_of(records: Records, queue: str, unique: Unique | None, now: float) -> Job | None:
    """Returns the newest job that holds a unique key; None if no job holds it. A successor is returned only
    if no other job holds the key."""
    if unique is None:
        return None
    _expire_holders(records, queue, unique.key, now)
    jobs = (records.jobs[id_] for id_ in records.unique_holders.of((queue, unique.key)))
    holders = [job for job in jobs if holds_key(job, now)]
    return max(holders, key=lambda job: (job.after is None, job.seq), default=None)


def _expire_holders(records: Records, queue: str, key: str, now: float) -> None:
    """Cancels pending jobs that hold the unique key `key` and have expired. Otherwise a request could be
    merged into an expired job."""
    for id_ in records.unique_holders.of((queue, key)):
        job = records.jobs[id_]
        if job.state in PENDING and transitions.is_expired(job, now):
            move_job(records, transitions.expire_job(job, now), now)


def _known_request(records: Records, request: str) -> InsertResult | None:
    """Returns the stored answer to the enqueue request with this id. Returns None if the store does not know
    the id."""
    if request in records.jobs:
        return InsertResult(InsertVerdict.ACCEPTED, request)
    known_ids = records.find_known_id(request)
    return None if known_ids is None else InsertResult(known_ids.verdict, known_ids.id)


def _problem_with_length(records: Records, name: str, new: int) -> str | None:
    """Returns an error text if `new` more jobs would exceed the maximum length of the queue `name` (J12);
    None if they fit."""
    queue = records.queues.get(name)
    if queue is None or queue.settings.max_length is None:
        return None
    pending, limit = queue.pending, queue.settings.max_length
    if not new or pending + new <= limit:
        return None
    return f"queue {name!r} holds {pending} pending jobs of at most {limit}, {new} more do not fit"


def _new_job(records: Records, new: NewJob, queue: str, now: float) -> Job:
    return transitions.create_job(new, queue, records.next_seq(), now)


def _accept(records: Records, job: Job, now: float) -> InsertResult:
    move_job(records, job, now)
    return InsertResult(InsertVerdict.ACCEPTED, job.id)


def _answer_existing(records: Records, request: str, stands_for_it: str) -> InsertResult:
    records.remember(request, InsertVerdict.EXISTING, stands_for_it)
    return InsertResult(InsertVerdict.EXISTING, stands_for_it)


def _merge(records: Records, holder: Job, new: NewJob, now: float) -> InsertResult:
    """Merges a request into the job that holds its unique key, and returns the id of that job. No job is
    created."""
    request = transitions.create_job(new, holder.queue, 0, now)
    move_job(records, transitions.merge_request(holder, request), now)
    return _answer_existing(records, new.id, holder.id)


def _add_successor(records: Records, holder: Job, new: NewJob, now: float) -> InsertResult:
    """Inserts the request as a successor of `holder`, and replaces a successor that waits already. With
    `on_conflict="rerun"` the request is merged into that successor."""
    waiting = records.successor_of(holder.id)
    if waiting is not None and new.unique is not None and new.unique.on_conflict == "rerun":
        return _merge(records, waiting, new, now)
    _cancel_replaced(records, waiting, now)
    successor = transitions.wait_for_holder(_new_job(records, new, holder.queue, now), holder.id)
    return _accept(records, successor, now)


def _cancel_replaced(records: Records, job: Job | None, now: float) -> None:
    """Cancels a job because a newer request replaces it. The caller must first cancel the successor of the
    job, which would otherwise start."""
    if job is not None:
        move_job(records, transitions.cancel_job(job, transitions.REPLACED, now), now)


def add_arrival(records: Records, job: str, task: str, payload: bytes, options: bytes) -> None:
    """Stores an arrival. `job` is the id of the future job, and `options` is a JSON object."""
    records.arrival_seq += 1
    records.arrivals[records.arrival_seq] = Arrival(
        seq=records.arrival_seq,
        id=job,
        task=task,
        payload=payload,
        options=options,
        arrived=records.clock.wall(),
    )


def list_arrivals(records: Records, limit: int, after: int) -> list[Arrival]:
    return list(islice((a for seq, a in records.arrivals.items() if seq > after), limit))


def admit(records: Records, admissions: Sequence[Admission]) -> int:
    """Turns arrivals into jobs and deletes the arrivals. Returns how many arrivals were deleted (J20, J21). A
    job with a problem is stored as failed."""
    taken = 0
    for admission in admissions:
        if records.arrivals.pop(admission.arrival.seq, None) is not None:
            _admit(records, admission)
            taken += 1
    return taken


def _admit(records: Records, admission: Admission) -> None:
    now, arrival, verdict = records.clock.wall(), admission.arrival, admission.verdict
    new_job = NewJob(id=arrival.id, task=arrival.task, payload=arrival.payload)
    if isinstance(verdict, NewJob):
        problem = problem_with_group(JobGroup(admission.queue, (verdict,))) or problem_with_needs(
            records, [verdict]
        )
        if problem is None:
            insert_one(records, admission.queue, verdict, now)
            return
        new_job = replace(verdict, id=arrival.id, task=arrival.task, payload=arrival.payload)
        verdict = RejectedArrival(queue=admission.queue, error=Error("InvalidJob", problem))
    store_rejected(records, verdict.queue, new_job, verdict.error, now)


def store_rejected(records: Records, queue: str, new: NewJob, error: Error, now: float) -> None:
    """Stores a request that cannot become a job as a failed job with that error. Does nothing if its id is
    known."""
    if new.id in records.jobs or records.find_known_id(new.id) is not None:
        return
    move_job(records, rejected_job(new, queue, records.next_seq(), now, error), now)
