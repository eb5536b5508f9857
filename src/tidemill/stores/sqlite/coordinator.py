"""Who does the chores."""

from __future__ import annotations

from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("coordinator")


def lead(step: Transaction, duty: str, worker: str, lease: float) -> bool:
    asked = (duty, worker, step.boot + lease, worker, step.boot)
    return step.execute(SQL.lead, asked).fetchone() is not None


def resign(step: Transaction, duty: str, worker: str) -> None:
    step.execute(SQL.resign, (duty, worker))
