"""Checkpoints: the stored results of steps inside a handler. A retry reuses them and does not pay again.

The store records that a paid step has begun before the step makes its call. If the step then has no result,
its call may have been paid."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec
from msgspec.structs import replace

from tidemill.core.outcomes import WriteAnswer

OnUnknown = Literal["retry", "park"]
"""What to do if a paid step may have been paid already: pay again, or fail the job for an operator to
decide."""

UNKNOWN_OUTCOME = "unknown outcome"
"""The failure reason of a parked job."""

MAX_RESULT_BYTES = 16 * 1024 * 1024
"""The largest result of a step, as JSON."""


class StepKey(msgspec.Struct, frozen=True):
    """The identity of a step within a job. `arguments` is a digest (hash) of the step's arguments."""

    name: str
    arguments: str


class StepAttempt(msgspec.Struct, frozen=True):
    """One call of a step. `fence` and `claim` identify the claim. `number` counts the calls of this claim; a
    repeated request has the same number."""

    fence: int
    claim: int
    number: int


NO_ATTEMPT = StepAttempt(0, 0, 0)


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of one step.

    - `begun`: the wall time when the step began.
    - `by`: the attempt that began the step last.
    - `kept`: the wall time when the result was stored.
    - `result`: the result as JSON, None until there is one.
    - `unknown`: how often the step began again although it was unknown whether an earlier call was paid."""

    step: StepKey
    paid: bool
    begun: float
    by: StepAttempt
    kept: float | None = None
    result: bytes | None = None
    unknown: int = 0


class StepVerdict(StrEnum):
    """A store's answer to a request to begin a step.

    - `fresh`: the step may make its call.
    - `kept`: the step already has a result.
    - `unknown`: an earlier call began, and its end is unknown.
    - `stale`: the step must not begin, because the claim is not current or the job is gone."""

    FRESH = "fresh"  # continue: the step is marked as begun
    KEPT = "kept"  # the result is stored already
    UNKNOWN = "unknown"  # an earlier call began, and its end is not known
    STALE = "stale"  # the claim is not current, or the job is gone: nothing may begin


class StepStart(msgspec.Struct, frozen=True):
    """A store's answer to a request to begin a step, with the stored `result` if there is one. `unknown`
    counts how often the step began again without knowing the end of an earlier call."""

    verdict: StepVerdict
    result: bytes | None = None
    unknown: int = 0


STALE_START = StepStart(StepVerdict.STALE)


def start_step(
    known: Checkpoint | None, step: StepKey, by: StepAttempt, on_unknown: OnUnknown, now: float
) -> tuple[StepStart, Checkpoint]:
    """Returns the answer to a request to begin a step, and the checkpoint to store (K3). The caller must have
    checked that the claim is current.

    - `known`: the stored checkpoint, if any.
    - `by`: the call that the step is about to make.
    - `on_unknown`: `retry` begins the step again if an earlier call may have been paid; `park` does not."""
    if known is None:
        return StepStart(StepVerdict.FRESH), Checkpoint(step=step, paid=True, begun=now, by=by)
    if known.result is not None:
        return StepStart(StepVerdict.KEPT, known.result), known
    if known.by == by:  # the reply was lost: this is the same call, not yet made
        return StepStart(StepVerdict.FRESH, unknown=known.unknown), known
    if on_unknown == "park":
        return StepStart(StepVerdict.UNKNOWN, unknown=known.unknown), known
    restarted = replace(known, paid=True, begun=now, by=by, unknown=known.unknown + 1)
    return StepStart(StepVerdict.FRESH, unknown=restarted.unknown), restarted


def forget_step(known: Checkpoint | None, by: StepAttempt) -> Checkpoint | None:
    """Returns the checkpoint after the call `by` ended without being paid (K4); None if no checkpoint is
    left. The checkpoint stays if it has a result, or if another call may have been paid."""
    if known is None or known.result is not None or known.by != by:
        return known
    return replace(known, by=NO_ATTEMPT, unknown=known.unknown - 1) if known.unknown else None


def keep_result(  # noqa: PLR0917 - a result and its context
    known: Checkpoint | None,
    step: StepKey,
    by: StepAttempt,
    result: bytes,
    paid: bool,
    now: float,
) -> tuple[WriteAnswer, Checkpoint]:
    """Stores `result` in the checkpoint of a step (K5), unless it already has a result. Returns the answer
    and the checkpoint. `known` is the stored checkpoint, if any."""
    if known is not None and known.result is not None:
        return WriteAnswer.AGAIN, known
    before = known or Checkpoint(step=step, paid=paid, begun=now, by=by)
    return WriteAnswer.OK, replace(before, paid=before.paid or paid, kept=now, result=result)
