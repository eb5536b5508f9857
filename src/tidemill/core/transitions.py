"""The state changes of a job as pure functions. Each function returns the job after one store operation."""

from __future__ import annotations

from msgspec.structs import replace

from tidemill.core import needs
from tidemill.core.batching import SUSPECT_CRASHES, part_after_crash
from tidemill.core.claims import ClaimedJob
from tidemill.core.jobs import Error, Job, JobGroup, NewJob, job_lane, problem_with_group
from tidemill.core.needs import Need
from tidemill.core.outcomes import (
    Cancellation,
    Crash,
    FinalFailure,
    JobRelease,
    Outcome,
    RetryLater,
    SmallerBatch,
    Snooze,
    Success,
    UnitWait,
)
from tidemill.core.queues import DAY_SECONDS, QueueSettings
from tidemill.core.states import FINAL, PENDING, State, Verb, require_legal

UNKNOWN_TASK_SECONDS = DAY_SECONDS
SUPERSEDED = "superseded"
EXPIRED = "expired"
POISON = "poison"
REPLACED = "replaced"
UNKNOWN_TASK = "unknown task"
REFUSED = "refused"


def create_job(new: NewJob, queue: str, seq: int, now: float) -> Job:
    due = new.at if new.at is not None else now + new.delay
    unique = new.unique
    lasts = None if unique is None else unique.lasts
    return Job(
        seq=seq,
        id=new.id,
        queue=queue,
        task=new.task,
        payload=new.payload,
        state=State.SCHEDULED if due > now else State.READY,
        priority=new.priority,
        lane=job_lane(new),
        created=now,
        due=max(due, now),
        expires=None if new.expires is None else now + new.expires,
        timeout=new.timeout,
        trace=new.trace,
        tags=new.tags,
        needs=new.needs,
        batching=new.batching,
        flow=new.flow,
        unique_key=None if unique is None else unique.key,
        unique_until=None if lasts is None else now + lasts,
        unique_holds=unique is not None and unique.period is not None,
    )


def wait_for_holder(job: Job, holder: str) -> Job:
    """Returns a new job as the successor of the running job `holder`. It waits until that job has run."""
    return replace(job, state=State.WAITING, after=holder)


def merge_request(holder: Job, request: Job) -> Job:
    """Returns the pending job `holder` after a request with the same unique key was merged into it.

    The job gets the newer payload, the more urgent priority and the earlier due time. It keeps its id and
    position. Its attempts start again at 0."""
    state = holder.state
    if state is State.SCHEDULED and request.state is State.READY:
        state = require_legal(Verb.MERGE, state, State.READY)
    return replace(
        holder,
        task=request.task,
        payload=request.payload,
        priority=min(holder.priority, request.priority),
        due=min(holder.due, request.due),
        expires=request.expires,
        lane=request.lane,
        needs=request.needs,
        batching=request.batching,
        part="",
        deferred_needs=(),
        state=state,
        attempts=0,  # earlier attempts ran the old payload
    )


def release_successor(successor: Job, now: float) -> Job:
    after = State.SCHEDULED if successor.due > now else State.READY
    return replace(successor, state=require_legal(Verb.RELEASE, successor.state, after), after=None)


def promote_job(job: Job) -> Job:
    return replace(job, state=require_legal(Verb.PROMOTE, job.state, State.READY))


def set_aside(job: Job) -> Job:
    """Returns the ready job in a separate lane, so that it does not block its old lane."""
    return replace(job, lane=needs.aside_lane(job.lane, job.seq))


def is_expired(job: Job, now: float) -> bool:
    return job.expires is not None and now >= job.expires


def counts_in_history(before: State | None, after: State) -> bool:
    """True if the history counts this state change as the end of a job. An archived job does not count,
    because it has not run. `before` is None for a new job."""
    return after in FINAL and not (after is State.FAILED and before in PENDING)


def expire_job(job: Job, now: float) -> Job:
    return _end_job(job, Verb.EXPIRE, State.CANCELLED, now, EXPIRED)


def claim_job(
    job: Job,
    *,
    fence: int,
    claim: int,
    worker: str,
    number: int,
    lease: float,
    now: float,
    call: str = "",
    company: bool = False,
) -> Job:
    """Returns the job as running.

    - `number`: the worker's claim number.
    - `lease`: the boot-clock time when the lease ends.
    - `call`: the id of the first job of its batch call.
    - `company`: True if the call has more jobs."""
    return replace(
        job,
        state=require_legal(Verb.CLAIM, job.state, State.RUNNING),
        fence=fence,
        claim=claim,
        worker=worker,
        number=number,
        lease=lease,
        alone=job.crashes > 0 and not company,
        started=now,
        progress=None,
        note=None,
        call=call,
    )


