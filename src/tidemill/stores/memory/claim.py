"""claim: ready jobs go into a worker's hands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from tidemill.contract.jobs import PROMOTE_AT_ONCE
from tidemill.core import lanes, transitions
from tidemill.core.claims import Claimed, ClaimRequest, Claims
from tidemill.core.job import Job
from tidemill.core.states import FINAL, State
from tidemill.stores.memory.lanes import open_lane
from tidemill.stores.memory.moves import move
from tidemill.stores.memory.queue import Queue
from tidemill.stores.memory.records import KnownWorker, Records, stranger


class Claiming:
    """One claim under way. Fence and claim id are taken with its first job: a claim that finds
    nothing takes neither, but its number counts."""

    def __init__(self, records: Records, request: ClaimRequest) -> None:
        self.records, self.request = records, request
        self.now = records.clock.wall()
        self.lease = records.clock.boot() + request.lease
        self.fence = self.claim = 0
        self.jobs: list[Claimed] = []

    @property
    def left(self) -> int:
        return self.request.limit - len(self.jobs)

    def take(self, job: Job) -> None:
        if not self.jobs:
            self.records.fence += 1
            self.fence, self.claim = self.records.fence, self.records.entropy.claim_id()
        claimed = transitions.claimed(
            job,
            fence=self.fence,
            claim=self.claim,
            worker=self.request.worker,
            number=self.request.number,
            lease=self.lease,
            now=self.now,
        )
        move(self.records, claimed, self.now)
        self.jobs.append(transitions.in_hand(claimed))


def claim(records: Records, request: ClaimRequest) -> Claims:
    """J30 to J39."""
    records.end_step()
    if _is_repeated(records, request):
        return _repeated(records, request)
    claiming = Claiming(records, request)
    if request.ids is not None:
        return _by_ids(claiming, request.ids)
    shares = [(records.queues[s.queue], s.jobs) for s in request.shares if s.queue in records.queues]
    queues = [queue for queue, _ in shares]
    for queue, jobs in shares:
        queue.end_override(claiming.now)
        _promote(records, queue, claiming.now)
        _take_from(claiming, queue, jobs)
    for queue in queues:
        _take_from(claiming, queue, claiming.left)
    more = any(_has_open_jobs(queue, claiming.now) for queue in queues)
    return Claims(jobs=claiming.jobs, more=more, next_due=_next_due(queues, claiming.now))


def _is_repeated(records: Records, request: ClaimRequest) -> bool:
    """Looks at the worker's last number, and notes this one. A worker that claims before its first
    heartbeat is known from here on, with the claim's lease."""
    known = records.workers.get(request.worker)
    if known is not None and request.number <= known.number:
        return True
    if known is None:
        known = KnownWorker(
            stranger(request.worker, records.clock.wall()), records.clock.boot() + request.lease
        )
    records.workers[request.worker] = replace(known, number=request.number)
    return False


def _repeated(records: Records, request: ClaimRequest) -> Claims:
    """J33: what the worker still holds of that claim, by seq. An older number than the last is
    a late double: it too claims nothing. `more` and `next_due` are left to the next claim."""
    held = (records.jobs[id_] for id_ in records.running.get(request.worker, ()))
    jobs = sorted((job for job in held if job.number == request.number), key=lambda job: job.seq)
    return Claims(jobs=[transitions.in_hand(job) for job in jobs])


def _promote(records: Records, queue: Queue, now: float) -> None:
    """J30. A paused queue's jobs are promoted too: whether it is open is asked afterwards."""
    for key in queue.scheduled.slice(0, PROMOTE_AT_ONCE):
        if key[0] > now:
            return
        move(records, transitions.promoted(records.jobs[key[-1]]), now)


