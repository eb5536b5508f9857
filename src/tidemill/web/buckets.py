"""So many at once, and so many more as time goes by: of each by itself."""

from __future__ import annotations

from tidemill.clock import Clock

_MOST = 10_000
"""Keys that are remembered; beyond, those that have all they may have are forgotten."""


class Buckets:
    def __init__(self, clock: Clock, amount: int, per: float) -> None:
        """`amount` at once, and as many again in `per` seconds."""
        self._clock, self.amount, self.per = clock, amount, per
        self._rate = amount / per
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, key: str) -> float:
        """0.0 when there was one, else in how many seconds there is. At once: whoever asks at the same time
        finds it gone."""
        left, now = self.left(key), self._clock.boot()
        if left < 1.0:
            return (1.0 - left) / self._rate
        if len(self._levels) >= _MOST:
            self._forget()
        self._levels[key] = (left - 1.0, now)
        return 0.0

    def give_back(self, key: str) -> None:
        self._levels[key] = (min(float(self.amount), self.left(key) + 1.0), self._clock.boot())

    def left(self, key: str) -> float:
        level, since = self._levels.get(key, (float(self.amount), 0.0))
        return min(float(self.amount), level + (self._clock.boot() - since) * self._rate)

    def _forget(self) -> None:
        self._levels = {key: kept for key, kept in self._levels.items() if self.left(key) < self.amount}
        if len(self._levels) >= _MOST:
            self._levels.clear()
