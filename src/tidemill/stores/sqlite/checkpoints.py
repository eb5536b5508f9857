"""Reads and writes the checkpoints of steps inside a handler."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemill.core import checkpoints as core
from tidemill.core.checkpoints import Checkpoint, OnUnknown, StepAttempt, StepKey, StepStart
from tidemill.core.outcomes import WriteAnswer
from tidemill.stores.sqlite.statements import load_statements
from tidemill.stores.sqlite.transaction import SqliteTransaction

SQL = load_statements("checkpoints")


class JobFence(msgspec.Struct, frozen=True):
    """The columns of a job that show whether a claim is current. `running` is 1 if the job runs."""

    seq: int
    running: int
    fence: int
    claim: int

    def is_current(self, by: StepAttempt) -> bool:
        return bool(self.running) and (self.fence, self.claim) == (by.fence, by.claim)


def begin_step(
    transaction: SqliteTransaction, job: str, by: StepAttempt, step: StepKey, on_unknown: OnUnknown
) -> StepStart:
    """Records that a step with a paid call starts, or returns its stored result (K3). `on_unknown`: what to
    do if an earlier call of the step began and has no result."""
    state = _job_fence(transaction, job)
    if state is None or not state.is_current(by):
        return core.STALE_START
    known = _find_checkpoint(transaction, state.seq, step)
    answer, after = core.start_step(known, step, by, on_unknown, transaction.now)
    if after is not known:
        save_checkpoint(transaction, state.seq, after)
    return answer


def forget_step(transaction: SqliteTransaction, job: str, by: StepAttempt, step: StepKey) -> None:
    """Deletes the record of a started step, because its call was not paid for (K4). `by` identifies the
    call."""
    state = _job_fence(transaction, job)
    if state is None:
        return
    known = _find_checkpoint(transaction, state.seq, step)
    after = core.forget_step(known, by)
    if after is None:
        transaction.execute(SQL.delete, (state.seq, step.name, step.arguments))
    elif after is not known:
        save_checkpoint(transaction, state.seq, after)


def keep_step(
    transaction: SqliteTransaction, job: str, by: StepAttempt, step: StepKey, result: bytes, *, paid: bool
) -> tuple[WriteAnswer, bytes]:
    """Stores a step's result and returns (answer, result). Returns the older result if one was stored before
    (K5). `paid=True`: store the result even if the claim is not current."""
    state = _job_fence(transaction, job)
    if state is None:
        return WriteAnswer.GONE, result
    if not paid and not state.is_current(by):
        return WriteAnswer.STALE, result
    known = _find_checkpoint(transaction, state.seq, step)
    answer, after = core.keep_result(known, step, by, result, paid, transaction.now)
    if after is not known:
        save_checkpoint(transaction, state.seq, after)
    return answer, after.result or result


def list_checkpoints(transaction: SqliteTransaction, job: str) -> list[Checkpoint]:
    """Returns the checkpoints of a job, in the order in which they first began (K6)."""
    return [_checkpoint(row) for row in transaction.execute(SQL.of_job, (job,))]


def get_result(transaction: SqliteTransaction, job: str, step: StepKey) -> bytes | None:
    """Returns the stored result of a step; None if no result is stored (K7)."""
    found: str | None = transaction.execute(SQL.result, (job, step.name, step.arguments)).get
    return None if found is None else found.encode()


def forget_begun_steps(transaction: SqliteTransaction, seq: int) -> None:
    """Deletes those checkpoints of a job that have no result, because an operator retries the job (K2). `seq`
    is the sequence number of the job."""
    transaction.execute(SQL.delete_without_result, (seq,))


def _job_fence(transaction: SqliteTransaction, job: str) -> JobFence | None:
    row = transaction.execute(SQL.current_claims, (job,)).fetchone()
    return None if row is None else JobFence(*row)


def _find_checkpoint(transaction: SqliteTransaction, seq: int, step: StepKey) -> Checkpoint | None:
    row = transaction.execute(SQL.by_step, (seq, step.name, step.arguments)).fetchone()
    return None if row is None else _checkpoint(row)


def _checkpoint(row: tuple[Any, ...]) -> Checkpoint:
    name, arguments, paid, begun, fence, claim, number, kept, stored, unknown = row
    return Checkpoint(
        step=StepKey(name, arguments),
        paid=bool(paid),
        begun=begun,
        by=StepAttempt(fence, claim, number),
        kept=kept,
        result=None if stored is None else stored.encode(),
        unknown=unknown,
    )


def save_checkpoint(transaction: SqliteTransaction, seq: int, after: Checkpoint) -> None:
    step, by = after.step, after.by
    stored = None if after.result is None else after.result.decode()
    state = (after.begun, by.fence, by.claim, by.number, after.kept, stored, after.unknown)
    transaction.execute(SQL.save, (seq, step.name, step.arguments, after.paid, *state))
