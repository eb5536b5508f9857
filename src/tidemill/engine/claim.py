"""The store method `claim`: gives ready jobs to a worker if their queue, key and pools allow it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from math import isfinite

from msgspec.structs import replace

from tidemill.contract.jobs import MAX_PROMOTED_PER_CLAIM
from tidemill.core import batch_start, lane_selection, late_calls, ledger, transitions
from tidemill.core.batch_start import BatchStart, BatchWait
from tidemill.core.batching import BatchPolicy, group_by_call
from tidemill.core.claims import ClaimedJob, ClaimRequest, ClaimResult
from tidemill.core.jobs import Job
from tidemill.core.lane_selection import BlockScope, LaneSelection, PeekJobs
from tidemill.core.ledger import ClaimDenial, HeldReservation
from tidemill.core.needs import lane_key
from tidemill.core.states import FINAL, State
from tidemill.engine.lanes import open_lane
from tidemill.engine.ledger import PoolLedger
from tidemill.engine.queue import Queue
from tidemill.engine.records import KnownWorker, Records, move_job, unknown_worker


class PoolAdmission:
    """Decides during a claim which calls of one queue may start.

    - `taken`: the reservations of each call, by the id of the call's first job.
    - `calls`: for each job of a batch, the id of the first job of its call."""

    def __init__(self, pool_ledger: PoolLedger, queue: Queue) -> None:
        self._ledger, self._queue = pool_ledger, queue
        self._started: Counter[str] = Counter()
        self._denials: dict[str, ClaimDenial] = {}
        self._batch_waits: dict[str, BatchWait] = {}
        self.taken: dict[str, tuple[HeldReservation, ...]] = {}
        self.calls: dict[str, str] = {}
        self._called_lanes: set[str] = set()

    def admits(self, job: Job, ahead: PeekJobs[Job], most: int) -> int | BlockScope:
        """Starts a call with the first job of a lane, if its key and its pools allow it. Returns how many
        jobs start in it. If none can start, returns whether only the lane or its whole group must wait.

        `ahead` reads the next jobs of the lane. At most `most` jobs may start."""
        most = int(min(most, self._queue.room_in(job.key) - self._started[job.key]))
        if most <= 0:
            return BlockScope.LANE_BLOCKED
        answer = self._start(job, ahead, most)
        if isinstance(answer, BatchWait):
            self._batch_waits[job.lane] = answer
            return BlockScope.LANE_BLOCKED
        if isinstance(answer, ClaimDenial):
            gate = answer.gate(job.lane)
            at = self._queue.lanes.group(job.lane) if gate is BlockScope.GROUP_BLOCKED else job.lane
            self._denials[at] = answer
            return gate
        self.taken[job.id] = answer.reserved
        self._started[job.key] += answer.jobs
        return answer.jobs

    def _start(self, job: Job, ahead: PeekJobs[Job], most: int) -> BatchWait | ClaimDenial | BatchStart:
        if job.batching is not None:
            return self._start_batch(job.batching, ahead(job.batching.max_items), most)
        lane = (self._queue.name, job.lane)
        answer = late_calls.reserve_for_job(self._ledger, job, self._ledger.now(), lane)
        return answer if isinstance(answer, ClaimDenial) else BatchStart(1, answer)

    def _start_batch(
        self, rule: BatchPolicy, waiting: Sequence[Job], most: int
    ) -> BatchWait | ClaimDenial | BatchStart:
        """Starts a batch call with the first of the `waiting` jobs, or returns why no call can start now (B1
        to B4). The call has at most `most` jobs."""
        lane, now = waiting[0].lane, self._ledger.now()
        answer = batch_start.start_batch(
            self._ledger,
            rule,
            waiting,
            most,
            lambda job: transitions.is_expired(job, now.wall),
            None if lane in self._called_lanes else self._queue.lanes.batch_due_at(lane),
            now,
            (self._queue.name, lane),
        )
        if isinstance(answer, BatchStart):
            self._called_lanes.add(lane)
            self.calls.update((job.id, waiting[0].id) for job in waiting[: answer.jobs])
        return answer

    def block_lanes(self, selection: LaneSelection[Job]) -> None:
        """Blocks the lanes and groups to which a pool denied units, and the lanes whose batches wait for more
        jobs (P12, B2)."""
        for name in selection.blocked_lanes:
            if name in self._batch_waits:
                batch_wait = self._batch_waits[name]
                self._queue.lanes.block(
                    name, batch_wait.lane_block(self._ledger.now().boot), batch_wait.missing_jobs
                )
            elif name in self._denials:
                self._queue.lanes.block(name, self._make_block(name, 0))
        for group, priority in selection.blocked_groups.items():
            self._queue.lanes.blocked_groups[group] = self._make_block(group, priority)

    def _make_block(self, name: str, priority: int) -> ledger.LaneBlock:
        denial = self._denials[name]
        override_end = self._ledger.override_ends((denial.need.pool, denial.need.key))
        return ledger.make_block(denial, priority, override_end, self._ledger.now())


UNLIMITED = 2**62


class ClaimRun:
    """One claim in progress. It gets its fence and claim id with the first job."""

    def __init__(self, records: Records, request: ClaimRequest) -> None:
        self.records, self.request = records, request
        self.now, self.boot = records.clock.wall(), records.clock.boot()
        self.lease = self.boot + request.lease
        self.fence = self.claim = 0
        self.jobs: list[ClaimedJob] = []
        self.calls = 0

    @property
    def left(self) -> int:
        """How many more calls may be claimed. A batch call of several jobs counts once."""
        return self.request.limit - self.calls

    def take(
        self, job: Job, reserved: Sequence[HeldReservation] = (), call: str = "", *, company: bool = False
    ) -> None:
        """Claims one job with the units `reserved` for its call. `call` is the id of the first job of its
        batch call. `company` is True if other jobs share the call."""
        self.calls += call in {"", job.id}
        if not self.jobs:
            self.fence, self.claim = self.records.next_fence(), self.records.entropy.claim_id()
        claimed = transitions.claim_job(
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
        move_job(self.records, claimed, self.now)
        if reserved:
            self.records.pool_ledger.add_reservations((job.id, self.fence, self.claim), reserved)
        self.jobs.append(transitions.claimed_job(claimed))


def claim(records: Records, request: ClaimRequest) -> ClaimResult:
    """Claims jobs for a worker and returns them (J30 to J39)."""
    records.forget_empty_lanes()
    records.pool_ledger.take_pool_changes()
    if _is_repeated(records, request):
        return _repeated_claim(records, request)
    run = ClaimRun(records, request)
    if request.ids is not None:
        return _claim_by_ids(run, request.ids)
    shares = [(records.queues[s.queue], s.jobs) for s in request.shares if s.queue in records.queues]
    queues = [queue for queue, _ in shares]
    for queue, jobs in shares:
        queue.end_override(run.now)
        _promote_due(records, queue, run.now)
        queue.lanes.wake(run.boot)
        _take_from(run, queue, jobs)
    for queue in queues:
        _take_from(run, queue, run.left)
    more = any(_has_open_jobs(queue, run.now, run.boot) for queue in queues)
    return ClaimResult(
        jobs=run.jobs,
        more=more,
        next_due=next_due(queues, run.now, run.boot),
        batch_waits=any(queue.lanes.batch_waits and not queue.closed(run.now) for queue in queues),
        pool_changes=records.pool_ledger.take_pool_changes(),
        waited=0.0,
    )


def _is_repeated(records: Records, request: ClaimRequest) -> bool:
    """True if the worker sent this claim request before. Otherwise stores the number of the request."""
    known = records.workers.get(request.worker)
    if known is not None and request.number <= known.number:
        return True
    if known is None:
        known = KnownWorker(
            unknown_worker(request.worker, records.clock.wall()), records.clock.boot() + request.lease
        )
    records.workers[request.worker] = replace(known, number=request.number)
    return False


def _repeated_claim(records: Records, request: ClaimRequest) -> ClaimResult:
    """Returns the jobs that the worker still holds from a claim request that it sent before (J33). Jobs of
    one call stay together. `more` and `next_due` are not computed."""
    held = (records.jobs[id_] for id_ in records.running.of(request.worker))
    jobs = sorted((job for job in held if job.number == request.number), key=lambda job: job.seq)
    return ClaimResult(jobs=[transitions.claimed_job(job) for job in group_by_call(jobs)])


def _promote_due(records: Records, queue: Queue, now: float) -> None:
    """Makes due scheduled jobs of a queue ready, at most MAX_PROMOTED_PER_CLAIM (J30)."""
    due = list(islice(takewhile(lambda key: key[0] <= now, queue.scheduled.walk()), MAX_PROMOTED_PER_CLAIM))
    for key in due:
        move_job(records, transitions.promote_job(records.jobs[key[-1]]), now)


def _take_from(run: ClaimRun, queue: Queue, share: int) -> None:
    """Claims up to `share` calls from the open lanes of a queue. Cancels expired jobs. Moves a job that is
    larger than its pool's limit into a separate lane."""
    limit = int(min(share, run.left, queue.room()))
    if limit <= 0 or queue.closed(run.now):
        return
    admission = PoolAdmission(run.records.pool_ledger, queue) if queue.lanes.is_pooled else None
    selection = _select(run, queue, limit, admission)
    run.records.picks = selection.picks
    sizes = Counter(admission.calls.values()) if admission is not None else Counter[str]()
    for job in selection.jobs:
        if admission is None:
            run.take(job)
        else:
            call = admission.calls.get(job.id, "")
            run.take(job, admission.taken.get(job.id, ()), call, company=sizes[call] > 1)
    for name, served in selection.served.items():
        queue.lanes.serve(name, served)
    for job in selection.passed:
        move_job(run.records, transitions.expire_job(job, run.now), run.now)
    for job in selection.aside:
        move_job(run.records, transitions.set_aside(job), run.now)
    if admission is not None:
        admission.block_lanes(selection)
    queue.lanes.forget_empty()


