"""I1 An accepted job is in exactly one state after any fault. Lost = 0.

A job counts as done only if the ledger saw its handler commit: done without that is lost work."""

from __future__ import annotations

from tests.simulation.facts import Facts
from tests.simulation.ledger import Ledger
from tests.simulation.trace import Violation
from tidemill.core.job import Job
from tidemill.core.states import FINAL, State


def check_nothing_lost(ledger: Ledger, facts: Facts, jobs: dict[str, Job]) -> None:
    for id_ in ledger.accepted:
        if id_ not in jobs and id_ not in facts.deleted:
            raise Violation("I1", f"{id_} was accepted and is nowhere")


def check_all_ended(jobs: dict[str, Job], arrivals: int) -> None:
    """When faults have stopped and workers know every task, everything comes to an end."""
    if arrivals:
        raise Violation("I1", f"{arrivals} arrivals were never admitted")
    for job in jobs.values():
        if job.state not in FINAL:
            raise Violation("I1", f"{job.id} is still {job.state} long after the last fault: {job}")


def check_done_was_run(ledger: Ledger, facts: Facts, jobs: dict[str, Job]) -> None:
    committed = {(run.job, run.generation) for run in ledger.commits}
    last_versions = [job for _, job in facts.deleted.values()]
    for job in [*jobs.values(), *last_versions]:
        if job.state is State.DONE and (job.id, job.generation) not in committed:
            raise Violation("I1", f"{job.id} is done, and no handler of it ever got to its end")