def claimed_job(job: Job) -> ClaimedJob:
    """Returns the part of the job that its worker receives."""
    return ClaimedJob(
        job.id,
        job.queue,
        job.task,
        job.payload,
        job.fence,
        job.claim,
        job.attempts + 1,
        job.priority,
        job.lane,
        job.crashes,
        job.generation,
        job.timeout,
        job.trace,
        job.created,
        job.due,
        job.part,
        job.needs,
        job.call,
        job.deferred_needs,
        job.flow,
    )


def settle_job(job: Job, outcome: Outcome, settings: QueueSettings, now: float) -> Job:
    match outcome:
        case Success(result):
            done = _end_job(job, Verb.SETTLE, State.DONE, now, None)
            return replace(done, result=result, error=None, attempts=job.attempts + 1)
        case FinalFailure(error, reason):
            failed = _end_job(job, Verb.SETTLE, State.FAILED, now, reason)
            return replace(failed, error=error, attempts=job.attempts + 1)
        case Cancellation(reason):
            return _end_job(job, Verb.SETTLE, State.CANCELLED, now, reason)
        case RetryLater(delay, error, priority):
            urgency = job.priority if priority is None else priority
            retried = replace(job, attempts=job.attempts + 1, error=error, priority=urgency)
            return _postpone(_without_excuses(_defer_needs(retried, ())), delay, now)
        case Snooze(delay, reason):
            postponed = _postpone(_without_excuses(_defer_needs(job, ())), delay, now)
            return postponed if reason is None else replace(postponed, note=reason)
        case SmallerBatch(part):
            return _in_part(_give_back(job, Verb.SETTLE), part)
        case JobRelease():
            return _apply_release(job, outcome, now)
        case UnitWait(deferred):
            back = _give_back(job, Verb.SETTLE)
            return back if job.batching is not None else _defer_needs(back, needs.combine_needs((), deferred))
        case Crash(error):
            return _count_crash(job, Verb.SETTLE, settings, error, now)


def supersede_job(retrying: Job, now: float) -> Job:
    """Returns the job as cancelled. It would have been retried, but a successor with newer data waits."""
    return _end_job(retrying, Verb.CANCEL, State.CANCELLED, now, SUPERSEDED)


def reclaim_job(job: Job, settings: QueueSettings, now: float, *, died: bool = False) -> Job:
    """Returns the job after its lease expired. `died=True`: its worker is known to have died.

    If the job ran alone in its process, its crash count grows by one. Otherwise the count becomes at least 1,
    because another job may be the cause. If the job shared a call, the jobs of the call are split into two
    parts."""
    error = Error("LeaseExpired", f"worker {job.worker} stopped renewing its lease")
    if died:
        error = Error("WorkerDied", f"worker {job.worker} died while the job was in its hands")
    if job.alone:
        return replace(_count_crash(job, Verb.RECLAIM, settings, error, now), claim=0)
    back = _in_part(_give_back(job, Verb.RECLAIM), part_after_crash(job.id, job.part, job.call))
    return replace(back, claim=0, crashes=max(SUSPECT_CRASHES, job.crashes), error=error)


def return_unrun_job(job: Job) -> Job:
    """Returns the job as ready again, because the reply to its claim never reached the worker. No attempt or
    crash is counted."""
    return replace(_give_back(job, Verb.RECLAIM), claim=0)


def cancel_job(job: Job, reason: str, now: float) -> Job:
    return replace(_end_job(job, Verb.CANCEL, State.CANCELLED, now, reason), claim=0)


def archive_job(job: Job, reason: str, now: float) -> Job:
    return _end_job(job, Verb.ARCHIVE, State.FAILED, now, reason)


def retry_job(job: Job, now: float) -> Job:
    """Returns the job in a new generation, ready and with all counts at zero, because an operator retried
    it."""
    return replace(
        _without_excuses(_defer_needs(_in_part(job, ""), ())),
        state=require_legal(Verb.RETRY, job.state, State.READY),
        generation=job.generation + 1,
        attempts=0,
        crashes=0,
        claim=0,
        due=now,
        expires=None,
        started=None,
        finished=None,
        result=None,
        error=None,
        reason=None,
        progress=None,
        note=None,
        unique_key=None,
        unique_until=None,
        unique_holds=False,
        unknown_for=0.0,
        after=None,
    )


