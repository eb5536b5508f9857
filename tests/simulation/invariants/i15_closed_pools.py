"""I15 No claim while a pool is closed, and one probe for the whole fleet; a dead prober is replaced.
I16 Being stopped by a quota costs no attempt, and nothing starts before `Retry-After`.

What closes a pool is read from what workers told the store, and not from what the store made of it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.facts import Facts
from tests.simulation.trace import Violation
from tests.simulation.watch import Event
from tidemill.core.claims import Settlement
from tidemill.core.job import Job
from tidemill.core.outcomes import Answer
from tidemill.core.refusals import Reason, Refusal
from tidemill.core.spending import Spent

Place = tuple[str, str | None]
Claim = tuple[str, int, int]
A_HAIR = 1e-6


class ClosedPools:
    """A closure ends by the boot clock, whoever sets the wall (I26); after another boot, by the wall."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._closed: dict[Place, float] = {}  # until (boot)
        self._boot = 0.0
        self._untried: set[Place] = set()
        self._probes: dict[Place, Claim] = {}

    def see(self, event: Event) -> None:
        if event.boot < self._boot:
            self._closed.clear()
        self._boot = event.boot
        if event.verb == "settle":
            self._hear(event, event.call.args[0])
        elif event.verb == "open_pool":
            self._open((event.call.args[0], event.call.options.get("key")))
        for job in event.claimed():
            for need in job.needs:
                self._check(event, job, (need.pool, need.key))

    def _hear(self, event: Event, settlements: Sequence[Settlement]) -> None:
        for item, answer in zip(settlements, event.reply.answers, strict=True):
            if answer is Answer.AGAIN:
                continue  # it was heard the first time
            self._end_probe(item)
            for seen in () if item.spent is None else item.spent.observations:
                if seen.refusal is not None:
                    self._close(event, seen.place, seen.refusal)
                    self._check_uncharged(event, item, seen.refusal)

    def _end_probe(self, item: Settlement) -> None:
        spent = item.spent or Spent()
        for place, claim in list(self._probes.items()):
            if claim == (item.job, item.fence, item.claim):
                del self._probes[place]
                if spent.made and spent.well:
                    self._untried.discard(place)

    def _close(self, event: Event, place: Place, refusal: Refusal) -> None:
        after = refusal.retry_after or 0.0
        if refusal.resets_at is not None:
            after = max(after, refusal.resets_at - event.wall)
        self._closed[place] = max(self._closed.get(place, 0.0), event.boot + after)
        if refusal.reason is not Reason.RATE:
            self._untried.add(place)

    def _check_uncharged(self, event: Event, item: Settlement, refusal: Refusal) -> None:
        before, after = event.changes.get(item.job, (None, None))
        if before is None or after is None or refusal.reason is Reason.OVERLOAD:
            return
        if after.attempts > before.attempts:
            raise Violation("I16", f"{item.job} was stopped by {refusal.reason} and charged an attempt")

    def _open(self, place: Place) -> None:
        self._closed.pop(place, None)
        self._untried.discard(place)
        self._probes.pop(place, None)

    def _check(self, event: Event, job: Job, place: Place) -> None:
        until = self._closed.get(place, 0.0)
        if event.boot < until - A_HAIR:
            raise Violation("I15", f"{job.id} started {until - event.boot:.3f} s before {place} may be tried")
        if place not in self._untried:
            return
        probe = self._probes.get(place)
        if probe is not None and self._facts.is_current(*probe):
            raise Violation("I15", f"{job.id} tries {place} while {probe} does")
        self._probes[place] = (job.id, job.fence, job.claim)
        self._facts.seen["probed"] += 1
