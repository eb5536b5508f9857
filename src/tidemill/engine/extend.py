"""extend: a worker says what it holds."""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from tidemill.contract.jobs import Extended
from tidemill.contract.reader import LOG_LINES, LogLine, WorkerInfo
from tidemill.core import transitions
from tidemill.core.claims import Heartbeat, Held, Said, is_current
from tidemill.core.job import Job
from tidemill.engine.moves import move
from tidemill.engine.records import KnownWorker, Records


def extend(records: Records, heartbeat: Heartbeat) -> Extended:
    """J50 to J53. `lost` in the order listed, `returned` by seq."""
    lease = records.clock.boot() + heartbeat.lease
    lost: list[str] = []
    for held in heartbeat.held:
        job = records.jobs.get(held.job)
        if job is None or not is_current(job, held.fence, held.claim):
            lost.append(held.job)
        else:
            _renew(records, job, held, lease)
    returned = _return_unlisted(records, heartbeat)
    _meet(records, heartbeat, lease)
    return Extended(tuple(lost), returned)


def _renew(records: Records, job: Job, held: Held, lease: float) -> None:
    """News that is not given leaves the old standing."""
    after = replace(
        job,
        lease=lease if held.renew else job.lease,
        progress=job.progress if held.progress is None else held.progress,
        note=job.note if held.note is None else held.note,
    )
    records.put(after)
    if held.log:
        _write_log(records, job, held.log)


def _write_log(records: Records, job: Job, lines: tuple[Said, ...]) -> None:
    now, attempt = records.clock.wall(), job.attempts + 1
    of_job = records.logs.setdefault(job.id, {})
    kept = of_job.setdefault((job.generation, attempt), deque(maxlen=LOG_LINES))
    kept.extend(LogLine(job.generation, attempt, now - said.age, said.line) for said in lines)


def _return_unlisted(records: Records, heartbeat: Heartbeat) -> tuple[str, ...]:
    """J52. Listed means by its current claim: an older claim of the same job does not hold it."""
    listed = {(held.job, held.fence, held.claim) for held in heartbeat.held}
    mine = [records.jobs[id_] for id_ in records.running.of(heartbeat.worker)]
    unlisted = [
        job
        for job in sorted(mine, key=lambda job: job.seq)
        if job.number <= heartbeat.received and (job.id, job.fence, job.claim) not in listed
    ]
    for job in unlisted:
        move(records, transitions.returned(job), records.clock.wall())
        records.books.count_anew((job.id, job.fence, job.claim))
    return tuple(job.id for job in unlisted)


def _meet(records: Records, heartbeat: Heartbeat, lease: float) -> None:
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