def run_job_now(job: Job, now: float) -> Job:
    return replace(job, state=require_legal(Verb.RUN, job.state, State.READY), due=now)


def _postpone(job: Job, delay: float, now: float) -> Job:
    after = State.SCHEDULED if delay > 0 else State.READY
    return replace(job, state=require_legal(Verb.SETTLE, job.state, after), due=now + delay, unknown_for=0.0)


def _give_back(job: Job, verb: Verb) -> Job:
    return replace(job, state=require_legal(verb, job.state, State.READY))


def _in_part(job: Job, part: str) -> Job:
    """Returns the job in the lane of a `part` of a split batch; '' is no part. A job without batching does
    not change."""
    if job.batching is None or job.part == part:
        return job
    # The item that broke one batch would break another one too: its jobs stay separate.
    return replace(job, part=part, lane=needs.lane_name(job.key, job.needs, job.task, part))


def _defer_needs(job: Job, deferred: tuple[Need, ...]) -> Job:
    """Returns the job with `deferred` as its deferred needs: units that its next claim reserves besides its
    own needs. The job moves to the lane for all pools that it now needs."""
    if job.deferred_needs == deferred:
        return job
    lane = needs.lane_name(job.key, needs.combine_needs(job.needs, deferred))
    return replace(job, deferred_needs=deferred, lane=lane)


def _apply_release(job: Job, outcome: JobRelease, now: float) -> Job:
    if outcome.unknown:
        return _postpone_unknown_task(job, now)
    back = _give_back(job, Verb.SETTLE)
    return (
        replace(back, needs=needs.with_excuse_count(job.needs, excuse_count(job) + 1))
        if outcome.excused
        else back
    )


def excuse_count(job: Job | ClaimedJob) -> int:
    """Returns how many attempts in a row did not count, because the handler had reported a refusal before it
    failed."""
    return job.needs[0].excused if job.needs else 0


def _without_excuses(job: Job) -> Job:
    return job if excuse_count(job) == 0 else replace(job, needs=needs.with_excuse_count(job.needs, 0))


def _postpone_unknown_task(job: Job, now: float) -> Job:
    """Returns the job postponed, because its worker does not know the task. The job fails when the waits add
    up to one day."""
    if job.unknown_for >= UNKNOWN_TASK_SECONDS:
        error = Error("UnknownTask", f"no worker knew the task {job.task!r} for 24 hours")
        return replace(_end_job(job, Verb.SETTLE, State.FAILED, now, UNKNOWN_TASK), error=error)
    # The waits are added up, because the wall clock may be set.
    wait = min(30.0, 1.0 + job.unknown_for / 10)
    note = f"worker {job.worker} does not know this task"
    return replace(_postpone(job, wait, now), unknown_for=job.unknown_for + wait, note=note)


def _count_crash(job: Job, verb: Verb, settings: QueueSettings, error: Error, now: float) -> Job:
    counted = replace(job, crashes=job.crashes + 1, error=error)
    if counted.crashes >= settings.crash_limit:
        return _end_job(counted, verb, State.FAILED, now, POISON)
    return _give_back(counted, verb)


def _end_job(job: Job, verb: Verb, state: State, now: float, reason: str | None) -> Job:
    return replace(job, state=require_legal(verb, job.state, state), finished=now, reason=reason)


_KEPT_FIELDS = ("priority", "key", "timeout", "trace", "tags")
"""The fields that a rejected job keeps. Start, expiry, unique key and pools are left out: they begin to
apply when a job is created."""


def rejected_job(new: NewJob, queue: str, seq: int, now: float, error: Error) -> Job:
    """Returns a refused request as a failed job. Valid fields are kept for a retry, and invalid fields are
    dropped."""
    new_job = NewJob(
        id=new.id, task=new.task, payload=new.payload.decode(errors="replace").encode(), flow=new.flow
    )
    good = {field: value for field in _KEPT_FIELDS if _is_valid_field(field, value := getattr(new, field))}
    job = create_job(replace(new_job, **good), queue, seq, now)
    return replace(job, state=State.FAILED, finished=now, error=error, reason=REFUSED)


def _is_valid_field(field: str, value: object) -> bool:
    alone = replace(NewJob(id="-", task="-", payload=b"{}"), **{field: value})
    return problem_with_group(JobGroup("-", (alone,))) is None
