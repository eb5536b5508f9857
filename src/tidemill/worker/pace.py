"""How many jobs to claim ahead of a free slot: enough that the loop never waits for a trip.

With n slots and a mean job time t, n/t jobs end in a second. Claiming a few milliseconds'
worth ahead hides the store's round trip; claiming more would keep jobs from other workers.
"""

from __future__ import annotations

AHEAD_AT_MOST = 1000
HORIZON = 0.02
SHORT_JOB = 0.05
_SMOOTHING = 0.3


class Pace:
    """`spent` and `ended` are added to when outcomes are in the store; `trip_took` folds them in."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._mean: float | None = None
        self._trip = 0.0
        self.spent = 0.0
        self.ended = 0

    def trip_took(self, seconds: float) -> None:
        self._trip += _SMOOTHING * (seconds - self._trip)
        if not self.ended:
            return
        mean = self.spent / self.ended
        self.spent, self.ended = 0.0, 0
        self._mean = mean if self._mean is None else self._mean + _SMOOTHING * (mean - self._mean)

    def stalled(self) -> None:
        """Buffered jobs did not get to run: what was measured no longer holds."""
        self._mean = None

    @property
    def ahead(self) -> int:
        if self._mean is None or self._mean >= SHORT_JOB:
            return 0
        horizon = max(HORIZON, 2 * self._trip)
        # A job never takes less than a microsecond; a coarse loop clock may say so.
        return min(AHEAD_AT_MOST, int(self._concurrency * horizon / max(self._mean, 1e-6)))
