"""The one table of legal moves (I4)."""

from __future__ import annotations

import pytest

from tidemill.core.states import (
    FINAL,
    LIVE,
    PENDING,
    TRANSITIONS,
    IllegalTransition,
    State,
    Verb,
    legal,
    require,
)


def test_every_verb_has_its_moves() -> None:
    assert set(TRANSITIONS) == set(Verb)


def test_states_are_final_or_live_and_running_is_not_pending() -> None:
    assert set(State) == FINAL | LIVE
    assert not FINAL & LIVE
    assert {State.RUNNING} == LIVE - PENDING


@pytest.mark.parametrize("verb", sorted(set(Verb) - {Verb.RETRY}))
@pytest.mark.parametrize("state", sorted(FINAL))
def test_i4_only_an_operators_retry_leaves_a_final_state(verb: Verb, state: State) -> None:
    assert not any(legal(verb, state, after) for after in State)


def test_i4_only_a_claim_starts_a_job() -> None:
    starters = {verb for verb in Verb for before in State if legal(verb, before, State.RUNNING)}
    assert starters == {Verb.CLAIM}


def test_i4_a_claim_takes_ready_jobs_only() -> None:
    assert [state for state in State if legal(Verb.CLAIM, state, State.RUNNING)] == [State.READY]


def test_only_a_release_lets_a_waiting_job_run() -> None:
    ways = {verb for verb in Verb for after in LIVE if legal(verb, State.WAITING, after)}
    assert ways == {Verb.RELEASE}


def test_an_illegal_move_is_refused_by_name() -> None:
    with pytest.raises(IllegalTransition, match="claim does not move a job from done to running"):
        require(Verb.CLAIM, State.DONE, State.RUNNING)
    assert require(Verb.CLAIM, State.READY, State.RUNNING) is State.RUNNING