def _select(
    run: ClaimRun, queue: Queue, limit: int, admission: PoolAdmission | None
) -> lane_selection.LaneSelection[Job]:
    """Selects the jobs to claim from a queue, at most `limit` calls. It examines `limit` lanes of each group,
    and one more for each lane that cannot start a call."""
    records = run.records
    offered = {group: _open_lanes(queue, group) for group in _open_groups(queue, run.boot)}

    def fetch(name: str, offset: int, count: int) -> list[Job]:
        return [records.jobs[id_] for id_ in queue.lanes.ids(name, offset, count)]

    def passes(job: Job) -> bool:
        return transitions.is_expired(job, run.now)

    return lane_selection.select_jobs(
        [lane for group in offered.values() for lane in islice(group, limit)],
        limit,
        records.picks,
        fetch,
        passes,
        admits=None if admission is None else admission.admits,
        following=lambda group: next(offered[group], None),
        most=int(min(queue.room(), UNLIMITED)),
    )


def _open_groups(queue: Queue, boot: float) -> list[str]:
    return queue.lanes.open_groups(boot, queue.room_in)


def _open_lanes(queue: Queue, group: str) -> Iterator[lane_selection.OpenLane]:
    for order_key in queue.lanes.in_order(group):
        room = int(min(queue.room_in(lane_key(order_key[3])), UNLIMITED))
        if room > 0:
            yield open_lane(order_key, room, group)


