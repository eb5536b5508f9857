"""Partial results of a job, kept step by step."""

from __future__ import annotations

from typing import Protocol

from tidemill.core.checkpoints import Beginning, Checkpoint, OnUnknown, Step
from tidemill.core.outcomes import Answer


class Checkpoints(Protocol):
    """K1 What a verb answered as done survives whatever the store promises to survive, as J15.
    K2 Checkpoints live as long as their job. A retry by hand keeps results and forgets what was begun
       without one: a person decided to pay again.
    """

    async def begin_step(
        self, job: str, fence: int, claim: int, step: Step, on_unknown: OnUnknown = "retry"
    ) -> Beginning:
        """K3 A paid step is about to make its call. KEPT with the result when there is one. Marked as
        begun, by an earlier claim or this one, and without a result: with "park" UNKNOWN and nothing
        changes; with "retry" it is begun again in this claim's name, and counted as unknown. STALE
        changes nothing.
        """
        ...

    async def forget_step(self, job: str, fence: int, claim: int, step: Step) -> None:
        """K4 The call of a step begun by this claim is known not to have been paid for: the mark goes.
        Another claim's mark stays, and so does a result."""
        ...

    async def keep_step(
        self, job: str, fence: int, claim: int, step: Step, result: bytes, *, paid: bool
    ) -> tuple[Answer, bytes]:
        """K5 Store a result; the first one stands, and is answered. OK when this one is kept, AGAIN when
        another was there. A paid step's is kept whoever holds the job by now, and after it ended (I6); any
        other only from the current claim, else STALE with the result given. GONE when there is no such job.
        """
        ...

    async def checkpoints(self, job: str) -> list[Checkpoint]:
        """K6 In the order they were begun."""
        ...

    async def kept_step(self, job: str, step: Step) -> bytes | None:
        """K7 The result of a step, None when there is none."""
        ...
