"""I9 accepted = scheduled + ready + waiting + running + done + failed + cancelled + pruned."""

from __future__ import annotations

from tests.simulation.facts import Facts
from tests.simulation.trace import Violation
from tests.simulation.watch import Event
from tidemill.core.states import State


class Conservation:
    """Counts what an insert made; nothing else adds, nothing but prune and delete takes away."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._made: set[str] = set()

    def see(self, event: Event) -> None:
        self._made.update(job.id for job in event.created())
        kept = set(event.jobs)
        gone = set(self._facts.deleted) | {job.id for job in event.deleted()}
        if event.changes and self._made != kept | (gone - kept):
            missing = sorted(self._made - kept - gone)
            raise Violation("I9", f"after {event.verb}: {missing} are neither kept nor pruned")

    def check_counts(self, counts: dict[str, dict[State, int]]) -> None:
        total = sum(sum(states.values()) for states in counts.values())
        if total + len(self._facts.deleted) != len(self._made):
            raise Violation("I9", f"{len(self._made)} made, {total} kept, {len(self._facts.deleted)} gone")
