"""What each verb makes of a job. Every function takes a job and `now` and returns the job after.

All of them go through `states.require`, so a store that applies them cannot make an
illegal move. `fence` and `claim` stay on a settled job, which is how a repeated settle is
recognised; whoever takes a claim away without its holder (reclaim, cancel) clears `claim`,
which is how a late holder is refused.
"""

from __future__ import annotations

from msgspec.structs import replace

from tidemill.core import needs
from tidemill.core.batching import SUSPECT, half_after_crash
from tidemill.core.claims import Claimed
from tidemill.core.job import Error, Job, NewJob, lane_of
from tidemill.core.needs import Need
from tidemill.core.outcomes import (
    Await,
    Cancelled,
    Crashed,
    Done,
    Fail,
    Outcome,
    Release,
    Retrying,
    Snooze,
    Split,
)
from tidemill.core.queues import DAY, QueueSettings
from tidemill.core.states import FINAL, PENDING, State, Verb, require

UNKNOWN_TASK_PATIENCE = DAY
SUPERSEDED = "superseded"
EXPIRED = "expired"
POISON = "poison"
REPLACED = "replaced"
UNKNOWN_TASK = "unknown task"
REFUSED = "refused"


def created(new: NewJob, queue: str, seq: int, now: float) -> Job:
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
        lane=lane_of(new),
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


def waiting_for(job: Job, holder: str) -> Job:
    """A fresh job becomes the successor of a running one."""
    return replace(job, state=State.WAITING, after=holder)


def merged(holder: Job, request: Job) -> Job:
    """Newest payload, more urgent priority, earlier time; the holder keeps its id and place.

    What the payload belongs to comes with it: its task, what it needs of which pools, with whom it shares
    calls. The new version gets all its attempts: those spent on the old one do not count."""
    state = holder.state
    if state is State.SCHEDULED and request.state is State.READY:
        state = require(Verb.MERGE, state, State.READY)
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
        extra=(),
        state=state,
        attempts=0,
    )


def released(successor: Job, now: float) -> Job:
    after = State.SCHEDULED if successor.due > now else State.READY
    return replace(successor, state=require(Verb.RELEASE, successor.state, after), after=None)


def promoted(job: Job) -> Job:
    return replace(job, state=require(Verb.PROMOTE, job.state, State.READY))


def aside(job: Job) -> Job:
    """A ready job makes way for the others of its lane."""
    return replace(job, lane=needs.aside(job.lane, job.seq))


def is_expired(job: Job, now: float) -> bool:
    return job.expires is not None and now >= job.expires


def is_counted(before: State | None, after: State) -> bool:
    """Whether the history counts the end of a job. One that a person archives has not run."""
    return after in FINAL and not (after is State.FAILED and before in PENDING)


def expired(job: Job, now: float) -> Job:
    return _ended(job, Verb.EXPIRE, State.CANCELLED, now, EXPIRED)


