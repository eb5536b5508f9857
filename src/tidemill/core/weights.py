"""Sharing a worker's slots among queues: by weight, or strictly in order.

Stride scheduling: every queue has a virtual time that advances by 1/weight per job it
got; the queue that is furthest behind goes first. A queue that had nothing to do does
not save up turns.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from tidemill.core.claims import Share


class Weights:
    """The one piece of memory a worker keeps about fairness."""

    def __init__(self, weights: Mapping[str, int], *, strict: bool = False) -> None:
        self._weights = dict(weights)
        self._strict = strict
        self._passes = dict.fromkeys(self._weights, 0.0)

    def add(self, queue: str) -> None:
        """One more, of weight 1; in strict order the last."""
        if queue not in self._weights:
            self._weights[queue] = 1
            self._passes[queue] = max(self._passes.values(), default=0.0)

    def shares(self, slots: int) -> tuple[Share, ...]:
        """How the next `slots` jobs should be spread if every queue had enough."""
        if self._strict or len(self._weights) == 1:
            return tuple(Share(queue, slots) for queue in self._weights)
        virtual = [(passed, index, queue) for index, (queue, passed) in enumerate(self._passes.items())]
        heapq.heapify(virtual)
        granted = dict.fromkeys(self._weights, 0)
        order: list[str] = []
        for _ in range(min(slots, 64 * len(virtual))):
            passed, index, queue = virtual[0]
            if not granted[queue]:
                order.append(queue)
            granted[queue] += 1
            heapq.heapreplace(virtual, (passed + 1 / self._weights[queue], index, queue))
        behind = sorted((q for q in self._weights if not granted[q]), key=lambda queue: self._passes[queue])
        return tuple(Share(queue, granted[queue]) for queue in [*order, *behind])

    def served(self, queues: Iterable[str]) -> None:
        """Account for the jobs a claim returned, and forgive queues that had none."""
        got = list(queues)
        if not got:
            return
        for queue in got:
            self._passes[queue] += 1 / self._weights[queue]
        floor = min(self._passes[queue] for queue in got)
        for queue, passed in self._passes.items():
            self._passes[queue] = max(passed, floor - 1)
