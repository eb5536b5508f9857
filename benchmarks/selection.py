"""The selected part of the plan, and its order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.plan import PLANS, MeasurementPlan
from benchmarks.targets import Results


@dataclass(frozen=True)
class Selection:
    only: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    rounds: int | None = None
    quick: bool = False

    @property
    def complete(self) -> bool:
        return not (self.only or self.queues or self.without or self.rounds or self.quick)

    def steps(self, store: str) -> Iterator[tuple[MeasurementPlan, str]]:
        """Yields the measurements round by round; inside each, the queues take turns. So the two numbers of
        a ratio are measured close together."""
        plans = [plan for plan in PLANS[store] if not self.only or plan.measurement in self.only]
        wanted = {plan: self.rounds or (1 if self.quick else plan.rounds) for plan in plans}
        for number in range(max(wanted.values(), default=0)):
            for plan in plans:
                if number < wanted[plan]:
                    yield from ((plan, queue) for queue in self._queues_of(plan))

    def left(self, store: str, results: Results) -> Iterator[tuple[MeasurementPlan, str]]:
        """Yields the steps that are not in `results` yet."""
        come: Counter[tuple[str, str]] = Counter()
        for plan, queue in self.steps(store):
            come[plan.measurement, queue] += 1
            if len(results.get(plan.measurement, {}).get(queue, ())) < come[plan.measurement, queue]:
                yield plan, queue

    def _queues_of(self, plan: MeasurementPlan) -> Iterator[str]:
        for queue in plan.queues:
            if queue not in self.without and (not self.queues or queue in self.queues):
                yield queue