def _has_open_jobs(queue: Queue, now: float, boot: float) -> bool:
    if queue.closed(now) or queue.room() <= 0:
        return False
    return any(next(_open_lanes(queue, group), None) is not None for group in _open_groups(queue, boot))


def next_due(queues: Iterable[Queue], now: float, boot: float) -> float | None:
    """Returns the seconds until a claim from these queues may find new jobs; None if nothing is expected
    (J38, P15). Returns 0 if more jobs are due than one claim promotes."""
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


def _claim_by_ids(run: ClaimRun, ids: tuple[str, ...]) -> ClaimResult:
    """Claims the jobs with the given ids (J37, B8). Jobs that ended or do not exist are listed as missing.
    Jobs that cannot start now are listed as blocked."""
    blocked: list[str] = []
    missing: list[str] = []
    for id_ in dict.fromkeys(ids):
        job = run.records.jobs.get(id_)
        if job is not None and _is_startable(job, run.now):
            job = _promote_or_expire(run, job)
        if job is None or job.state in FINAL:
            missing.append(id_)
        elif _may_start(run, job) and (reserved := _reserve_pools(run, job)) is not None:
            run.take(job, reserved, "" if job.batching is None else job.id)
        else:
            blocked.append(id_)
    return ClaimResult(
        jobs=run.jobs,
        blocked=tuple(blocked),
        missing=tuple(missing),
        pool_changes=run.records.pool_ledger.take_pool_changes(),
        waited=0.0,
    )


def _is_startable(job: Job, now: float) -> bool:
    return job.state is State.READY or (job.state is State.SCHEDULED and job.due <= now)


def _promote_or_expire(run: ClaimRun, job: Job) -> Job:
    """Returns the job after the necessary change: cancelled if it has expired, ready if it was scheduled,
    otherwise unchanged."""
    if transitions.is_expired(job, run.now):
        job = transitions.expire_job(job, run.now)
    elif job.state is State.SCHEDULED:
        job = transitions.promote_job(job)
    else:
        return job
    move_job(run.records, job, run.now)
    return job


def _may_start(run: ClaimRun, job: Job) -> bool:
    queue = run.records.queues[job.queue]
    if job.state is not State.READY or queue.closed(run.now):
        return False
    return min(run.left, queue.room(), queue.room_in(job.key)) > 0


def _reserve_pools(run: ClaimRun, job: Job) -> Sequence[HeldReservation] | None:
    """Reserves the units that the job needs. Returns the reservations; None if a pool denies."""
    pool_ledger = run.records.pool_ledger
    answer = late_calls.reserve_for_job(pool_ledger, job, pool_ledger.now())
    return None if isinstance(answer, ClaimDenial) else answer
