"""Unique keys: which job holds one, and what a second request does (I11)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tidemill.core.jobs import Job, NewJob
from tidemill.core.queues import DAY_SECONDS
from tidemill.core.states import FINAL, LIVE, PENDING, State
from tidemill.core.transitions import create_job
from tidemill.core.unique_keys import Conflict, OnConflict, Unique, holds_key, resolve_conflict

NOW = 1_000.0


def holder(unique: Unique | None, state: State) -> Job:
    return replace(
        create_job(NewJob(id="a", task="t", payload=b"{}", unique=unique), "q", 1, NOW), state=state
    )


@pytest.mark.parametrize("state", sorted(State))
@pytest.mark.parametrize(
    ("unique", "while_live", "when_ended"),
    [
        (None, False, False),
        (Unique("k"), True, False),
        (Unique("k", at_most=10.0), True, False),
        (Unique("k", period=10.0), True, True),
    ],
)
def test_i11_which_job_holds_a_key(
    state: State, unique: Unique | None, while_live: bool, when_ended: bool
) -> None:
    job = holder(unique, state)
    assert holds_key(job, NOW + 9.9) is (while_live if state in LIVE else when_ended)
    if unique is not None and (unique.period or unique.at_most):
        assert not holds_key(job, NOW + 10.0)
    else:
        assert holds_key(job, NOW + 100 * DAY_SECONDS) is (while_live and state in LIVE)


@pytest.mark.parametrize("state", sorted(State))
@pytest.mark.parametrize("on_conflict", ["skip", "replace", "merge", "rerun"])
def test_i11_what_a_second_request_does(state: State, on_conflict: OnConflict) -> None:
    expected: dict[str, tuple[Conflict, Conflict]] = {
        "skip": (Conflict.EXISTING, Conflict.EXISTING),
        "replace": (Conflict.REPLACE, Conflict.SUCCEED),
        "merge": (Conflict.MERGE, Conflict.EXISTING),
        "rerun": (Conflict.MERGE, Conflict.SUCCEED),
    }
    pending, running = expected[on_conflict]
    conflict = resolve_conflict(Unique("k", on_conflict), holder(Unique("k"), state))
    if state in FINAL:
        assert conflict is Conflict.EXISTING
    else:
        assert conflict is (pending if state in PENDING else running)


def test_a_duration_may_be_a_timedelta() -> None:
    minute = timedelta(minutes=1)
    assert holder(Unique("k", period=minute), State.DONE) == holder(Unique("k", period=60.0), State.DONE)
    assert holder(Unique("k", at_most=minute), State.READY) == holder(Unique("k", at_most=60.0), State.READY)
    assert Unique("k", period=minute).problem() is None


@pytest.mark.parametrize(
    ("unique", "field"),
    [
        (Unique(""), "unique.key"),
        (Unique("k" * 201), "unique.key"),
        (Unique("k", period=1.0, at_most=1.0), "unique.period"),
        (Unique("k", period=0.0), "unique.period"),
        (Unique("k", period=timedelta(0)), "unique.period"),
        (Unique("k", at_most=float("inf")), "unique.at_most"),
    ],
)
def test_an_invalid_unique_key_names_the_field(unique: Unique, field: str) -> None:
    problem = unique.problem()
    assert problem is not None
    assert problem.startswith(field)
    assert Unique("k" * 200, period=1.0).problem() is None


@pytest.mark.parametrize("seconds", [0.5, timedelta(milliseconds=1), 1, 10**6])
def test_a_key_may_be_held_for_any_time_above_0(seconds: float | timedelta) -> None:
    assert Unique("k", period=seconds).problem() is None
    assert Unique("k", at_most=seconds).problem() is None
