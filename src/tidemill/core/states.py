"""The states of a job, and the table of the state changes that are allowed."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """The state of a job."""

    SCHEDULED = "scheduled"
    READY = "ready"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Verb(StrEnum):
    """A store method that changes the state of a job. Each method allows its own state changes, see
    TRANSITIONS."""

    PROMOTE = "promote"
    CLAIM = "claim"
    SETTLE = "settle"
    RECLAIM = "reclaim"
    CANCEL = "cancel"
    ARCHIVE = "archive"
    EXPIRE = "expire"
    RELEASE = "release"
    RETRY = "retry"
    RUN = "run"
    MERGE = "merge"


FINAL: Final = frozenset({State.DONE, State.FAILED, State.CANCELLED})
PENDING: Final = frozenset({State.SCHEDULED, State.READY, State.WAITING})
LIVE: Final = PENDING | {State.RUNNING}

TRANSITIONS: Final[dict[Verb, dict[State, frozenset[State]]]] = {
    Verb.PROMOTE: {State.SCHEDULED: frozenset({State.READY})},
    Verb.CLAIM: {State.READY: frozenset({State.RUNNING})},
    Verb.SETTLE: {State.RUNNING: frozenset({State.READY, State.SCHEDULED}) | FINAL},
    Verb.RECLAIM: {State.RUNNING: frozenset({State.READY, State.FAILED})},
    Verb.CANCEL: {state: frozenset({State.CANCELLED}) for state in LIVE},
    Verb.ARCHIVE: {state: frozenset({State.FAILED}) for state in PENDING},
    Verb.EXPIRE: {state: frozenset({State.CANCELLED}) for state in PENDING},
    Verb.RELEASE: {State.WAITING: frozenset({State.READY, State.SCHEDULED})},
    Verb.RETRY: {state: frozenset({State.READY}) for state in FINAL},
    Verb.RUN: {State.SCHEDULED: frozenset({State.READY})},
    Verb.MERGE: {State.SCHEDULED: frozenset({State.READY})},
}


class IllegalTransition(Exception):
    """Raised when a store tries a state change that TRANSITIONS does not allow."""


def is_legal(verb: Verb, before: State, after: State) -> bool:
    return after in TRANSITIONS[verb].get(before, frozenset())


def require_legal(verb: Verb, before: State, after: State) -> State:
    if not is_legal(verb, before, after):
        raise IllegalTransition(f"{verb} does not move a job from {before} to {after}")
    return after
