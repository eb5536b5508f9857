"""Invalid new jobs are refused before a store sees them, and the message names the field."""

from __future__ import annotations

import math

import pytest

from tidemill.core.batching import MAX_BATCH_ITEMS, BatchPolicy
from tidemill.core.jobs import PRIORITY_RANGE, JobGroup, NewJob, problem_with_group
from tidemill.core.needs import Need


def problem(**given: object) -> str | None:
    fields = {"id": "a", "task": "t", "payload": b"{}", **given}
    return problem_with_group(JobGroup("q", (NewJob(**fields),)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ""),
        ("id", "a\0b"),
        ("id", "a\ud800"),
        ("task", ""),
        ("task", "t\0"),
        ("key", ""),
        ("key", "\0"),
        ("key", "a\x1fb"),
        ("trace", "\0"),
        ("tags", ("fine", "\ud800")),
        ("payload", b'"\xff"'),
        ("payload", '"a"'.encode("utf-16")),
        ("priority", PRIORITY_RANGE[0] - 1),
        ("priority", PRIORITY_RANGE[1] + 1),
        *((field, bad) for field in ("delay", "expires", "timeout") for bad in (-1.0, math.inf, math.nan)),
        ("at", math.inf),
        ("at", math.nan),
        ("needs", (Need("p"), Need("p"))),
    ],
)
def test_an_unstorable_field_is_named(field: str, value: object) -> None:
    assert (problem(**{field: value}) or "").startswith(f"{field}: ")


@pytest.mark.parametrize("need", [Need(""), Need("a\x1f"), Need("\0")])
def test_an_unstorable_pool_name_is_refused(need: Need) -> None:
    assert (problem(needs=(need,)) or "").startswith("pool: ")


def test_an_unstorable_pool_key_is_refused() -> None:
    assert (problem(needs=(Need("p", "a\x1f"),)) or "").startswith("pool key: ")


def test_a_call_names_only_pools_the_job_needs() -> None:
    assert problem(batching=BatchPolicy(max_items=3, call={"p": {}}), needs=(Need("p"),)) is None
    assert (problem(batching=BatchPolicy(max_items=3, call={"p": {}})) or "").startswith("call: ")


@pytest.mark.parametrize("bad", [-1.0, math.inf, math.nan])
def test_an_impossible_batch_policy_is_refused(bad: float) -> None:
    for field, rule in (
        ("linger", BatchPolicy(max_items=3, linger=bad)),
        ("max_units", BatchPolicy(max_items=3, max_units={"tokens": bad})),
        ("call", BatchPolicy(max_items=3, call={"p": {"tokens": bad}})),
    ):
        assert (problem(batching=rule, needs=(Need("p"),)) or "").startswith(f"{field}: ")


@pytest.mark.parametrize("items", [0, MAX_BATCH_ITEMS + 1])
def test_a_batch_has_a_size(items: int) -> None:
    assert (problem(batching=BatchPolicy(max_items=items)) or "").startswith("max_items: ")
    nothing = BatchPolicy(max_items=3, max_units={"tokens": 0.0})
    assert (problem(batching=nothing) or "").startswith("max_units: ")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"batching": BatchPolicy(max_items=1, call={"p": {"tokens": 0.0}}), "needs": (Need("p"),)},
        {"batching": BatchPolicy(max_items=MAX_BATCH_ITEMS, linger=0.0)},
        {"priority": PRIORITY_RANGE[0]},
        {"priority": PRIORITY_RANGE[1]},
        {"payload": '"Grüße, 世界"'.encode()},
        {"id": "Grüße", "task": "世界", "key": "ключ"},
        {"delay": 0.0, "expires": 0.0, "timeout": 0.0, "at": -5.0},
        {"needs": (Need("p"), Need("p", "k"), Need("q"))},
        {"trace": "00-ab-cd-01", "tags": ("a", "b")},
    ],
)
def test_a_storable_job_is_accepted(given: dict[str, object]) -> None:
    assert problem(**given) is None


def test_the_first_problem_of_a_group_names_field_and_job() -> None:
    good, bad = NewJob(id="a", task="t", payload=b"{}"), NewJob(id="b", task="", payload=b"{}")
    assert problem_with_group(JobGroup("q", (good,))) is None
    problem = problem_with_group(JobGroup("q", (good, bad)))
    assert problem is not None
    assert problem.startswith("task")
    assert "'b'" in problem
    assert (problem_with_group(JobGroup("", ())) or "").startswith("queue")
