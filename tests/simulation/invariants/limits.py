"""I13, I15, I16: concurrency limits, closed pools and probes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tests.simulation.claim_history import ClaimHistory
from tests.simulation.store_monitor import VerbEvent
from tests.simulation.trace import Violation
from tidemill.core.claims import Settlement
from tidemill.core.feedback import Reason, Refusal, UsageReport
from tidemill.core.jobs import Job
from tidemill.core.outcomes import WriteAnswer
from tidemill.core.queues import QueueSettings
from tidemill.core.states import PENDING, State


class Limits:
    """A limit that an operator lowers does not stop running jobs; it applies to new claims."""

    def __init__(
        self,
        settings: Callable[[str], QueueSettings],
        counts: Callable[[], dict[str, dict[State, int]]],
        running_in: Callable[[], dict[tuple[str, str], int]],
    ) -> None:
        self._settings = settings
        self._counts = counts
        self._running_in = running_in

    def see(self, event: VerbEvent) -> None:
        if not event.changes:
            return
        claimed = {(job.queue, job.key) for job in event.claimed()}
        running = Counter((job.queue, job.key) for job in event.jobs.values() if job.state is State.RUNNING)
        for queue, lane in claimed:
            self._check(queue, lane, running)
        if event.verb == "insert":
            self._check_length(event)
        self._check_counters(event)
        if (counted := self._running_in()) != dict(running):
            raise Violation("I13", f"after {event.verb} {counted} are said to run, {dict(running)} do")

    def _check(self, queue: str, lane: str, running: Counter[tuple[str, str]]) -> None:
        settings = self._settings(queue)
        limit = settings.key_concurrency
        if limit is not None and lane and running[queue, lane] > limit:
            raise Violation("I13", f"{running[queue, lane]} jobs of key {lane!r} run, {limit} may")
        together = sum(count for (name, _), count in running.items() if name == queue)
        if settings.concurrency is not None and together > settings.concurrency:
            raise Violation("I13", f"{together} jobs of queue {queue!r} run, {settings.concurrency} may")

    def _check_length(self, event: VerbEvent) -> None:
        for queue in {job.queue for job in event.created()}:
            limit = self._settings(queue).max_length
            pending = sum(1 for job in event.jobs.values() if job.queue == queue and job.state in PENDING)
            if limit is not None and pending > limit:
                raise Violation("I22", f"{pending} jobs wait in {queue!r}, which holds {limit}")

    def _check_counters(self, event: VerbEvent) -> None:
        recount: Counter[tuple[str, State]] = Counter((job.queue, job.state) for job in event.jobs.values())
        counted = {(q, s): n for q, states in self._counts().items() for s, n in states.items() if n}
        if counted != dict(recount):
            raise Violation(
                "I13", f"after {event.verb} the counters say {counted}, a recount says {dict(recount)}"
            )


PoolKey = tuple[str, str | None]
ClaimKey = tuple[str, int, int]
TIME_TOLERANCE_SECONDS = 1e-6


class ClosedPools:
    """A closure ends by the boot clock, even if the wall clock is stepped (I26); after a reboot, by the
    wall clock."""

    def __init__(self, claim_history: ClaimHistory) -> None:
        self._claim_history = claim_history
        self._closed: dict[PoolKey, float] = {}  # until (boot time)
        self._boot = 0.0
        self._untried: set[PoolKey] = set()
        self._probes: dict[PoolKey, ClaimKey] = {}

    def see(self, event: VerbEvent) -> None:
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

    def _hear(self, event: VerbEvent, settlements: Sequence[Settlement]) -> None:
        for item, answer in zip(settlements, event.reply.answers, strict=True):
            if answer is WriteAnswer.AGAIN:
                continue  # already processed the first time
            self._end_probe(item)
            for seen in () if item.spent is None else item.spent.observations:
                if seen.refusal is not None:
                    self._close(event, seen.account_key, seen.refusal)
                    self._check_uncharged(event, item, seen.refusal)

    def _end_probe(self, item: Settlement) -> None:
        spent = item.spent or UsageReport()
        for place, claim in list(self._probes.items()):
            if claim == (item.job, item.fence, item.claim):
                del self._probes[place]
                if spent.made and spent.is_success:
                    self._untried.discard(place)

    def _close(self, event: VerbEvent, place: PoolKey, refusal: Refusal) -> None:
        after = refusal.retry_after or 0.0
        if refusal.resets_at is not None:
            after = max(after, refusal.resets_at - event.wall)
        self._closed[place] = max(self._closed.get(place, 0.0), event.boot + after)
        if refusal.reason is not Reason.RATE:
            self._untried.add(place)

    def _check_uncharged(self, event: VerbEvent, item: Settlement, refusal: Refusal) -> None:
        before, after = event.changes.get(item.job, (None, None))
        if before is None or after is None or refusal.reason is Reason.OVERLOAD:
            return
        if after.attempts > before.attempts:
            raise Violation("I16", f"{item.job} was stopped by {refusal.reason} and charged an attempt")

    def _open(self, place: PoolKey) -> None:
        self._closed.pop(place, None)
        self._untried.discard(place)
        self._probes.pop(place, None)

    def _check(self, event: VerbEvent, job: Job, place: PoolKey) -> None:
        until = self._closed.get(place, 0.0)
        if event.boot < until - TIME_TOLERANCE_SECONDS:
            raise Violation("I15", f"{job.id} started {until - event.boot:.3f} s before {place} may be tried")
        if place not in self._untried:
            return
        probe = self._probes.get(place)
        if probe is not None and self._claim_history.is_current(*probe):
            raise Violation("I15", f"{job.id} tries {place} while {probe} does")
        self._probes[place] = (job.id, job.fence, job.claim)
        self._claim_history.seen["probed"] += 1
