"""Leases of jobs and of leaders. A heartbeat renews the leases of a worker's jobs. A leader's lease gives one
worker a duty (a kind of maintenance) for some time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from tidemill.contract.coordination import Leadership
from tidemill.contract.jobs import ClockReading, ExtendResult, ReclaimResult
from tidemill.contract.reader import LOG_LINES_PER_ATTEMPT, LogLine, WorkerInfo
from tidemill.core import transitions
from tidemill.core.claims import Heartbeat, HeldJob, LogEntry, is_current
from tidemill.core.documents import ADVANCED_KINDS, DocumentKind
from tidemill.core.jobs import Job
from tidemill.core.states import State
from tidemill.engine.records import KnownWorker, LeaderLease, Records, move_job, record_attempt


def extend(records: Records, heartbeat: Heartbeat) -> ExtendResult:
    """Applies a heartbeat: renews leases and stores progress, notes and log lines (J50 to J53). Returns the
    jobs that the worker lost and the jobs that became ready."""
    lease = records.clock.boot() + heartbeat.lease
    lost: list[str] = []
    for held in heartbeat.held:
        job = records.jobs.get(held.job)
        if job is None or not is_current(job, held.fence, held.claim):
            lost.append(held.job)
        else:
            _renew_lease(records, job, held, lease)
    returned = _return_unlisted(records, heartbeat)
    _record_worker(records, heartbeat, lease)
    return ExtendResult(tuple(lost), returned)


def _renew_lease(records: Records, job: Job, held: HeldJob, lease: float) -> None:
    """Sets the lease of a job to the boot-clock time `lease`, and stores its progress, note and log lines.
    Progress and note stay unchanged if the heartbeat sends none."""
    after = replace(
        job,
        lease=lease if held.renew else job.lease,
        progress=job.progress if held.progress is None else held.progress,
        note=job.note if held.note is None else held.note,
    )
    records.put(after)
    if held.log:
        _write_log(records, job, held.log)


def _write_log(records: Records, job: Job, lines: tuple[LogEntry, ...]) -> None:
    now, attempt = records.clock.wall(), job.attempts + 1
    of_job = records.logs.setdefault(job.id, {})
    buffer = of_job.setdefault((job.generation, attempt), deque(maxlen=LOG_LINES_PER_ATTEMPT))
    buffer.extend(LogLine(job.generation, attempt, now - entry.age, entry.line) for entry in lines)


def _return_unlisted(records: Records, heartbeat: Heartbeat) -> tuple[str, ...]:
    """Makes running jobs of the worker ready if the heartbeat does not list them (J52). Returns the ids of
    these jobs. Skips jobs of claims whose reply has not reached the worker yet."""
    listed = {(held.job, held.fence, held.claim) for held in heartbeat.held}
    mine = [records.jobs[id_] for id_ in records.running.of(heartbeat.worker)]
    unlisted = [
        job
        for job in sorted(mine, key=lambda job: job.seq)
        if job.number <= heartbeat.received and (job.id, job.fence, job.claim) not in listed
    ]
    for job in unlisted:
        move_job(records, transitions.return_unrun_job(job), records.clock.wall())
        records.pool_ledger.recount_units((job.id, job.fence, job.claim))
    return tuple(job.id for job in unlisted)


def _record_worker(records: Records, heartbeat: Heartbeat, lease: float) -> None:
    info = WorkerInfo(
        id=heartbeat.worker,
        host=heartbeat.host,
        pid=heartbeat.pid,
        queues=heartbeat.queues,
        concurrency=heartbeat.concurrency,
        holds=0,  # counted when it is read
        seen=records.clock.wall(),
    )
    known = records.workers.get(heartbeat.worker)
    records.workers[heartbeat.worker] = KnownWorker(info, lease, 0 if known is None else known.number)


def reclaim(records: Records, dead: Sequence[str]) -> ReclaimResult:
    """Takes back jobs whose lease has expired, and all jobs of the workers in `dead` (J60 to J63). Returns
    the ids of these jobs, by sequence number."""
    boot, workers = records.clock.boot(), frozenset(dead)
    over = records.overdue(boot, workers)
    ready: list[str] = []
    poison: list[str] = []
    for job in sorted(over, key=lambda job: job.seq):
        after = _take_back(records, job, died=job.worker in workers)
        (ready if after.state is State.READY else poison).append(job.id)
    for claim in records.pool_ledger.abandoned_claims(boot, workers):
        records.pool_ledger.recount_units(claim)
    for worker in sorted(workers):
        if worker in records.workers:
            records.workers[worker] = replace(records.workers[worker], lease=0.0)
    return ReclaimResult(tuple(ready), tuple(poison))


def handle_reboot(records: Records) -> None:
    """Ends every lease if the machine was restarted since the last call (J63). The store calls this function
    when it is opened."""
    if records.boot_id == records.clock.boot_id:
        return
    records.boot_id = records.clock.boot_id
    for id_ in list(records.running.every()):
        records.put(replace(records.jobs[id_], lease=0.0))
    for worker, known in records.workers.items():
        records.workers[worker] = replace(known, lease=0.0)
    for duty, leader in records.leaders.items():
        records.leaders[duty] = replace(leader, lease=0.0)
    records.pool_ledger.handle_reboot()
    for queue in records.queues.values():
        queue.lanes.reopen_all()


def _take_back(records: Records, job: Job, *, died: bool) -> Job:
    now = records.clock.wall()
    after = transitions.reclaim_job(job, records.queues[job.queue].settings, now, died=died)
    record_attempt(records, job, after, "reclaimed", now)
    records.queues[job.queue].count("reclaimed", now)
    move_job(records, after, now)
    records.pool_ledger.recount_units((job.id, job.fence, job.claim))
    return after


def lead(records: Records, duties: Sequence[str], worker: str, lease: float) -> Leadership:
    """Makes a worker the leader of each duty (kind of maintenance) that no other worker leads, for `lease`
    seconds (C1, C3)."""
    wall, boot, leaders = records.clock.wall(), records.clock.boot(), records.leaders
    others = [duty for duty in duties if _is_led_by_another(leaders.get(duty), worker, boot)]
    leads = tuple(duty for duty in duties if duty not in others)
    for duty in leads:
        leaders[duty] = LeaderLease(worker, boot + lease)
    return Leadership(
        leads=leads,
        free_in=min((leaders[duty].lease - boot for duty in others), default=None),
        clock=ClockReading(wall, boot),
        arrivals=bool(records.arrivals),
        dues={kind: _seconds_until_due(records, kind, wall) for kind in ADVANCED_KINDS},
    )


def resign(records: Records, duties: Sequence[str], worker: str) -> None:
    """Ends the leases of a leading worker on `duties` (kinds of maintenance), so that another worker can lead
    at once (C2)."""
    for duty in duties:
        leader = records.leaders.get(duty)
        if leader is not None and leader.worker == worker:
            del records.leaders[duty]


def _is_led_by_another(leader: LeaderLease | None, worker: str, boot: float) -> bool:
    return leader is not None and leader.worker != worker and leader.lease > boot


def _seconds_until_due(records: Records, kind: DocumentKind, now: float) -> float | None:
    if any(
        mark.document[0] is kind and mark.document in records.documents
        for mark in records.work_marks.values()
    ):
        return 0.0
    first = records.dues[kind].at(0)
    return None if first is None else max(0.0, first[0] - now)
