"""Pending jobs past their expiry end as cancelled."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.core import transitions
from tidemill.stores.sqlite.transaction import Transaction


def expire(step: Transaction, ids: Sequence[str]) -> None:
    for job in step.by_id(ids).values():
        step.save(job, transitions.expired(job, step.now))
    step.release_successors(ids)
