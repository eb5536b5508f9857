"""Who does the chores."""

from __future__ import annotations

from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("coordinator")


def lead(transaction: Transaction, duty: str, worker: str, lease: float) -> bool:
    asked = (duty, worker, transaction.boot + lease, worker, transaction.boot)
    return transaction.execute(SQL.lead, asked).fetchone() is not None


def resign(transaction: Transaction, duty: str, worker: str) -> None:
    transaction.execute(SQL.resign, (duty, worker))
