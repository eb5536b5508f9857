"""Leases of claims and of leadership: implements extend, reclaim, lead and resign. A reboot ends all
leases."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import apsw

from tidemill.contract.coordination import Leadership
from tidemill.contract.jobs import ClockReading, ExtendResult, ReclaimResult
from tidemill.core import transitions
from tidemill.core.claims import Heartbeat, HeldJob
from tidemill.core.documents import ADVANCED_KINDS
from tidemill.core.states import State
from tidemill.stores.sqlite import settle
from tidemill.stores.sqlite.ledger import ACCOUNTS
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load_statements
from tidemill.stores.sqlite.transaction import SqliteTransaction

HEARTBEAT_SQL = load_statements("extend")


class HeartbeatJob(NamedTuple):
    seq: int
    generation: int
    attempts: int


def extend(transaction: SqliteTransaction, heartbeat: Heartbeat) -> ExtendResult:
    lease = transaction.boot + heartbeat.lease
    transaction.execute(
        HEARTBEAT_SQL.save_worker,
        (
            heartbeat.worker,
            lease,
            transaction.now,
            heartbeat.host,
            heartbeat.pid,
            text_of(heartbeat.queues),
            heartbeat.concurrency,
        ),
    )
    running = _running_jobs(transaction, heartbeat)
    current = [
        (running[held.job, held.fence, held.claim], held)
        for held in heartbeat.held
        if _claim_of(held) in running
    ]
    renewed = array("q", [job.seq for job, held in current if held.renew])
    if renewed:
        transaction.execute(HEARTBEAT_SQL.renew, (lease, apsw.carray(renewed)))
    for job, held in current:
        _save_report(transaction, job, held)
    lost = tuple(held.job for held in heartbeat.held if _claim_of(held) not in running)
    return ExtendResult(lost, _return_unlisted(transaction, heartbeat, {held.job for _, held in current}))


def _claim_of(held: HeldJob) -> tuple[str, int, int]:
    return held.job, held.fence, held.claim


def _running_jobs(
    transaction: SqliteTransaction, heartbeat: Heartbeat
) -> dict[tuple[str, int, int], HeartbeatJob]:
    """Returns those jobs of the heartbeat that are still running. A dict key is (job id, fence, claim id)."""
    if not heartbeat.held:
        return {}
    ids = apsw.carray(tuple(held.job for held in heartbeat.held))
    return {
        (name, fence, claim): HeartbeatJob(seq, generation, attempts)
        for name, seq, generation, attempts, fence, claim in transaction.execute(
            HEARTBEAT_SQL.current_claims, (ids,)
        )
    }


def _return_unlisted(
    transaction: SqliteTransaction, heartbeat: Heartbeat, listed: set[str]
) -> tuple[str, ...]:
    running = transaction.jobs(HEARTBEAT_SQL.unlisted, (heartbeat.worker, heartbeat.received))
    unlisted = [job for job in running if job.id not in listed]
    settle.recount_units(transaction, unlisted)
    for job in unlisted:
        transaction.save(job, transitions.return_unrun_job(job))
    return tuple(job.id for job in unlisted)


def _save_report(transaction: SqliteTransaction, job: HeartbeatJob, held: HeldJob) -> None:
    if held.progress is not None or held.note is not None:
        transaction.execute(HEARTBEAT_SQL.report, (held.progress, held.note, job.seq))
    if held.log:
        attempt = (job.seq, job.generation, job.attempts + 1)
        for entry in held.log:
            transaction.execute(
                HEARTBEAT_SQL.log, (*attempt, *attempt, transaction.now - entry.age, entry.line)
            )
        transaction.execute(HEARTBEAT_SQL.delete_old_lines, (*attempt, *attempt))


RECLAIM_SQL = load_statements("reclaim")


def reclaim(transaction: SqliteTransaction, dead: Sequence[str]) -> ReclaimResult:
    names = text_of(list(dead))
    ready: list[str] = []
    poison: list[str] = []
    overdue = transaction.jobs(RECLAIM_SQL.overdue, (transaction.boot, names))
    settle.recount_units(transaction, overdue)
    settle.end_abandoned_units(transaction, dead)
    for job in overdue:
        settings, died = transaction.settings(job.queue), job.worker in dead
        after = transitions.reclaim_job(job, settings, transaction.now, died=died)
        transaction.record_attempt(job, "reclaimed", after.error)
        transaction.count_minute(job.queue, "reclaimed", 1)
        transaction.save(job, after)
        (ready if after.state is State.READY else poison).append(job.id)
    transaction.release_successors(poison)
    transaction.execute(RECLAIM_SQL.end_workers, (names,))
    return ReclaimResult(tuple(ready), tuple(poison))


def end_previous_boot(transaction: SqliteTransaction, boot_id: str) -> None:
    """Ends all leases if the machine was rebooted since the last transaction, because the boot clock
    restarted. Also removes values of accounts that a reboot makes invalid. `boot_id`: the id of the current
    boot."""
    if transaction.execute(RECLAIM_SQL.boot).get == boot_id:
        return
    transaction.execute(RECLAIM_SQL.end_leases)
    transaction.execute(RECLAIM_SQL.set_boot, (boot_id,))
    for pool, key in transaction.execute(ACCOUNTS.all).fetchall():
        account = (pool, key or None)
        if known := transaction.ledger.load(account):
            transaction.ledger.save(account, known[1])  # drops the state that does not survive a reboot


LEADERSHIP_SQL = load_statements("leadership")


def lead(transaction: SqliteTransaction, duties: Sequence[str], worker: str, lease: float) -> Leadership:
    """Makes a worker the leader of each duty (kind of maintenance) that no other worker leads, for `lease`
    seconds (C1). Renews the duties that the worker leads already. The result also says which work waits
    (C3)."""
    now, boot = transaction.now, transaction.boot
    leads = tuple(
        duty
        for duty in duties
        if transaction.execute(LEADERSHIP_SQL.lead, (duty, worker, boot + lease, worker, boot)).fetchone()
        is not None
    )
    free_at = (
        transaction.execute(LEADERSHIP_SQL.free_at, (apsw.carray(tuple(duties)), worker)).get
        if duties
        else None
    )
    return Leadership(
        leads=leads,
        free_in=None if free_at is None else free_at - boot,
        clock=ClockReading(now, boot),
        arrivals=bool(transaction.execute(LEADERSHIP_SQL.arrivals).get),
        dues={
            kind: transaction.execute(LEADERSHIP_SQL.due, (kind.value, now)).get for kind in ADVANCED_KINDS
        },
    )


def resign(transaction: SqliteTransaction, duties: Sequence[str], worker: str) -> None:
    """Gives up the leadership of `duties`, so that another worker can lead at once (C2). Duties of other
    workers stay unchanged."""
    for duty in duties:
        transaction.execute(LEADERSHIP_SQL.resign, (duty, worker))
