"""What is refused about a new job before a store sees it, and which field the answer names."""

from __future__ import annotations

import math

import pytest

from tidemill.core.batching import MOST_ITEMS, Batching
from tidemill.core.job import PRIORITY_RANGE, Group, NewJob, problem_with
from tidemill.core.needs import Need


def problem(**given: object) -> str | None:
    fields = {"id": "a", "task": "t", "payload": b"{}", **given}
    return problem_with(Group("q", (NewJob(**fields),)))  # type: ignore[arg-type]


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
def test_a_field_no_store_can_keep_is_named(field: str, value: object) -> None:
    assert (problem(**{field: value}) or "").startswith(f"{field}: ")


@pytest.mark.parametrize("need", [Need(""), Need("a\x1f"), Need("\0")])
def test_a_pool_of_a_name_no_store_can_keep(need: Need) -> None:
    assert (problem(needs=(need,)) or "").startswith("pool: ")


def test_a_key_of_a_pool_no_store_can_keep() -> None:
    assert (problem(needs=(Need("p", "a\x1f"),)) or "").startswith("pool key: ")


def test_a_call_names_only_pools_the_job_needs() -> None:
    assert problem(batching=Batching(max_items=3, call={"p": {}}), needs=(Need("p"),)) is None
    assert (problem(batching=Batching(max_items=3, call={"p": {}})) or "").startswith("call: ")


@pytest.mark.parametrize("bad", [-1.0, math.inf, math.nan])
def test_a_batch_of_impossible_measures_is_refused(bad: float) -> None:
    for field, rule in (
        ("linger", Batching(max_items=3, linger=bad)),
        ("max_units", Batching(max_items=3, max_units={"tokens": bad})),
        ("call", Batching(max_items=3, call={"p": {"tokens": bad}})),
    ):
        assert (problem(batching=rule, needs=(Need("p"),)) or "").startswith(f"{field}: ")


@pytest.mark.parametrize("items", [0, MOST_ITEMS + 1])
def test_a_batch_has_a_size(items: int) -> None:
    assert (problem(batching=Batching(max_items=items)) or "").startswith("max_items: ")
    nothing = Batching(max_items=3, max_units={"tokens": 0.0})
    assert (problem(batching=nothing) or "").startswith("max_units: ")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"batching": Batching(max_items=1, call={"p": {"tokens": 0.0}}), "needs": (Need("p"),)},
        {"batching": Batching(max_items=MOST_ITEMS, linger=0.0)},
        {"priority": PRIORITY_RANGE[0]},
        {"priority": PRIORITY_RANGE[1]},
        {"payload": '"Grüße, 世界"'.encode()},
        {"id": "Grüße", "task": "世界", "key": "ключ"},
        {"delay": 0.0, "expires": 0.0, "timeout": 0.0, "at": -5.0},
        {"needs": (Need("p"), Need("p", "k"), Need("q"))},
        {"trace": "00-ab-cd-01", "tags": ("a", "b")},
    ],
)
def test_what_every_store_can_keep_is_accepted(given: dict[str, object]) -> None:
    assert problem(**given) is None