def _take_from(claiming: Claiming, queue: Queue, share: int) -> None:
    """Up to `share` jobs, in the order of `core.lanes.pick` over all open lanes of the queue."""
    limit = int(min(share, claiming.left, queue.room()))
    if limit <= 0 or queue.closed(claiming.now):
        return
    picked = _pick(claiming, queue, limit)
    claiming.records.picks = picked.picks
    for job in picked.jobs:
        claiming.take(job)
    for name, served in picked.served.items():
        queue.lanes.serve(name, served)
    for job in picked.passed:
        move(claiming.records, transitions.expired(job, claiming.now), claiming.now)
    queue.lanes.forget_empty()


def _pick(claiming: Claiming, queue: Queue, limit: int) -> lanes.Picked[Job]:
    """Each job taken makes at most one lane give way, so the first `limit` lanes decide, unless
    an expired head was met: then a lane behind them may come forward and all are asked."""
    records = claiming.records

    def fetch(name: str, offset: int, count: int) -> list[Job]:
        return [records.jobs[id_] for id_ in queue.lanes.ids(name, offset, count)]

    def passes(job: Job) -> bool:
        return transitions.is_expired(job, claiming.now)

    first = list(islice(_open_lanes(queue, limit), limit))
    picked = lanes.pick(first, limit, records.picks, fetch, passes)
    if not picked.passed or len(first) < limit:
        return picked
    return lanes.pick(_open_lanes(queue, limit), limit, records.picks, fetch, passes)


def _open_lanes(queue: Queue, limit: int) -> Iterator[lanes.OpenLane]:
    for place in queue.lanes.in_order():
        room = int(min(limit, queue.room_in(place[3])))
        if room > 0:
            yield open_lane(place, room)


def _has_open_jobs(queue: Queue, now: float) -> bool:
    if queue.closed(now) or queue.room() <= 0:
        return False
    return next(iter(_open_lanes(queue, 1)), None) is not None


def _next_due(queues: list[Queue], now: float) -> float | None:
    """J38, in seconds. A paused queue counts with the end of its pause, if it has one; an open
    one with its next scheduled job, which may be due already when very many are, and with the end
    of its override, which may open a limit."""
    times: list[float] = []
    for queue in queues:
        if queue.pause is not None and queue.closed(now):
            if queue.pause.until is not None:
                times.append(queue.pause.until)
            continue
        if (head := queue.scheduled.head()) is not None:
            times.append(head[0])
        if queue.override is not None and queue.override.until is not None:
            times.append(queue.override.until)
    return max(0.0, min(times) - now) if times else None


def _by_ids(claiming: Claiming, ids: tuple[str, ...]) -> Claims:
    """J37. A job that is due counts as ready; one that has ended is gone. Which lane's turn it
    is does not change: a transport has its own order."""
    blocked: list[str] = []
    gone: list[str] = []
    for id_ in dict.fromkeys(ids):
        job = claiming.records.jobs.get(id_)
        if job is not None and _is_startable(job, claiming.now):
            job = _woken(claiming, job)
        if job is None or job.state in FINAL:
            gone.append(id_)
        elif _may_start(claiming, job):
            claiming.take(job)
        else:
            blocked.append(id_)
    return Claims(jobs=claiming.jobs, blocked=tuple(blocked), gone=tuple(gone))


def _is_startable(job: Job, now: float) -> bool:
    return job.state is State.READY or (job.state is State.SCHEDULED and job.due <= now)


def _woken(claiming: Claiming, job: Job) -> Job:
    """Expired now, or ready."""
    if transitions.is_expired(job, claiming.now):
        job = transitions.expired(job, claiming.now)
    elif job.state is State.SCHEDULED:
        job = transitions.promoted(job)
    else:
        return job
    move(claiming.records, job, claiming.now)
    return job


def _may_start(claiming: Claiming, job: Job) -> bool:
    queue = claiming.records.queues[job.queue]
    if job.state is not State.READY or queue.closed(claiming.now):
        return False
    return min(claiming.left, queue.room(), queue.room_in(job.lane)) > 0
