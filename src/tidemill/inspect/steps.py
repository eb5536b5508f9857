"""The steps of a job, as people see them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tidemill.core.checkpoints import Checkpoint
from tidemill.core.claims import is_current
from tidemill.core.job import Job


class CheckpointView(msgspec.Struct, frozen=True, kw_only=True):
    """One step: its name, and a digest of what it was called with.

    state: "kept" when its result is stored; "begun" while its attempt runs; "unknown" when that attempt is
        over and nobody knows whether the call was paid for.
    begun, kept: wall times. size: bytes of its result as JSON.
    unknown: how often it was called again without anybody knowing how the call before had ended.
    """

    name: str
    arguments: str
    paid: bool
    state: Literal["kept", "begun", "unknown"]
    begun: float
    kept: float | None
    size: int | None
    unknown: int
    result: Any


def view(checkpoint: Checkpoint, job: Job) -> CheckpointView:
    by, result = checkpoint.by, checkpoint.result
    under_way = is_current(job, by.fence, by.claim)
    return CheckpointView(
        name=checkpoint.step.name,
        arguments=checkpoint.step.arguments,
        paid=checkpoint.paid,
        state="kept" if result is not None else "begun" if under_way else "unknown",
        begun=checkpoint.begun,
        kept=checkpoint.kept,
        size=None if result is None else len(result),
        unknown=checkpoint.unknown,
        result=None if result is None else msgspec.json.decode(result),
    )
