"""Queue settings, pauses, and which jobs a filter means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.filters import Filter
from tidemill.core.job import Group, Job, NewJob, problem_with
from tidemill.core.matching import matches
from tidemill.core.queues import Pause, QueueSettings, Retention
from tidemill.core.states import State

FIELDS = {
    "ids": (("a", "b"), ("b",)),
    "queue": ("q", "p"),
    "states": ((State.READY,), (State.DONE,)),
    "task": ("t", "u"),
    "key": ("k", "l"),
    "tag": ("red", "blue"),
    "since": (10.0, 10.1),
    "until": (10.1, 10.0),
}
JOB = Job(
    seq=1,
    id="a",
    queue="q",
    task="t",
    payload=b"{}",
    state=State.READY,
    priority=5,
    lane="k",
    created=10.0,
    due=10.0,
    tags=("red", "green"),
)


@given(chosen=st.dictionaries(st.sampled_from(sorted(FIELDS)), st.booleans()))
def test_every_field_that_is_set_must_match(chosen: dict[str, bool]) -> None:
    fields = {field: FIELDS[field][0 if fits else 1] for field, fits in chosen.items()}
    assert matches(Filter(**fields), JOB) is all(chosen.values())  # type: ignore[arg-type]


def test_nothing_named_is_nothing_meant() -> None:
    assert not matches(Filter(ids=()), JOB)
    assert not matches(Filter(states=()), JOB)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (QueueSettings(weight=0), "weight"),
        (QueueSettings(crash_limit=0), "crash_limit"),
        (QueueSettings(concurrency=0), "concurrency"),
        (QueueSettings(key_concurrency=-1), "key_concurrency"),
        (QueueSettings(max_length=0), "max_length"),
    ],
)
def test_a_setting_that_cannot_work_is_told_by_field(settings: QueueSettings, field: str) -> None:
    problem = settings.problem()
    assert problem is not None
    assert problem.startswith(field)
    assert QueueSettings().problem() is None


def test_each_end_has_its_own_retention() -> None:
    done, failed, cancelled = Retention(1.0), Retention(2.0), Retention(3.0)
    settings = QueueSettings(keep_done=done, keep_failed=failed, keep_cancelled=cancelled)
    kept = [settings.retention(state) for state in (State.DONE, State.FAILED, State.CANCELLED)]
    assert kept == [done, failed, cancelled]


def test_a_pause_ends_at_its_time_and_not_before() -> None:
    assert Pause(0.0).closed(10**12)
    assert Pause(0.0, until=5.0).closed(4.999)
    assert not Pause(0.0, until=5.0).closed(5.0)


def test_the_first_problem_of_a_group_names_field_and_job() -> None:
    good, bad = NewJob(id="a", task="t", payload=b"{}"), NewJob(id="b", task="", payload=b"{}")
    assert problem_with(Group("q", (good,))) is None
    problem = problem_with(Group("q", (good, bad)))
    assert problem is not None
    assert problem.startswith("task")
    assert "'b'" in problem
    assert (problem_with(Group("", ())) or "").startswith("queue")
