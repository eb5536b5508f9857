"""How values are written on pages."""

from __future__ import annotations

import math

import pytest

from tidemill.core.numbers import format_bytes
from tidemill.times import seconds_of
from tidemill.web import formats
from tidemill.web.drawing import address, links


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (1_234_567, "1,234,567"),
        (0.5, "0.50"),
        (54_000.0, "54,000"),
        (2_000_000.0, "2,000,000"),
        (-1234.5, "-1,234.50"),
        (math.inf, "inf"),
    ],
)
def test_numbers_are_exact_and_grouped(value: float, said: str) -> None:
    assert formats.number(value) == said


@pytest.mark.parametrize(
    ("size", "said"), [(0, "0 B"), (999, "999 B"), (4_390_000, "4.39 MB"), (2e15, "2e+03 TB")]
)
def test_sizes(size: float, said: str) -> None:
    assert format_bytes(size) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0, "0s"), (90.5, "90.5s"), (5400.0, "1h30m"), (604_800.0, "7d"), (1_234_567.0, "14d6h56m7s")],
)
def test_a_duration_in_a_field_is_read_as_it_is_written(seconds: float, said: str) -> None:
    assert formats.typed(seconds) == said
    assert seconds_of(said) == seconds


def test_no_duration_is_an_empty_field() -> None:
    assert formats.typed(None) == ""


def test_a_time_that_no_calendar_knows_is_told_as_it_is() -> None:
    assert (formats.iso(0), formats.clock(0)) == ("1970-01-01T00:00:00Z", "1970-01-01 00:00:00 UTC")
    assert (formats.iso(1e300), formats.clock(1e300)) == ("", "Unix time 1e+300")


@pytest.mark.parametrize(("ahead", "step"), [(30, 60), (7100, 60), (7300, 600), (200_000, 3600)])
def test_a_forecast_is_no_finer_than_it_is_worth(ahead: float, step: float) -> None:
    shown = formats.rounded(1_000_000_007 + ahead, 1_000_000_007)
    assert shown % step == 0
    assert 0 <= shown - 1_000_000_007 - ahead < step


def test_a_line_goes_through_every_value_within_its_frame() -> None:
    points = [tuple(map(float, point.split(","))) for point in formats.points([0, 5, 10]).split()]
    assert points == [(0, 19), (50, 10), (100, 1)]
    assert formats.points([]) == ""
    assert formats.points([0, 0]) == "0.0,19.0 100.0,19.0"


def test_a_link_holds_whatever_its_parts_are_made_of() -> None:
    link = links("/board")
    assert link("/jobs/{}", 'a/b?c#"é') == "/board/jobs/a%2Fb%3Fc%23%22%C3%A9"
    assert (
        link("/jobs", queue="a&b", state=None, text="", tag=["x", "y"])
        == "/board/jobs?queue=a%26b&tag=x&tag=y"
    )
    assert address("/queues/{}", "{0}") == "/queues/%7B0%7D"


def test_data_is_written_as_people_read_it() -> None:
    assert formats.pretty({"é": [1]}) == '{\n  "é": [\n    1\n  ]\n}'
    assert [formats.bare(value) for value in (None, 86_400.0, 0.5)] == ["", "86400", "0.5"]
    assert formats.brief("x" * 24) == "x" * 24
    assert formats.brief("0123456789abcdefghijklmno") == "0123456789…hijklmno"
