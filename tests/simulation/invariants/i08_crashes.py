"""I8 Attempts and crashes are counted apart; poison only by crashing alone; a lost reply is no crash."""

from __future__ import annotations

from tests.simulation.facts import Facts
from tests.simulation.ledger import Ledger
from tests.simulation.trace import Violation
from tests.simulation.watch import Event, identity
from tidemill.core.job import Job
from tidemill.core.outcomes import Answer, Crashed, Done, Fail, Outcome, Retrying
from tidemill.core.states import State
from tidemill.core.transitions import POISON

CRASH_LIMIT = 3
ATTEMPTS = 3


class Crashes:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def see(self, event: Event) -> None:
        outcomes = _accepted(event)
        for id_, (before, after) in event.changes.items():
            if before is None or after is None or after.generation != before.generation:
                continue
            self._check_counts(event, before, after, outcomes.get(id_))
            if after.state is State.FAILED and after.reason == POISON and before.state is not State.FAILED:
                self._check_poison(event, before, after, outcomes.get(id_))

    def _check_counts(self, event: Event, before: Job, after: Job, outcome: Outcome | None) -> None:
        charged = isinstance(outcome, Done | Fail | Retrying)
        merged = event.verb in ("insert", "admit") and after.attempts == 0
        if after.attempts != before.attempts + charged and not merged:
            raise Violation(
                "I8", f"{event.verb} made {after.attempts} attempts of {before.attempts} on {after.id}"
            )
        if after.attempts > ATTEMPTS:
            raise Violation("I8", f"{after.id} was given {after.attempts} attempts, its task has {ATTEMPTS}")
        crashes = before.crashes + isinstance(outcome, Crashed)
        if event.verb == "reclaim" and before.state is State.RUNNING:
            claim = self._facts.claim(before.id, *identity(before))
            alone = claim is not None and claim.alone
            crashes = before.crashes + 1 if alone else max(1, before.crashes)
        if after.crashes != crashes:
            raise Violation(
                "I8", f"{event.verb} made {after.crashes} crashes of {before.crashes} on {after.id}"
            )

    def _check_poison(self, event: Event, before: Job, after: Job, outcome: Outcome | None) -> None:
        claim = self._facts.claim(before.id, *identity(before))
        now = claim is not None and claim.alone and (event.verb == "reclaim" or isinstance(outcome, Crashed))
        alone = self._facts.lone_crashes[after.id, after.generation] + now
        if alone < CRASH_LIMIT - 1:
            raise Violation("I8", f"{after.id} failed as poison after {alone} crashes of its own")


def _accepted(event: Event) -> dict[str, Outcome]:
    if event.verb != "settle":
        return {}
    pairs = zip(event.call.args[0], event.reply.answers, strict=True)
    return {
        item.job: item.charged if answer is Answer.CHARGED else item.outcome
        for item, answer in pairs
        if answer in (Answer.OK, Answer.CHARGED)
    }


def check_alone(ledger: Ledger, facts: Facts) -> None:
    """At the end: a handler of a job with a crash on record had its process to itself."""
    for run in ledger.starts:
        claims = [c for c in facts.by_job.get(run.job, ()) if c.worker == run.worker and c.at <= run.at]
        if claims and claims[-1].alone and not run.isolated:
            raise Violation("I8", f"{run.job} has a crash on record and ran in company on {run.worker}")
