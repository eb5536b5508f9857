"""Results of steps inside a handler, stored so that a later attempt does not pay for them again.

A step is known by its job, its name and what it was called with. A paid one is marked as begun before its
call is made: begun without a result means that nobody knows whether the call was paid for. What each verb
makes of a checkpoint is decided here, for every store.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec
from msgspec.structs import replace

from tidemill.core.outcomes import Answer

OnUnknown = Literal["retry", "park"]
"""What to do when nobody knows whether a paid step was paid for: pay again, or leave it to a person."""

UNKNOWN_OUTCOME = "unknown outcome"
"""The reason a parked job failed for."""

LARGEST_RESULT = 16 * 1024 * 1024
"""Bytes of a step's result as JSON."""


class Step(msgspec.Struct, frozen=True):
    """`arguments` is a digest of what it is called with."""

    name: str
    arguments: str


class Try(msgspec.Struct, frozen=True):
    """One call of a step: the claim that makes it, and which of that claim's calls it is. Repeating a verb
    after a lost reply carries the same number."""

    fence: int
    claim: int
    number: int


NOBODY = Try(0, 0, 0)


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a store keeps of one step. `begun` and `kept` are wall times. `result` is JSON, None while there
    is none. `by` is the try that marked it last. `unknown` counts how often it was begun again without
    anybody knowing how it had ended."""

    step: Step
    paid: bool
    begun: float
    by: Try
    kept: float | None = None
    result: bytes | None = None
    unknown: int = 0


class Begun(StrEnum):
    """What a store says to a step that is about to begin."""

    FRESH = "fresh"  # go on; it is marked as begun
    KEPT = "kept"  # its result is there
    UNKNOWN = "unknown"  # it was begun before, and nobody knows how it ended
    STALE = "stale"  # the claim is not current, or the job is gone: nothing may be begun


class Beginning(msgspec.Struct, frozen=True):
    """`unknown` is the checkpoint's own count: above 0 the step may have been paid for before."""

    verdict: Begun
    result: bytes | None = None
    unknown: int = 0


STALE = Beginning(Begun.STALE)


def begun(
    known: Checkpoint | None, step: Step, by: Try, on_unknown: OnUnknown, now: float
) -> tuple[Beginning, Checkpoint]:
    """K3, for a claim that is current."""
    if known is None:
        return Beginning(Begun.FRESH), Checkpoint(step=step, paid=True, begun=now, by=by)
    if known.result is not None:
        return Beginning(Begun.KEPT, known.result), known
    if known.by == by:  # the reply was lost: this is the same call, not yet made
        return Beginning(Begun.FRESH, unknown=known.unknown), known
    if on_unknown == "park":
        return Beginning(Begun.UNKNOWN, unknown=known.unknown), known
    again = replace(known, paid=True, begun=now, by=by, unknown=known.unknown + 1)
    return Beginning(Begun.FRESH, unknown=again.unknown), again


def forgotten(known: Checkpoint | None, by: Try) -> Checkpoint | None:
    """K4. An earlier call whose end nobody knows is not made any better by this one: its mark stays, as
    nobody's, so that no repetition of this verb takes it away."""
    if known is None or known.result is not None or known.by != by:
        return known
    return replace(known, by=NOBODY, unknown=known.unknown - 1) if known.unknown else None


def kept(  # noqa: PLR0917 - a result, and all that is said with it
    known: Checkpoint | None,
    step: Step,
    by: Try,
    result: bytes,
    paid: bool,
    now: float,
) -> tuple[Answer, Checkpoint]:
    """K5, for whoever may keep it."""
    if known is not None and known.result is not None:
        return Answer.AGAIN, known
    before = known or Checkpoint(step=step, paid=paid, begun=now, by=by)
    return Answer.OK, replace(before, paid=before.paid or paid, kept=now, result=result)
