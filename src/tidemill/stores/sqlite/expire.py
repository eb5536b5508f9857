"""Pending jobs past their expiry end as cancelled."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.core import transitions
from tidemill.stores.sqlite.transaction import Transaction


def expire(step: Transaction, ids: Sequence[str]) -> None:
    for name in ids:
        # Read one by one: a successor released by the one before it has changed.
        job = step.by_id([name])[name]
        step.save(job, transitions.expired(job, step.now))
        step.release_successors([name])
