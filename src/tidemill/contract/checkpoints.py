"""Partial results of a job, kept step by step."""

from __future__ import annotations

from typing import Protocol

from tidemill.core.checkpoints import Beginning, Checkpoint, OnUnknown, Step, Try
from tidemill.core.outcomes import Answer


class Checkpoints(Protocol):
    """`by` is the claim that speaks, and which of its calls it speaks of: the numbers are the holder's own,
    above 0. What becomes of a checkpoint is decided in `core.checkpoints`.

    K1 What a verb answered as done survives whatever the store promises to survive, as J15.
    K2 Checkpoints live as long as their job. A retry by hand keeps results and forgets what was begun
       without one: a person decided to pay again.
    """

    async def begin_step(self, job: str, by: Try, step: Step, on_unknown: OnUnknown = "retry") -> Beginning:
        """K3 A paid step is about to make its call. KEPT with the result when there is one. Marked as
        begun, by an earlier claim or this one, and without a result: with "park" UNKNOWN and nothing
        changes; with "retry" it is begun again in this try's name, and counted as unknown. The same try
        again, after a lost reply, is answered FRESH again. STALE changes nothing.
        """
        ...

    async def forget_step(self, job: str, by: Try, step: Step) -> None:
        """K4 The call of this try is known not to have been paid for: its mark goes. Where an earlier one
        is unknown a mark stays, nobody's. Another try's mark stays, and so does a result."""
        ...

    async def keep_step(
        self, job: str, by: Try, step: Step, result: bytes, *, paid: bool
    ) -> tuple[Answer, bytes]:
        """K5 Store a result; the first one stands, and is answered. OK when this one is kept, AGAIN when
        another was there. A paid step's is kept whoever holds the job by now, and after it ended (I6); any
        other only from the current claim, else STALE with the result given. GONE when there is no such job.
        """
        ...

    async def checkpoints(self, job: str) -> list[Checkpoint]:
        """K6 In the order they were first begun."""
        ...

    async def kept_step(self, job: str, step: Step) -> bytes | None:
        """K7 The result of a step, None when there is none."""
        ...
