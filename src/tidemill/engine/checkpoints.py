"""Store methods for checkpoints: steps of jobs that began, and their results."""

from __future__ import annotations

from tidemill.core import checkpoints as core
from tidemill.core.checkpoints import Checkpoint, OnUnknown, StepAttempt, StepKey, StepStart
from tidemill.core.claims import is_current
from tidemill.core.outcomes import WriteAnswer
from tidemill.engine.records import Records


def begin_step(
    records: Records, job_id: str, by: StepAttempt, step: StepKey, on_unknown: OnUnknown
) -> StepStart:
    """Records that a step is about to make the paid call `by` (K3). Returns the stored result, or else
    whether the call may be made.

    `on_unknown`: decides whether to call again if an earlier call has no result."""
    job = records.jobs.get(job_id)
    if job is None or not is_current(job, by.fence, by.claim):
        return core.STALE_START
    checkpoints = records.checkpoints.setdefault(job_id, {})
    answer, checkpoints[step] = core.start_step(
        checkpoints.get(step), step, by, on_unknown, records.clock.wall()
    )
    return answer


def forget_step(records: Records, job_id: str, by: StepAttempt, step: StepKey) -> None:
    """Deletes the checkpoint of a begun step, because the call `by` was not paid (K4). A checkpoint with a
    result stays."""
    checkpoints = records.checkpoints.get(job_id, {})
    after = core.forget_step(checkpoints.get(step), by)
    if after is not None:
        checkpoints[step] = after
    else:
        checkpoints.pop(step, None)


def keep_step(
    records: Records, job_id: str, by: StepAttempt, step: StepKey, result: bytes, *, paid: bool
) -> tuple[WriteAnswer, bytes]:
    """Stores a step's result, unless the step has one (K5). Returns an answer and the stored result. The
    result of a `paid` call is stored even if the claim is no longer current."""
    job = records.jobs.get(job_id)
    if job is None:
        return WriteAnswer.GONE, result
    if not paid and not is_current(job, by.fence, by.claim):
        return WriteAnswer.STALE, result
    checkpoints = records.checkpoints.setdefault(job_id, {})
    answer, after = core.keep_result(checkpoints.get(step), step, by, result, paid, records.clock.wall())
    checkpoints[step] = after
    return answer, after.result or result


def list_checkpoints(records: Records, job_id: str) -> list[Checkpoint]:
    """Returns the checkpoints of a job, in the order in which their steps first began (K6)."""
    return list(records.checkpoints.get(job_id, {}).values())


def step_result(records: Records, job_id: str, step: StepKey) -> bytes | None:
    """Returns the result of a step; None if there is none (K7)."""
    known = records.checkpoints.get(job_id, {}).get(step)
    return None if known is None else known.result


def forget_unfinished(records: Records, job_id: str) -> None:
    """Deletes the checkpoints of a job that have no result. Used when an operator retries the job (K2)."""
    checkpoints = records.checkpoints.get(job_id, {})
    for step in [step for step, known in checkpoints.items() if known.result is None]:
        del checkpoints[step]
