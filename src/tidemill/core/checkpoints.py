"""Results of steps inside a handler, stored so that a later attempt does not pay for them again.

A step is known by its job, its name and what it was called with. A paid one is marked as begun before its
call is made: begun without a result means that nobody knows whether the call was paid for.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

OnUnknown = Literal["retry", "park"]
"""What to do when nobody knows whether a paid step was paid for: pay again, or leave it to a person."""

UNKNOWN_OUTCOME = "unknown outcome"
"""The reason a parked job failed for."""


class Step(msgspec.Struct, frozen=True):
    """`arguments` is a digest of what it is called with."""

    name: str
    arguments: str


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a store keeps of one step. `begun` and `kept` are wall times. `result` is JSON, None while there
    is none. `unknown` counts how often it was begun again without anybody knowing how it had ended."""

    step: Step
    paid: bool
    begun: float
    fence: int
    claim: int
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
    verdict: Begun
    result: bytes | None = None