def claimed(
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
    """`company`: other jobs are in the same call."""
    return replace(
        job,
        state=require(Verb.CLAIM, job.state, State.RUNNING),
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


def in_hand(job: Job) -> Claimed:
    """What a worker gets to see of the job it claimed."""
    return Claimed(
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
        job.extra,
        job.flow,
    )


def settled(job: Job, outcome: Outcome, settings: QueueSettings, now: float) -> Job:
    match outcome:
        case Done(result):
            done = _ended(job, Verb.SETTLE, State.DONE, now, None)
            return replace(done, result=result, error=None, attempts=job.attempts + 1)
        case Fail(error, reason):
            failed = _ended(job, Verb.SETTLE, State.FAILED, now, reason)
            return replace(failed, error=error, attempts=job.attempts + 1)
        case Cancelled(reason):
            return _ended(job, Verb.SETTLE, State.CANCELLED, now, reason)
        case Retrying(delay, error, priority):
            urgency = job.priority if priority is None else priority
            again = replace(job, attempts=job.attempts + 1, error=error, priority=urgency)
            return _postponed(_unexcused(_with_extra(again, ())), delay, now)
        case Snooze(delay, reason):
            postponed = _postponed(_unexcused(_with_extra(job, ())), delay, now)
            return postponed if reason is None else replace(postponed, note=reason)
        case Split(part):
            return _in_part(_given_back(job, Verb.SETTLE), part)
        case Release():
            return _released(job, outcome, now)
        case Await(extra):
            back = _given_back(job, Verb.SETTLE)
            return back if job.batching is not None else _with_extra(back, needs.together((), extra))
        case Crashed(error):
            return _crashed(job, Verb.SETTLE, settings, error, now)


def superseded(retrying: Job, now: float) -> Job:
    """A job that would be retried ends here when a successor with newer data waits."""
    return _ended(retrying, Verb.CANCEL, State.CANCELLED, now, SUPERSEDED)


def reclaimed(job: Job, settings: QueueSettings, now: float, *, died: bool = False) -> Job:
    """The lease ran out, or its worker is known to have died. Alone, that is a crash of this job;
    in company it is only suspect, and one half of its call is tried apart from the other."""
    error = Error("LeaseExpired", f"worker {job.worker} stopped renewing its lease")
    if died:
        error = Error("WorkerDied", f"worker {job.worker} died while the job was in its hands")
    if job.alone:
        return replace(_crashed(job, Verb.RECLAIM, settings, error, now), claim=0)
    back = _in_part(_given_back(job, Verb.RECLAIM), half_after_crash(job.id, job.part, job.call))
    return replace(back, claim=0, crashes=max(SUSPECT, job.crashes), error=error)


def returned(job: Job) -> Job:
    """The claim's reply never reached its worker: nothing ran, nothing is counted."""
    return replace(_given_back(job, Verb.RECLAIM), claim=0)


def cancelled(job: Job, reason: str, now: float) -> Job:
    return replace(_ended(job, Verb.CANCEL, State.CANCELLED, now, reason), claim=0)


def archived(job: Job, reason: str, now: float) -> Job:
    return _ended(job, Verb.ARCHIVE, State.FAILED, now, reason)


def retried(job: Job, now: float) -> Job:
    """An operator's retry starts a new generation with its counts at zero."""
    return replace(
        _unexcused(_with_extra(_in_part(job, ""), ())),
        state=require(Verb.RETRY, job.state, State.READY),
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


def run_now(job: Job, now: float) -> Job:
    return replace(job, state=require(Verb.RUN, job.state, State.READY), due=now)


def _postponed(job: Job, delay: float, now: float) -> Job:
    after = State.SCHEDULED if delay > 0 else State.READY
    return replace(job, state=require(Verb.SETTLE, job.state, after), due=now + delay, unknown_for=0.0)


def _given_back(job: Job, verb: Verb) -> Job:
    return replace(job, state=require(verb, job.state, State.READY))


def _in_part(job: Job, part: str) -> Job:
    """Each part of a split batch has a lane of its own, and keeps to it: what spoiled a batch would spoil
    the next one."""
    if job.batching is None or job.part == part:
        return job
    return replace(job, part=part, lane=needs.lane_of(job.key, job.needs, job.task, part))


def _with_extra(job: Job, extra: tuple[Need, ...]) -> Job:
    """It stands behind all pools it waits for. Whoever begins anew asks anew; whoever is given back in its
    old place still waits for the same."""
    if job.extra == extra:
        return job
    return replace(job, extra=extra, lane=needs.lane_of(job.key, needs.together(job.needs, extra)))


def _released(job: Job, outcome: Release, now: float) -> Job:
    if outcome.unknown:
        return _unknown(job, now)
    back = _given_back(job, Verb.SETTLE)
    return replace(back, needs=needs.with_excuses(job.needs, excuses(job) + 1)) if outcome.excused else back


def excuses(job: Job | Claimed) -> int:
    """How many attempts in a row a reported refusal has decided."""
    return job.needs[0].excused if job.needs else 0


def _unexcused(job: Job) -> Job:
    return job if excuses(job) == 0 else replace(job, needs=needs.with_excuses(job.needs, 0))


def _unknown(job: Job, now: float) -> Job:
    """No worker here knows the task: offer it to others, ever less often, for a day. The day is
    added up from the waits, so that stepping the clock does not end it. Its note says who did not."""
    if job.unknown_for >= UNKNOWN_TASK_PATIENCE:
        error = Error("UnknownTask", f"no worker knew the task {job.task!r} for 24 hours")
        return replace(_ended(job, Verb.SETTLE, State.FAILED, now, UNKNOWN_TASK), error=error)
    wait = min(30.0, 1.0 + job.unknown_for / 10)
    note = f"worker {job.worker} does not know this task"
    return replace(_postponed(job, wait, now), unknown_for=job.unknown_for + wait, note=note)


def _crashed(job: Job, verb: Verb, settings: QueueSettings, error: Error, now: float) -> Job:
    counted = replace(job, crashes=job.crashes + 1, error=error)
    if counted.crashes >= settings.crash_limit:
        return _ended(counted, verb, State.FAILED, now, POISON)
    return _given_back(counted, verb)


def _ended(job: Job, verb: Verb, state: State, now: float, reason: str | None) -> Job:
    return replace(job, state=require(verb, job.state, state), finished=now, reason=reason)
