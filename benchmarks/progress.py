"""The progress of a run, and an estimate of the remaining time."""

from __future__ import annotations

import time

from benchmarks.plan import MeasurementPlan

ENOUGH = 5
"""Measurements after which the speed of this machine is known."""


class Progress:
    """Estimates the remaining time from the plan's durations, scaled by the measurements that are done."""

    def __init__(self, left: list[tuple[MeasurementPlan, str]]) -> None:
        self._expected = [plan.seconds for plan, _ in left]
        self._done = 0
        self._began = time.monotonic()

    def opening(self) -> str:
        return f"{len(self._expected)} measurements, about {_minutes(sum(self._expected))} at full length"

    def step(self) -> str:
        """Counts one finished measurement and returns the progress line."""
        self._done += 1
        spent = time.monotonic() - self._began
        count = f"{self._done}/{len(self._expected)}"
        return f"[{count}, {_minutes(spent)}, about {_minutes(self.to_go(spent))} to go]"

    def to_go(self, spent: float) -> float:
        done, left = sum(self._expected[: self._done]), sum(self._expected[self._done :])
        return left * (spent / done if self._done >= ENOUGH else 1.0)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"
