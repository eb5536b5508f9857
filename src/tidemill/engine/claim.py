"""claim: ready jobs go into a worker's hands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from math import isfinite

from msgspec.structs import replace

from tidemill.contract.jobs import PROMOTE_AT_ONCE
from tidemill.core import extras, lanes, transitions
from tidemill.core.batching import by_calls
from tidemill.core.claims import Claimed, ClaimRequest, Claims
from tidemill.core.job import Job
from tidemill.core.ledger import Reserved, Stopped
from tidemill.core.needs import key_of
from tidemill.core.states import FINAL, State
from tidemill.engine.gates import Gates
from tidemill.engine.lanes import open_lane
from tidemill.engine.moves import move
from tidemill.engine.queue import Queue
from tidemill.engine.records import KnownWorker, Records, stranger

UNLIMITED = 2**62


class Claiming:
    """One claim under way. Fence and claim id are taken with its first job: a claim that finds
    nothing takes neither, but its number counts."""

    def __init__(self, records: Records, request: ClaimRequest) -> None:
        self.records, self.request = records, request
        self.now, self.boot = records.clock.wall(), records.clock.boot()
        self.lease = self.boot + request.lease
        self.fence = self.claim = 0
        self.jobs: list[Claimed] = []
        self.calls = 0

    @property
    def left(self) -> int:
        """A call of several jobs is one of the limit."""
        return self.request.limit - self.calls

    def take(
        self, job: Job, reserved: Sequence[Reserved] = (), call: str = "", *, company: bool = False
    ) -> None:
        """`call` is the first job of its batch; `company`: there are others."""
        self.calls += call in {"", job.id}
        if not self.jobs:
            self.fence, self.claim = self.records.next_fence(), self.records.entropy.claim_id()
        claimed = transitions.claimed(
            job,
            fence=self.fence,
            claim=self.claim,
            worker=self.request.worker,
            number=self.request.number,
            lease=self.lease,
            now=self.now,
            call=call,
            company=company,
        )
        move(self.records, claimed, self.now)
        if reserved:
            self.records.books.hold((job.id, self.fence, self.claim), reserved)
        self.jobs.append(transitions.in_hand(claimed))


def claim(records: Records, request: ClaimRequest) -> Claims:
    """J30 to J39."""
    records.end_step()
    records.books.take_news()
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
        queue.lanes.wake(claiming.boot)
        _take_from(claiming, queue, jobs)
    for queue in queues:
        _take_from(claiming, queue, claiming.left)
    more = any(_has_open_jobs(queue, claiming.now, claiming.boot) for queue in queues)
    return Claims(
        jobs=claiming.jobs,
        more=more,
        next_due=next_due(queues, claiming.now, claiming.boot),
        lingers=any(queue.lanes.lingers and not queue.closed(claiming.now) for queue in queues),
        news=records.books.take_news(),
        waited=0.0,
    )


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
    """J33: what the worker still holds of that claim, by seq, calls together. An older number than
    the last is a late double: it too claims nothing. `more` and `next_due` are left to the next claim."""
    held = (records.jobs[id_] for id_ in records.running.of(request.worker))
    jobs = sorted((job for job in held if job.number == request.number), key=lambda job: job.seq)
    return Claims(jobs=[transitions.in_hand(job) for job in by_calls(jobs)])


def _promote(records: Records, queue: Queue, now: float) -> None:
    """J30. A paused queue's jobs are promoted too: whether it is open is asked afterwards."""
    due = list(islice(takewhile(lambda key: key[0] <= now, queue.scheduled.walk()), PROMOTE_AT_ONCE))
    for key in due:
        move(records, transitions.promoted(records.jobs[key[-1]]), now)


def _take_from(claiming: Claiming, queue: Queue, share: int) -> None:
    """Up to `share` calls, in the order of `core.lanes.pick` over all open lanes of the queue."""
    limit = int(min(share, claiming.left, queue.room()))
    if limit <= 0 or queue.closed(claiming.now):
        return
    gates = Gates(claiming.records.books, queue) if queue.lanes.is_pooled else None
    picked = _pick(claiming, queue, limit, gates)
    claiming.records.picks = picked.picks
    sizes = Counter(gates.calls.values()) if gates is not None else Counter[str]()
    for job in picked.jobs:
        if gates is None:
            claiming.take(job)
        else:
            call = gates.calls.get(job.id, "")
            claiming.take(job, gates.taken.get(job.id, ()), call, company=sizes[call] > 1)
    for name, served in picked.served.items():
        queue.lanes.serve(name, served)
    for job in picked.passed:
        move(claiming.records, transitions.expired(job, claiming.now), claiming.now)
    for job in picked.aside:
        move(claiming.records, transitions.aside(job), claiming.now)
    if gates is not None:
        gates.shut(picked)
    queue.lanes.forget_empty()


