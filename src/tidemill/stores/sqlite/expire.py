"""Pending jobs past their expiry end as cancelled."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.core import transitions
from tidemill.stores.sqlite.transaction import Transaction


def expire(transaction: Transaction, ids: Sequence[str]) -> None:
    for name in ids:
        # Read one by one: a successor released by the one before it has changed.
        job = transaction.by_id([name])[name]
        transaction.save(job, transitions.expired(job, transaction.now))
        transaction.release_successors([name])
