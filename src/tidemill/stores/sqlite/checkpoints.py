"""Checkpoints: what a job's steps have begun and brought home."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemill.core import checkpoints as core
from tidemill.core.checkpoints import Beginning, Checkpoint, OnUnknown, Step, Try
from tidemill.core.outcomes import Answer
from tidemill.stores.sqlite.statements import load
from tidemill.stores.sqlite.transaction import Transaction

SQL = load("checkpoints")


class Standing(msgspec.Struct, frozen=True):
    """As much of a job as its fence check needs."""

    seq: int
    running: int
    fence: int
    claim: int

    def is_current(self, by: Try) -> bool:
        return bool(self.running) and (self.fence, self.claim) == (by.fence, by.claim)


def begin(transaction: Transaction, job: str, by: Try, step: Step, on_unknown: OnUnknown) -> Beginning:
    """K3."""
    standing = _standing(transaction, job)
    if standing is None or not standing.is_current(by):
        return core.STALE
    known = _one(transaction, standing.seq, step)
    answer, after = core.begun(known, step, by, on_unknown, transaction.now)
    if after is not known:
        save(transaction, standing.seq, after)
    return answer


def forget(transaction: Transaction, job: str, by: Try, step: Step) -> None:
    """K4."""
    standing = _standing(transaction, job)
    if standing is None:
        return
    known = _one(transaction, standing.seq, step)
    after = core.forgotten(known, by)
    if after is None:
        transaction.execute(SQL.forget, (standing.seq, step.name, step.arguments))
    elif after is not known:
        save(transaction, standing.seq, after)


def keep(
    transaction: Transaction, job: str, by: Try, step: Step, result: bytes, *, paid: bool
) -> tuple[Answer, bytes]:
    """K5."""
    standing = _standing(transaction, job)
    if standing is None:
        return Answer.GONE, result
    if not paid and not standing.is_current(by):
        return Answer.STALE, result
    known = _one(transaction, standing.seq, step)
    answer, after = core.kept(known, step, by, result, paid, transaction.now)
    if after is not known:
        save(transaction, standing.seq, after)
    return answer, after.result or result


def every(transaction: Transaction, job: str) -> list[Checkpoint]:
    """K6."""
    return [_checkpoint(row) for row in transaction.execute(SQL.of_job, (job,))]


def result(transaction: Transaction, job: str, step: Step) -> bytes | None:
    """K7."""
    found: str | None = transaction.execute(SQL.result, (job, step.name, step.arguments)).get
    return None if found is None else found.encode()


def forget_begun(transaction: Transaction, seq: int) -> None:
    """K2, for a retry by hand."""
    transaction.execute(SQL.forget_begun, (seq,))


def _standing(transaction: Transaction, job: str) -> Standing | None:
    row = transaction.execute(SQL.standing, (job,)).fetchone()
    return None if row is None else Standing(*row)


def _one(transaction: Transaction, seq: int, step: Step) -> Checkpoint | None:
    row = transaction.execute(SQL.one, (seq, step.name, step.arguments)).fetchone()
    return None if row is None else _checkpoint(row)


def _checkpoint(row: tuple[Any, ...]) -> Checkpoint:
    name, arguments, paid, begun, fence, claim, number, kept, stored, unknown = row
    return Checkpoint(
        step=Step(name, arguments),
        paid=bool(paid),
        begun=begun,
        by=Try(fence, claim, number),
        kept=kept,
        result=None if stored is None else stored.encode(),
        unknown=unknown,
    )


def save(transaction: Transaction, seq: int, after: Checkpoint) -> None:
    step, by = after.step, after.by
    stored = None if after.result is None else after.result.decode()
    state = (after.begun, by.fence, by.claim, by.number, after.kept, stored, after.unknown)
    transaction.execute(SQL.save, (seq, step.name, step.arguments, after.paid, *state))
