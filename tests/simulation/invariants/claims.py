"""I5 to I8, I20: fences, stale writes, leases, crashes and drains."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.claim_history import ClaimHistory, claim_request
from tests.simulation.outcome_log import OutcomeLog
from tests.simulation.store_monitor import VerbEvent, identity
from tests.simulation.trace import Violation
from tidemill.core.claims import Heartbeat, Settlement
from tidemill.core.jobs import Job
from tidemill.core.outcomes import Crash, FinalFailure, JobRelease, Outcome, RetryLater, Success, WriteAnswer
from tidemill.core.states import State
from tidemill.core.transitions import POISON


class Fences:
    def __init__(self) -> None:
        self._highest = 0
        self._given: set[tuple[str, int, int]] = set()
        self._numbers: set[tuple[str, int]] = set()

    def see(self, event: VerbEvent) -> None:
        claimed = list(event.claimed())
        if (request := claim_request(event)) is not None:
            number = (request.worker, request.number)
            if claimed and number in self._numbers:
                raise Violation(
                    "I5", f"claim {number[1]} of {number[0]}, repeated, got {claimed[0].id} as new"
                )
            self._numbers.add(number)
        fences = {job.fence for job in claimed}
        if len(fences) > 1:
            raise Violation("I5", f"one claim got the fences {sorted(fences)}")
        for job in claimed:
            if job.fence <= self._highest:
                raise Violation("I5", f"{job.id} got fence {job.fence} after {self._highest} was given")
            if not job.claim or (job.id, job.fence, job.claim) in self._given:
                raise Violation("I5", f"{job.id} got claim {job.claim} a second time, or none")
            self._given.add((job.id, job.fence, job.claim))
        self._highest = max([self._highest, *fences])


class StaleWrites:
    def __init__(self, claim_history: ClaimHistory) -> None:
        self._claim_history = claim_history

    def see(self, event: VerbEvent) -> None:
        if event.verb == "settle":
            self._see_settle(event)
        elif event.verb == "extend":
            self._see_extend(event)

    def _see_settle(self, event: VerbEvent) -> None:
        settlements: tuple[Settlement, ...] = event.call.args[0]
        written: set[str] = set()
        for item, answer in zip(settlements, event.reply.answers, strict=True):
            claim = self._claim_history.claim(item.job, item.fence, item.claim)
            current = claim is not None and claim.current and item.job not in written
            if current != (answer in (WriteAnswer.OK, WriteAnswer.CHARGED)):
                raise Violation(
                    "I6", f"settling {item.job} ({'current' if current else 'stale'}) was told {answer}"
                )
            if (
                answer is WriteAnswer.AGAIN
                and item.job not in written
                and (claim is None or not claim.settled)
            ):
                raise Violation("I6", f"settling {item.job} was told again, but this claim never settled it")
            if answer in (WriteAnswer.OK, WriteAnswer.CHARGED):
                written.add(item.job)
        for item in settlements:
            before, after = event.changes.get(item.job, (None, None))
            if item.job not in written and before is not None and after is not None:
                _require_unwritten(before, after)

    def _see_extend(self, event: VerbEvent) -> None:
        heartbeat: Heartbeat = event.call.args[0]
        for held in heartbeat.held:
            current = self._claim_history.is_current(held.job, held.fence, held.claim)
            if current == (held.job in event.reply.lost):
                word = "current, but told that it is lost" if current else "stale, and not told so"
                raise Violation("I6", f"the heartbeat's claim on {held.job} is {word}")
            before, after = event.changes.get(held.job, (None, None))
            if current or before is None or after is None or held.job in event.reply.returned:
                continue
            raise Violation("I6", f"a stale heartbeat changed {held.job}")


def _require_unwritten(before: Job, after: Job) -> None:
    """Checks that a refused settlement changed nothing; the same verb may still have claimed or expired the
    job."""
    same = (before.attempts, before.crashes, before.result) == (after.attempts, after.crashes, after.result)
    taken = before.state is State.RUNNING and identity(before) != identity(after)
    if not same or taken or (before.state is State.RUNNING and after.state is not State.RUNNING):
        raise Violation("I6", f"a refused settlement changed {before.id} ({before.state} → {after.state})")


def check_logs(claim_history: ClaimHistory, job: str, lines: set[str]) -> None:
    """At the end: every stored log line was sent by the holder of the job at that time."""
    if stray := lines - claim_history.logged.get(job, set()):
        raise Violation("I6", f"{job} keeps log lines of a stale holder: {sorted(stray)[:3]}")


class Leases:
    """Leases are respected. `calm_since` returns since when a worker could reclaim undisturbed; None if
    none can.

    `holds` returns whether a worker holds exactly this claim."""

    def __init__(
        self,
        claim_history: ClaimHistory,
        patience: float,
        calm_since: Callable[[], float | None],
        holds: Callable[[str, Job], bool],
    ) -> None:
        self._claim_history = claim_history
        self._patience = patience
        self._calm_since = calm_since
        self._holds = holds

    def see(self, event: VerbEvent) -> None:
        if event.verb in ("reclaim", "extend"):
            for before, after in event.changes.values():
                if before is not None and before.state is State.RUNNING and _taken(before, after):
                    self._check_taken(event, before)
        self._check_overdue(event)

    def _check_taken(self, event: VerbEvent, job: Job) -> None:
        claim = self._claim_history.claim(job.id, *identity(job))
        if claim is None:
            raise Violation("I7", f"{job.id} ran under a claim nobody was given")
        if event.verb == "reclaim":
            if claim.lease_end > event.boot and claim.worker not in event.call.args[0]:
                left = claim.lease_end - event.boot
                raise Violation(
                    "I7", f"{job.id} was reclaimed although its lease ran for another {left:.3f} s"
                )
            return
        heartbeat: Heartbeat = event.call.args[0]
        listed = any((h.job, h.fence, h.claim) == (job.id, claim.fence, claim.id) for h in heartbeat.held)
        if heartbeat.worker != claim.worker or claim.number > heartbeat.received or listed:
            raise Violation(
                "I7", f"{job.id} was taken from {claim.worker} by a heartbeat of {heartbeat.worker}"
            )
        if self._holds(claim.worker, job):
            raise Violation("I7", f"{job.id} was taken from {claim.worker}, which holds it and says so")

    def _check_overdue(self, event: VerbEvent) -> None:
        calm = self._calm_since()
        if calm is None:
            return
        for job in event.jobs.values():
            if job.state is not State.RUNNING:
                continue
            claim = self._claim_history.claim(job.id, *identity(job))
            if claim is None:  # claimed in this event
                continue
            overdue = event.boot - max(claim.lease_end, calm)
            if overdue > self._patience:
                raise Violation(
                    "I7", f"{job.id} of the silent {claim.worker} is {overdue:.1f} s over its lease"
                )


def _taken(before: Job, after: Job | None) -> bool:
    return after is None or after.state is not State.RUNNING or identity(before) != identity(after)


CRASH_LIMIT = 3
ATTEMPTS = 3


class Crashes:
    def __init__(self, claim_history: ClaimHistory) -> None:
        self._claim_history = claim_history

    def see(self, event: VerbEvent) -> None:
        outcomes = _accepted(event)
        for id_, (before, after) in event.changes.items():
            if before is None or after is None or after.generation != before.generation:
                continue
            self._check_counts(event, before, after, outcomes.get(id_))
            if after.state is State.FAILED and after.reason == POISON and before.state is not State.FAILED:
                self._check_poison(event, before, after, outcomes.get(id_))

    def _check_counts(self, event: VerbEvent, before: Job, after: Job, outcome: Outcome | None) -> None:
        charged = isinstance(outcome, Success | FinalFailure | RetryLater)
        merged = event.verb in ("insert", "admit") and after.attempts == 0
        if after.attempts != before.attempts + charged and not merged:
            raise Violation(
                "I8", f"{event.verb} made {after.attempts} attempts of {before.attempts} on {after.id}"
            )
        if after.attempts > ATTEMPTS:
            raise Violation("I8", f"{after.id} was given {after.attempts} attempts, its task has {ATTEMPTS}")
        crashes = before.crashes + isinstance(outcome, Crash)
        if event.verb == "reclaim" and before.state is State.RUNNING:
            claim = self._claim_history.claim(before.id, *identity(before))
            alone = claim is not None and claim.alone
            crashes = before.crashes + 1 if alone else max(1, before.crashes)
        if after.crashes != crashes:
            raise Violation(
                "I8", f"{event.verb} made {after.crashes} crashes of {before.crashes} on {after.id}"
            )

    def _check_poison(self, event: VerbEvent, before: Job, after: Job, outcome: Outcome | None) -> None:
        claim = self._claim_history.claim(before.id, *identity(before))
        now = claim is not None and claim.alone and (event.verb == "reclaim" or isinstance(outcome, Crash))
        alone = self._claim_history.lone_crashes[after.id, after.generation] + now
        if alone < CRASH_LIMIT - 1:
            raise Violation("I8", f"{after.id} failed as poison after {alone} crashes of its own")


def _accepted(event: VerbEvent) -> dict[str, Outcome]:
    if event.verb != "settle":
        return {}
    pairs = zip(event.call.args[0], event.reply.answers, strict=True)
    return {
        item.job: item.charged if answer is WriteAnswer.CHARGED else item.outcome
        for item, answer in pairs
        if answer in (WriteAnswer.OK, WriteAnswer.CHARGED)
    }


def check_alone(outcome_log: OutcomeLog, claim_history: ClaimHistory) -> None:
    """At the end: a handler of a job with a recorded crash ran alone in its process."""
    for run in outcome_log.starts:
        claims = [
            c for c in claim_history.by_job.get(run.job, ()) if c.worker == run.worker and c.at <= run.at
        ]
        if claims and claims[-1].alone and not run.isolated:
            raise Violation("I8", f"{run.job} has a crash on record and ran in company on {run.worker}")


class Drains:
    def __init__(self, outcome_log: OutcomeLog, claim_history: ClaimHistory) -> None:
        self._outcome_log = outcome_log
        self._claim_history = claim_history

    def see(self, event: VerbEvent) -> None:
        request = claim_request(event)
        if request is not None:
            # A claim number sent before SIGTERM may be repeated after it, to learn its result.
            last = self._outcome_log.last_number.get(request.worker)
            if last is not None and request.number > last:
                raise Violation("I20", f"{request.worker} claimed (number {request.number}) after SIGTERM")
        if event.verb == "settle":
            self._check_interrupted(event)

    def _check_interrupted(self, event: VerbEvent) -> None:
        """A handler that the end of the grace period interrupted is released, not failed."""
        for item, answer in zip(event.call.args[0], event.reply.answers, strict=True):
            claim = self._claim_history.claim(item.job, item.fence, item.claim)
            if (
                answer is not WriteAnswer.OK
                or claim is None
                or claim.worker not in self._outcome_log.last_number
            ):
                continue
            runs = [
                r for r in self._outcome_log.interrupted if r.job == item.job and r.worker == claim.worker
            ]
            if any(run.at >= claim.at for run in runs) and not isinstance(item.outcome, JobRelease):
                word = type(item.outcome).__name__
                raise Violation("I20", f"{item.job} was cut short by a drain and settled as {word}")


def check_handed_back(outcome_log: OutcomeLog, claim_history: ClaimHistory) -> None:
    """A worker that finished its drain undisturbed holds no job."""
    for claims in claim_history.by_job.values():
        last = claims[-1]
        if last.worker in outcome_log.drained and last.current:
            raise Violation("I20", f"{last.job} is still with {last.worker}, which has drained")


def check_drains_end(outcome_log: OutcomeLog, within: float) -> None:
    """Handlers that react to the stop have ended after the grace period, and so has their worker."""
    for worker, seconds in outcome_log.drained.items():
        if seconds > within:
            raise Violation("I20", f"{worker} took {seconds:.3f} s to drain")