def _pick(claiming: Claiming, queue: Queue, limit: int, gates: Gates | None) -> lanes.Picked[Job]:
    """Each job taken makes at most one lane give way, so of each group the first `limit` lanes are offered,
    and one more for each that gives way without a job."""
    records = claiming.records
    offered = {group: _open_lanes(queue, group) for group in _open_groups(queue, claiming.boot)}

    def fetch(name: str, offset: int, count: int) -> list[Job]:
        return [records.jobs[id_] for id_ in queue.lanes.ids(name, offset, count)]

    def passes(job: Job) -> bool:
        return transitions.is_expired(job, claiming.now)

    return lanes.pick(
        [lane for group in offered.values() for lane in islice(group, limit)],
        limit,
        records.picks,
        fetch,
        passes,
        admits=None if gates is None else gates.admits,
        following=lambda group: next(offered[group], None),
        most=int(min(queue.room(), UNLIMITED)),
    )


def _open_groups(queue: Queue, boot: float) -> list[str]:
    return queue.lanes.open_groups(boot, queue.room_in)


def _open_lanes(queue: Queue, group: str) -> Iterator[lanes.OpenLane]:
    for place in queue.lanes.in_order(group):
        room = int(min(queue.room_in(key_of(place[3])), UNLIMITED))
        if room > 0:
            yield open_lane(place, room, group)


def _has_open_jobs(queue: Queue, now: float, boot: float) -> bool:
    if queue.closed(now) or queue.room() <= 0:
        return False
    return any(next(_open_lanes(queue, group), None) is not None for group in _open_groups(queue, boot))


def next_due(queues: Iterable[Queue], now: float, boot: float) -> float | None:
    """J38, P15, in seconds. A paused queue counts with the end of its pause, if it has one; an open
    one with its next scheduled job, which may be due already when very many are, with the end of its
    override, which may open a limit, and with the end of what its jobs wait for."""
    times: list[float] = []
    waits: list[float] = []
    for queue in queues:
        if queue.pause is not None and queue.closed(now):
            if queue.pause.until is not None:
                times.append(queue.pause.until)
            continue
        if (head := queue.scheduled.head()) is not None:
            times.append(head[0])
        if queue.override is not None and queue.override.until is not None:
            times.append(queue.override.until)
        waits += [until - boot for until in queue.lanes.waits(boot) if isfinite(until)]
    waits += [time - now for time in times]
    return max(0.0, min(waits)) if waits else None


def _by_ids(claiming: Claiming, ids: tuple[str, ...]) -> Claims:
    """J37, B8. A job that is due counts as ready; one that has ended is gone. Which lane's turn it
    is does not change: a transport has its own order."""
    blocked: list[str] = []
    gone: list[str] = []
    for id_ in dict.fromkeys(ids):
        job = claiming.records.jobs.get(id_)
        if job is not None and _is_startable(job, claiming.now):
            job = _woken(claiming, job)
        if job is None or job.state in FINAL:
            gone.append(id_)
        elif _may_start(claiming, job) and (reserved := _reserved(claiming, job)) is not None:
            claiming.take(job, reserved, "" if job.batching is None else job.id)
        else:
            blocked.append(id_)
    return Claims(
        jobs=claiming.jobs,
        blocked=tuple(blocked),
        gone=tuple(gone),
        news=claiming.records.books.take_news(),
        waited=0.0,
    )


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
    return min(claiming.left, queue.room(), queue.room_in(job.key)) > 0


def _reserved(claiming: Claiming, job: Job) -> Sequence[Reserved] | None:
    """What the job needs of its pools, taken for it; None when they refuse."""
    books = claiming.records.books
    answer = extras.ask_for(books, job, books.now())
    return None if isinstance(answer, Stopped) else answer
