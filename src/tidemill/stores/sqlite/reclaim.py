"""reclaim: running jobs whose lease is over, or whose worker is known to be dead."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.contract.jobs import Reclaimed
from tidemill.core import transitions
from tidemill.core.states import State
from tidemill.stores.sqlite import booking
from tidemill.stores.sqlite.ledger import ACCOUNTS
from tidemill.stores.sqlite.rows import text_of
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("reclaim")


def reclaim(transaction: Transaction, dead: Sequence[str]) -> Reclaimed:
    names = text_of(list(dead))
    ready: list[str] = []
    poison: list[str] = []
    silent = transaction.jobs(SQL.silent, (transaction.boot, names))
    booking.count_anew(transaction, silent)
    booking.end_left(transaction, dead)
    for job in silent:
        settings, died = transaction.settings(job.queue), job.worker in dead
        after = transitions.reclaimed(job, settings, transaction.now, died=died)
        transaction.record_attempt(job, "reclaimed", after.error)
        transaction.remark(job.queue, "reclaimed", 1)
        transaction.save(job, after)
        (ready if after.state is State.READY else poison).append(job.id)
    transaction.release_successors(poison)
    transaction.execute(SQL.forget_dead, (names,))
    return Reclaimed(tuple(ready), tuple(poison))


def notice_boot(transaction: Transaction, boot_id: str) -> None:
    """The boot clock started anew: no lease of the last boot can be compared with it."""
    if transaction.execute(SQL.boot).get == boot_id:
        return
    transaction.execute(SQL.new_boot)
    transaction.execute(SQL.set_boot, (boot_id,))
    for pool, key in transaction.execute(ACCOUNTS.all).fetchall():
        place = (pool, key or None)
        if known := transaction.ledger.load(place):
            transaction.ledger.save(place, known[1])  # what is lost with a boot is lost now
