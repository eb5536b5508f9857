"""What a step asks the store, as values: they cross threads and pipes.

Every answer is a `Reply`: KEPT has a result, FRESH means go on, UNKNOWN and STALE mean stop. `number` is
the call a beginning was given, by which the rest speaks of it.
"""

from __future__ import annotations

import msgspec

from tidemill.core.checkpoints import Begun, OnUnknown, Step


class BeginStep(msgspec.Struct, frozen=True, tag="begin step"):
    """A paid step is about to make its call."""

    step: Step
    on_unknown: OnUnknown


class LookUpStep(msgspec.Struct, frozen=True, tag="look up step"):
    """An unpaid step asks for its result."""

    step: Step


class ForgetStep(msgspec.Struct, frozen=True, tag="forget step"):
    """Its call is known not to have been paid for."""

    step: Step
    number: int


class KeepStep(msgspec.Struct, frozen=True, tag="keep step"):
    step: Step
    number: int
    result: bytes
    paid: bool


StepQuestion = BeginStep | LookUpStep | ForgetStep | KeepStep


class Reply(msgspec.Struct, frozen=True, tag="step reply"):
    verdict: Begun
    result: bytes | None = None
    number: int = 0
