"""Checkpoints: what a job's steps have begun and brought home."""

from __future__ import annotations

from tidemill.core import checkpoints as core
from tidemill.core.checkpoints import Beginning, Checkpoint, OnUnknown, Step, Try
from tidemill.core.claims import is_current
from tidemill.core.outcomes import Answer
from tidemill.engine.records import Records


def begin(records: Records, job_id: str, by: Try, step: Step, on_unknown: OnUnknown) -> Beginning:
    """K3."""
    job = records.jobs.get(job_id)
    if job is None or not is_current(job, by.fence, by.claim):
        return core.STALE
    kept = records.checkpoints.setdefault(job_id, {})
    answer, kept[step] = core.begun(kept.get(step), step, by, on_unknown, records.clock.wall())
    return answer


def forget(records: Records, job_id: str, by: Try, step: Step) -> None:
    """K4."""
    kept = records.checkpoints.get(job_id, {})
    after = core.forgotten(kept.get(step), by)
    if after is not None:
        kept[step] = after
    else:
        kept.pop(step, None)


def keep(
    records: Records, job_id: str, by: Try, step: Step, result: bytes, *, paid: bool
) -> tuple[Answer, bytes]:
    """K5."""
    job = records.jobs.get(job_id)
    if job is None:
        return Answer.GONE, result
    if not paid and not is_current(job, by.fence, by.claim):
        return Answer.STALE, result
    kept = records.checkpoints.setdefault(job_id, {})
    answer, after = core.kept(kept.get(step), step, by, result, paid, records.clock.wall())
    kept[step] = after
    return answer, after.result or result


def every(records: Records, job_id: str) -> list[Checkpoint]:
    """K6."""
    return list(records.checkpoints.get(job_id, {}).values())


def result(records: Records, job_id: str, step: Step) -> bytes | None:
    """K7."""
    known = records.checkpoints.get(job_id, {}).get(step)
    return None if known is None else known.result


def forget_begun(records: Records, job_id: str) -> None:
    """K2, for a retry by hand."""
    kept = records.checkpoints.get(job_id, {})
    for step in [step for step, known in kept.items() if known.result is None]:
        del kept[step]
