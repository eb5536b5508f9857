"""extend: a worker lists what it holds; leases are renewed, news is kept, lost claims go back."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import apsw

from tidemill.contract.jobs import Extended
from tidemill.core import transitions
from tidemill.core.claims import Heartbeat, Held
from tidemill.stores.sqlite import booking
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("extend")


class Standing(NamedTuple):
    seq: int
    generation: int
    attempts: int


def extend(transaction: Transaction, beat: Heartbeat) -> Extended:
    lease = transaction.boot + beat.lease
    transaction.execute(
        SQL.beat,
        (beat.worker, lease, transaction.now, beat.host, beat.pid, text_of(beat.queues), beat.concurrency),
    )
    standings = _standings(transaction, beat)
    current = [
        (standings[held.job, held.fence, held.claim], held) for held in beat.held if _key(held) in standings
    ]
    renewed = array("q", [standing.seq for standing, held in current if held.renew])
    if renewed:
        transaction.execute(SQL.renew, (lease, apsw.carray(renewed)))
    for standing, held in current:
        _keep_news(transaction, standing, held)
    lost = tuple(held.job for held in beat.held if _key(held) not in standings)
    return Extended(lost, _return_unlisted(transaction, beat, {held.job for _, held in current}))


def _key(held: Held) -> tuple[str, int, int]:
    return held.job, held.fence, held.claim


def _standings(transaction: Transaction, beat: Heartbeat) -> dict[tuple[str, int, int], Standing]:
    """The running jobs a beat lists, by their current claim."""
    if not beat.held:
        return {}
    ids = apsw.carray(tuple(held.job for held in beat.held))
    return {
        (name, fence, claim): Standing(seq, generation, attempts)
        for name, seq, generation, attempts, fence, claim in transaction.execute(SQL.standing, (ids,))
    }


def _return_unlisted(transaction: Transaction, beat: Heartbeat, listed: set[str]) -> tuple[str, ...]:
    running = transaction.jobs(SQL.unlisted, (beat.worker, beat.received))
    unlisted = [job for job in running if job.id not in listed]
    booking.count_anew(transaction, unlisted)
    for job in unlisted:
        transaction.save(job, transitions.returned(job))
    return tuple(job.id for job in unlisted)


def _keep_news(transaction: Transaction, job: Standing, held: Held) -> None:
    if held.progress is not None or held.note is not None:
        transaction.execute(SQL.report, (held.progress, held.note, job.seq))
    if held.log:
        attempt = (job.seq, job.generation, job.attempts + 1)
        for said in held.log:
            transaction.execute(SQL.log, (*attempt, *attempt, transaction.now - said.age, said.line))
        transaction.execute(SQL.forget_lines, (*attempt, *attempt))
