"""What a searched text or payload field matches: the rule every store keeps (R2)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.filters import Filter, as_json_text, folded, matches
from tidemill.core.job import Job
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
    """Letters of the escapes and of the JSON around a text are found too; a digit is in neither."""
    text = f"0{text}0"
    assert matches(Filter(text=text), job([words])) is (
        as_json_text(text).lower() in as_json_text(words).lower()
    )


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
    ],
)
def test_a_filter_that_means_nothing_is_told_by_field(wanted: Filter, field: str) -> None:
    assert (wanted.problem() or "").startswith(f"{field}:")
    assert Filter(text="x", fields=(("a.b", ""),)).problem() is None
