"""Counts from inside the handlers what the queue promises from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Witness:
    def __init__(self) -> None:
        self._now: Counter[str] = Counter()
        self.most_at_once: Counter[str] = Counter()
        self.runs: Counter[str] = Counter()
        self.interrupted = 0
        self.paused = 0.0
        self.first_letter: float | None = None

    @contextmanager
    def at_work(self, host: str) -> Iterator[None]:
        self._now[host] += 1
        self.most_at_once[host] = max(self.most_at_once[host], self._now[host])
        try:
            yield
        finally:
            self._now[host] -= 1
