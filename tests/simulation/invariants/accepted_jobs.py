"""I1, I2, I3, I9: accepted jobs are neither lost, invented nor duplicated."""

from __future__ import annotations

from tests.simulation.claim_history import ClaimHistory
from tests.simulation.invariants.deadlines import admitted, sent
from tests.simulation.outcome_log import OutcomeLog
from tests.simulation.store_monitor import VerbEvent
from tests.simulation.trace import Violation
from tidemill.core.jobs import Job
from tidemill.core.queues import InsertResult, InsertVerdict
from tidemill.core.states import FINAL, State


def check_nothing_lost(outcome_log: OutcomeLog, claim_history: ClaimHistory, jobs: dict[str, Job]) -> None:
    for id_ in outcome_log.accepted:
        if id_ not in jobs and id_ not in claim_history.deleted:
            raise Violation("I1", f"{id_} was accepted and is nowhere")


def check_all_ended(jobs: dict[str, Job], arrivals: int) -> None:
    """Every job ends after the faults have stopped, if the workers know every task."""
    if arrivals:
        raise Violation("I1", f"{arrivals} arrivals were never admitted")
    for job in jobs.values():
        if job.state not in FINAL:
            raise Violation("I1", f"{job.id} is still {job.state} long after the last fault: {job}")


def check_done_was_run(outcome_log: OutcomeLog, claim_history: ClaimHistory, jobs: dict[str, Job]) -> None:
    committed = {(run.job, run.generation) for run in outcome_log.commits}
    last_versions = [job for _, job in claim_history.deleted.values()]
    for job in [*jobs.values(), *last_versions]:
        if job.state is State.DONE and (job.id, job.generation) not in committed:
            raise Violation("I1", f"{job.id} is done, and no handler of it ever got to its end")


class OnlySubmitted:
    """A merge gives the holder the payload of a request that was answered with the holder's id."""

    def __init__(self, outcome_log: OutcomeLog) -> None:
        self._outcome_log = outcome_log

    def see(self, event: VerbEvent) -> None:
        accepted = [(request.payload, answer.id) for request, answer in sent(event)]
        accepted += [(admission.arrival.payload, admission.arrival.id) for admission in admitted(event)]
        for id_, (before, after) in event.changes.items():
            if after is None or (before is not None and before.payload == after.payload):
                continue
            if id_ not in self._outcome_log.sent:
                raise Violation("I2", f"{id_} is in the store, and nobody sent it")
            if after.payload not in {payload for payload, stands_for in accepted if stands_for == id_}:
                raise Violation("I2", f"{event.verb} gave {id_} the payload {after.payload!r}")


REMEMBERED = 3600.0


class Once:
    def __init__(self, claim_history: ClaimHistory) -> None:
        self._claim_history = claim_history
        self._first: dict[str, InsertResult] = {}
        self._gone_at: dict[str, float] = {}

    def see(self, event: VerbEvent) -> None:
        for job in event.deleted():
            self._gone_at[job.id] = event.boot
        for job in event.created():
            if job.id in self._gone_at and event.boot - self._gone_at[job.id] < REMEMBERED:
                raise Violation("I3", f"{job.id} was made a second time after it was gone")
        if event.verb == "insert":
            for request, answer in sent(event):
                self._check_verdict(request.id, answer)

    def _check_verdict(self, id_: str, answer: InsertResult) -> None:
        """A refused request left nothing in the store, and may be accepted when it is sent again."""
        first = self._first.get(id_)
        if first is not None and (first.verdict, first.id) != (answer.verdict, answer.id):
            raise Violation("I3", f"{id_} was first told {first}, then {answer}")
        if answer.verdict in (InsertVerdict.ACCEPTED, InsertVerdict.EXISTING):
            self._first[id_] = answer


class Conservation:
    """Counts the jobs that inserts create; nothing else adds jobs, and only prune and delete remove them."""

    def __init__(self, claim_history: ClaimHistory) -> None:
        self._claim_history = claim_history
        self._made: set[str] = set()

    def see(self, event: VerbEvent) -> None:
        self._made.update(job.id for job in event.created())
        kept = set(event.jobs)
        gone = set(self._claim_history.deleted) | {job.id for job in event.deleted()}
        if event.changes and self._made != kept | (gone - kept):
            missing = sorted(self._made - kept - gone)
            raise Violation("I9", f"after {event.verb}: {missing} are neither kept nor pruned")

    def check_counts(self, counts: dict[str, dict[State, int]]) -> None:
        total = sum(sum(states.values()) for states in counts.values())
        if total + len(self._claim_history.deleted) != len(self._made):
            raise Violation(
                "I9", f"{len(self._made)} made, {total} kept, {len(self._claim_history.deleted)} gone"
            )
