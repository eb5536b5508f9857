"""Numbers and times as providers write them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.feedback.fake_responses import PER_MINUTE, gemini_error
from tidemill.feedback import read_feedback
from tidemill.feedback.generic_http import (
    MAX_WAIT_SECONDS,
    parse_duration,
    parse_http_date,
    parse_number,
    parse_timestamp,
)


@given(seconds=st.integers(0, 10**6), nanos=st.integers(0, 999_999_999), as_text=st.booleans())
def test_a_duration_is_the_same_as_text_and_as_protobufs_mapping(
    seconds: int, nanos: int, as_text: bool
) -> None:
    """Protobuf's JSON writes 64-bit numbers as text."""
    wanted = pytest.approx(seconds + nanos / 1e9)
    assert parse_duration({"seconds": f"{seconds}" if as_text else seconds, "nanos": nanos}) == wanted
    assert parse_duration(f"{seconds}.{nanos:09}s") == wanted


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ({"seconds": 20, "nanos": 40_000_000}, 20.04),
        ({"seconds": 20}, 20.0),
        ({"nanos": 500_000_000}, 0.5),
        ({"seconds": "soon"}, None),
        ({"seconds": 1, "nanos": "few"}, None),
        ({"seconds": 10**9}, MAX_WAIT_SECONDS),
        ("6m0s", 360.0),
        ("1h 2m 3s", 3723.0),
        ("12ms", 0.012),
        ("2d", 172_800.0),
        (20, 20.0),
        ("20", 20.0),
        (10**9, MAX_WAIT_SECONDS),
        ("400d", MAX_WAIT_SECONDS),
        ("20s later", None),
        ("", None),
        (None, None),
        ("1s" * 32, 32.0),
        ("1s" * 33, None),
    ],
)
def test_durations(value: object, seconds: float | None) -> None:
    assert parse_duration(value) == (None if seconds is None else pytest.approx(seconds))


def test_a_mapping_of_nanos_is_the_hint_of_a_refusal() -> None:
    body = gemini_error((PER_MINUTE, "10"), delay={"seconds": 20, "nanos": 40_000_000})
    found = read_feedback((429, {}, body), now=1.8e9).refusal
    assert found is not None
    assert found.retry_after == pytest.approx(20.04)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (True, None),
        (False, None),
        (0, 0.0),
        (-1, None),
        (float("nan"), None),
        (float("inf"), None),
        (1e15, None),
        (999_999_999_999_999, 999_999_999_999_999.0),
        (" 12 ", 12.0),
        ("1.5", 1.5),
        ("1e5", None),
        ("-1", None),
    ],
)
def test_numbers(value: object, found: float | None) -> None:
    assert parse_number(value) == found


@pytest.mark.usefixtures("_far_from_utc")
def test_a_time_without_an_offset_is_utc_wherever_the_machine_is() -> None:
    for text in ("2026-11-16T12:00:00", "2026-11-16T12:00:00Z", "2026-11-16T20:00:00+08:00"):
        assert parse_timestamp(text) == 1_794_830_400.0
    for text in ("Mon, 16 Nov 2026 12:00:00 GMT", "Mon, 16 Nov 2026 12:00:00"):
        assert parse_http_date(text) == 1_794_830_400.0


@pytest.mark.parametrize("read_time", [parse_timestamp, parse_http_date])
@pytest.mark.parametrize("value", [None, 12, "", "soon", "9" * 65, "99999999-99-99"])
def test_an_invalid_time_is_none(read_time: Callable[[object], float | None], value: object) -> None:
    assert read_time(value) is None


@pytest.fixture
def _far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
