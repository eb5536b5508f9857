"""I4 Only legal transitions; final states stay final, except an operator's retry."""

from __future__ import annotations

from tests.simulation.trace import Violation
from tests.simulation.watch import Event, identity
from tidemill.core.changes import Archive, Cancel, Delete, Reprioritise, RetryNow, RunNow
from tidemill.core.job import Job
from tidemill.core.states import FINAL, PENDING, TRANSITIONS, State, Verb
from tidemill.core.transitions import REPLACED, is_expired

_CLAIM = {Verb.PROMOTE, Verb.CLAIM, Verb.EXPIRE, Verb.RELEASE}
_INSERT = {Verb.CANCEL, Verb.PROMOTE, Verb.RELEASE}
_STEPS: dict[str, set[Verb]] = {
    "insert": _INSERT,
    "admit": _INSERT,
    "claim": _CLAIM,
    "settle": _CLAIM | {Verb.SETTLE, Verb.CANCEL},
    "extend": {Verb.RECLAIM},
    "reclaim": {Verb.RECLAIM, Verb.RELEASE},
    "prune": {Verb.EXPIRE, Verb.RELEASE},
}
_AMEND: dict[type, set[Verb]] = {
    Cancel: {Verb.CANCEL, Verb.RELEASE},
    Archive: {Verb.ARCHIVE, Verb.RELEASE},
    RetryNow: {Verb.RETRY},
    RunNow: {Verb.RUN},
    Reprioritise: set(),
    Delete: {Verb.RELEASE},
}


def _reachable(steps: frozenset[Verb]) -> dict[State, set[State]]:
    """Where one atomic verb may leave a job: several legal moves in a row."""
    reach = {state: {s for step in steps for s in TRANSITIONS[step].get(state, ())} for state in State}
    for _ in State:
        for targets in reach.values():
            targets.update(*[reach[state] for state in targets])
    return reach


class LegalMoves:
    def __init__(self) -> None:
        self._reach: dict[frozenset[Verb], dict[State, set[State]]] = {}

    def see(self, event: Event) -> None:
        if not event.changes:
            return
        steps = frozenset(_steps_of(event))
        if steps not in self._reach:
            self._reach[steps] = _reachable(steps)
        for id_, (before, after) in event.changes.items():
            if before is None and after is not None:
                _check_birth(event, after)
            elif before is not None and after is None:
                _check_end(event, before)
            elif before is not None and after is not None:
                self._check_move(event, id_, before, after, self._reach[steps])

    def _check_move(
        self, event: Event, id_: str, before: Job, after: Job, reach: dict[State, set[State]]
    ) -> None:
        moved = before.state is not after.state or (
            after.state is State.RUNNING and identity(before) != identity(after)
        )
        if moved and after.state not in reach[before.state]:
            raise Violation("I4", f"{event.verb} moved {id_} from {before.state} to {after.state}")
        if after.seq != before.seq:
            raise Violation("I4", f"{event.verb} took {id_} its place in the queue (J43)")
        new_generation = before.state in FINAL and after.state not in FINAL
        if after.generation != before.generation + new_generation:
            raise Violation(
                "I4", f"{event.verb} made generation {after.generation} of {id_} ({before.generation})"
            )


def _steps_of(event: Event) -> set[Verb]:
    if event.verb == "amend":
        return _AMEND[type(event.call.args[1])]
    return _STEPS.get(event.verb, set())


def _check_birth(event: Event, job: Job) -> None:
    """A request may be replaced by its neighbour in the same insert, an arrival may be refused (J21)."""
    replaced = job.state is State.CANCELLED and job.reason == REPLACED
    refused = job.state is State.FAILED and event.verb in ("admit", "advance")
    if event.verb not in ("insert", "admit", "advance") or not (job.state in PENDING or replaced or refused):
        raise Violation("I4", f"{event.verb} made {job.id} appear as {job.state}")


def _check_end(event: Event, job: Job) -> None:
    """An expired job may be cancelled and dropped by the same prune."""
    ended = job.state in FINAL or (job.state in PENDING and is_expired(job, event.wall))
    deleted = (
        event.verb == "amend" and isinstance(event.call.args[1], Delete) and job.state is not State.RUNNING
    )
    if not deleted and not (event.verb == "prune" and ended):
        raise Violation("I4", f"{event.verb} made {job.id} vanish as {job.state}")
