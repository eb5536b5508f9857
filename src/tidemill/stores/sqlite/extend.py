"""extend: a worker lists what it holds; leases are renewed, news is kept, lost claims go back."""

from __future__ import annotations

from array import array

import apsw

from tidemill.contract.jobs import Extended
from tidemill.core import transitions
from tidemill.core.claims import Heartbeat, Held, is_current
from tidemill.core.job import Job
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("extend")


def extend(step: Transaction, beat: Heartbeat) -> Extended:
    lease = step.boot + beat.lease
    step.execute(
        SQL.beat,
        (beat.worker, lease, step.now, beat.host, beat.pid, text_of(beat.queues), beat.concurrency),
    )
    jobs = step.by_id(held.job for held in beat.held)
    current = [
        (jobs[held.job], held)
        for held in beat.held
        if held.job in jobs and is_current(jobs[held.job], held.fence, held.claim)
    ]
    renewed = array("q", [job.seq for job, held in current if held.renew])
    if renewed:
        step.execute(SQL.renew, (lease, apsw.carray(renewed)))
    for job, held in current:
        _keep_news(step, job, held)
    listed = {held.job for _, held in current}
    held_now = {(held.job, held.fence, held.claim) for _, held in current}
    lost = tuple(h.job for h in beat.held if (h.job, h.fence, h.claim) not in held_now)
    return Extended(lost, _return_unlisted(step, beat, listed))


def _return_unlisted(step: Transaction, beat: Heartbeat, listed: set[str]) -> tuple[str, ...]:
    running = step.jobs(SQL.unlisted, (beat.worker, beat.received))
    unlisted = [job for job in running if job.id not in listed]
    for job in unlisted:
        step.save(job, transitions.returned(job))
    return tuple(job.id for job in unlisted)


def _keep_news(step: Transaction, job: Job, held: Held) -> None:
    if held.progress is not None or held.note is not None:
        step.execute(SQL.report, (held.progress, held.note, job.seq))
    if held.log:
        attempt = (job.seq, job.generation, job.attempts + 1)
        for line in held.log:
            step.execute(SQL.log, (*attempt, *attempt, step.now, line))
        step.execute(SQL.forget_lines, (*attempt, *attempt))
