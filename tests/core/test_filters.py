"""Which jobs a filter matches."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidemill.core.filters import Filter, fold_case, matches_filter
from tidemill.core.jobs import Job
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
    assert matches_filter(Filter(**fields), JOB) is all(chosen.values())  # type: ignore[arg-type]


def test_an_empty_list_of_ids_matches_no_job() -> None:
    assert not matches_filter(Filter(ids=()), JOB)
    assert not matches_filter(Filter(states=()), JOB)


storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


def job(payload: object) -> Job:
    return Job(
        seq=1,
        id="a",
        queue="q",
        task="t",
        payload=payload if isinstance(payload, bytes) else msgspec.json.encode(payload),
        state=State.READY,
        priority=5,
        lane="",
        created=10.0,
        due=10.0,
    )


@given(before=storable, text=storable, after=storable)
def test_r2_a_text_is_found_inside_any_payload(before: str, text: str, after: str) -> None:
    there = job({"words": [before + text + after]})
    assert matches_filter(Filter(text=text), there)
    assert matches_filter(Filter(text=fold_case(text)), there)


@given(words=storable, text=storable)
def test_r2_a_text_is_not_found_where_it_is_not(words: str, text: str) -> None:
    """Neither inside an escape sequence nor in the JSON around the text."""
    here = job({words: 7}), job([words]), job(msgspec.json.encode([words]).replace(b"/", b"\\/"))
    assume(fold_case(text) != "t")  # the task's name
    expected = fold_case(text) in fold_case(words)
    assert [matches_filter(Filter(text=text), one) for one in here] == [
        expected or text == "7",
        expected,
        expected,
    ]


@given(value=storable)
def test_r2_a_field_matches_its_value(value: str) -> None:
    there = job({"a": [{"b": value}, [{"b": {"c": value}}]]})
    assert matches_filter(Filter(fields=(("a.b", value),)), there)
    assert matches_filter(Filter(fields=(("a.b.c", value),)), there)
    assert not matches_filter(Filter(fields=(("a.b", value + "x"),)), there)


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff\\u", b"[" * 100_000, b"null", b'"a"', b"{}"])
def test_r2_an_invalid_payload_has_no_fields_and_stops_no_search(payload: bytes) -> None:
    assert not matches_filter(Filter(fields=(("a", "b"),)), job(payload))
    assert not matches_filter(Filter(text="nowhere"), job(payload))


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (Filter(text=""), "text"),
        (Filter(text="a\0"), "text"),
        (Filter(tag="\ud800"), "tag"),
        (Filter(since=float("inf")), "since"),
        (Filter(until=float("nan")), "until"),
        (Filter(fields=(("a.", "x"),)), "fields"),
        (Filter(fields=(("a", "\ud800"),)), "fields"),
        (Filter(states=("faild",)), "states"),  # type: ignore[arg-type]
        (Filter(states="failed"), "states"),  # type: ignore[arg-type]
        (Filter(states=([],)), "states"),  # type: ignore[arg-type]
        (Filter(time="begun"), "time"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_filter_names_the_field(wanted: Filter, field: str) -> None:
    assert (wanted.problem() or "").startswith(f"{field}:")
    assert Filter(text="x", fields=(("a.b", ""),)).problem() is None


def test_a_state_may_be_given_as_text() -> None:
    wanted = Filter(states=("ready",))  # type: ignore[arg-type]
    assert wanted.problem() is None
    assert matches_filter(wanted, job(b"{}"))
