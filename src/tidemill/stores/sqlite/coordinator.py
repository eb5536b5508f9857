"""Who does the chores, and whether there is anything to do."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from tidemill.contract.coordinator import Led
from tidemill.contract.jobs import Reading
from tidemill.core.courses import ADVANCING
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("coordinator")


def lead(transaction: Transaction, duties: Sequence[str], worker: str, lease: float) -> Led:
    """C1, C3."""
    now, boot = transaction.now, transaction.boot
    leads = tuple(
        duty
        for duty in duties
        if transaction.execute(SQL.lead, (duty, worker, boot + lease, worker, boot)).fetchone() is not None
    )
    free_at = transaction.execute(SQL.free_at, (apsw.carray(tuple(duties)), worker)).get if duties else None
    return Led(
        leads=leads,
        free_in=None if free_at is None else free_at - boot,
        clock=Reading(now, boot),
        arrivals=bool(transaction.execute(SQL.arrivals).get),
        dues={kind: transaction.execute(SQL.due, (kind.value, now)).get for kind in ADVANCING},
    )


def resign(transaction: Transaction, duties: Sequence[str], worker: str) -> None:
    """C2."""
    for duty in duties:
        transaction.execute(SQL.resign, (duty, worker))
