"""How far a run is, and about how long it will still take."""

from __future__ import annotations

import time

from benchmarks.plan import Plan

ENOUGH = 5
"""Measurements after which the machine's own pace is known."""


class Progress:
    """The plan says about how long each measurement takes; the ones that are done say how much slower or
    faster this machine is, or a quick look."""

    def __init__(self, left: list[tuple[Plan, str]]) -> None:
        self._expected = [plan.seconds for plan, _ in left]
        self._done = 0
        self._began = time.monotonic()

    def opening(self) -> str:
        return f"{len(self._expected)} measurements, about {_minutes(sum(self._expected))} at full length"

    def step(self) -> str:
        """One more is done."""
        self._done += 1
        spent = time.monotonic() - self._began
        count = f"{self._done}/{len(self._expected)}"
        return f"[{count}, {_minutes(spent)}, about {_minutes(self.to_go(spent))} to go]"

    def to_go(self, spent: float) -> float:
        done, left = sum(self._expected[: self._done]), sum(self._expected[self._done :])
        return left * (spent / done if self._done >= ENOUGH else 1.0)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"
