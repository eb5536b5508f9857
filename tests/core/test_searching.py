"""What a searched text or payload field matches: the rule every store keeps (R2)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.matching import folded, matches
from tidemill.core.states import State

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
def test_r2_a_text_is_found_in_whatever_surrounds_it(before: str, text: str, after: str) -> None:
    there = job({"words": [before + text + after]})
    assert matches(Filter(text=text), there)
    assert matches(Filter(text=folded(text)), there)


@given(words=storable, text=storable)
def test_r2_and_not_where_it_is_not(words: str, text: str) -> None:
    """Neither in what an escape is written with nor in the JSON around the words."""
    here = job({words: 7}), job([words]), job(msgspec.json.encode([words]).replace(b"/", b"\\/"))
    assume(folded(text) != "t")  # the task's name
    expected = folded(text) in folded(words)
    assert [matches(Filter(text=text), one) for one in here] == [expected or text == "7", expected, expected]


@given(value=storable)
def test_r2_a_field_has_its_value(value: str) -> None:
    there = job({"a": [{"b": value}, [{"b": {"c": value}}]]})
    assert matches(Filter(fields=(("a.b", value),)), there)
    assert matches(Filter(fields=(("a.b.c", value),)), there)
    assert not matches(Filter(fields=(("a.b", value + "x"),)), there)


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff\\u", b"[" * 100_000, b"null", b'"a"', b"{}"])
def test_r2_a_strange_payload_has_no_fields_and_ends_no_search(payload: bytes) -> None:
    assert not matches(Filter(fields=(("a", "b"),)), job(payload))
    assert not matches(Filter(text="nowhere"), job(payload))


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
def test_a_filter_that_means_nothing_is_told_by_field(wanted: Filter, field: str) -> None:
    assert (wanted.problem() or "").startswith(f"{field}:")
    assert Filter(text="x", fields=(("a.b", ""),)).problem() is None


def test_a_state_may_be_given_by_its_word() -> None:
    wanted = Filter(states=("ready",))  # type: ignore[arg-type]
    assert wanted.problem() is None
    assert matches(wanted, job(b"{}"))
