"""I6 A stale write changes nothing and is told so."""

from __future__ import annotations

from tests.simulation.facts import Facts
from tests.simulation.trace import Violation
from tests.simulation.watch import Event, identity
from tidemill.core.claims import Heartbeat, Settlement
from tidemill.core.job import Job
from tidemill.core.outcomes import Answer
from tidemill.core.states import State


class StaleWrites:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def see(self, event: Event) -> None:
        if event.verb == "settle":
            self._see_settle(event)
        elif event.verb == "extend":
            self._see_extend(event)

    def _see_settle(self, event: Event) -> None:
        settlements: tuple[Settlement, ...] = event.call.args[0]
        written: set[str] = set()
        for item, answer in zip(settlements, event.reply.answers, strict=True):
            claim = self._facts.claim(item.job, item.fence, item.claim)
            current = claim is not None and claim.current and item.job not in written
            if current != (answer in (Answer.OK, Answer.CHARGED)):
                raise Violation(
                    "I6", f"settling {item.job} ({'current' if current else 'stale'}) was told {answer}"
                )
            if answer is Answer.AGAIN and item.job not in written and (claim is None or not claim.settled):
                raise Violation("I6", f"settling {item.job} was told again, but this claim never settled it")
            if answer in (Answer.OK, Answer.CHARGED):
                written.add(item.job)
        for item in settlements:
            before, after = event.changes.get(item.job, (None, None))
            if item.job not in written and before is not None and after is not None:
                _require_unwritten(before, after)

    def _see_extend(self, event: Event) -> None:
        heartbeat: Heartbeat = event.call.args[0]
        for held in heartbeat.held:
            current = self._facts.is_current(held.job, held.fence, held.claim)
            if current == (held.job in event.reply.lost):
                word = "current, but told that it is lost" if current else "stale, and not told so"
                raise Violation("I6", f"the heartbeat's claim on {held.job} is {word}")
            before, after = event.changes.get(held.job, (None, None))
            if current or before is None or after is None or held.job in event.reply.returned:
                continue
            raise Violation("I6", f"a stale heartbeat changed {held.job}")


def _require_unwritten(before: Job, after: Job) -> None:
    """A refused settlement left no trace; the same verb may still have claimed or expired the job."""
    same = (before.attempts, before.crashes, before.result) == (after.attempts, after.crashes, after.result)
    taken = before.state is State.RUNNING and identity(before) != identity(after)
    if not same or taken or (before.state is State.RUNNING and after.state is not State.RUNNING):
        raise Violation("I6", f"a refused settlement changed {before.id} ({before.state} → {after.state})")


def check_logs(facts: Facts, job: str, lines: set[str]) -> None:
    """At the end: every line kept with a job was sent by its holder of the time."""
    if stray := lines - facts.logged.get(job, set()):
        raise Violation("I6", f"{job} keeps log lines of a stale holder: {sorted(stray)[:3]}")
