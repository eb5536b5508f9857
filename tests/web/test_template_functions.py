"""Formatting of values on pages."""

from __future__ import annotations

import math

import pytest

from tidemill.core.validation import format_bytes
from tidemill.times import parse_duration
from tidemill.web import template_functions
from tidemill.web.template_functions import build_path, link_builder


@pytest.mark.parametrize(
    ("value", "text"),
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
def test_numbers_are_exact_and_grouped(value: float, text: str) -> None:
    assert template_functions.format_number(value) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (4_390_000, "4.39 MB"), (2e15, "2e+03 TB")]
)
def test_sizes(size: float, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (90.5, "90.5s"), (5400.0, "1h30m"), (604_800.0, "7d"), (1_234_567.0, "14d6h56m7s")],
)
def test_a_duration_in_a_field_is_read_as_it_is_written(seconds: float, text: str) -> None:
    assert template_functions.format_input_duration(seconds) == text
    assert parse_duration(text) == seconds


def test_no_duration_is_an_empty_field() -> None:
    assert template_functions.format_input_duration(None) == ""


def test_a_time_out_of_range_is_shown_as_a_number() -> None:
    assert (template_functions.format_iso(0), template_functions.format_utc(0)) == (
        "1970-01-01T00:00:00Z",
        "1970-01-01 00:00:00 UTC",
    )
    assert (template_functions.format_iso(1e300), template_functions.format_utc(1e300)) == (
        "",
        "Unix time 1e+300",
    )


@pytest.mark.parametrize(("ahead", "step"), [(30, 60), (7100, 60), (7300, 600), (200_000, 3600)])
def test_a_forecast_is_rounded_by_its_distance(ahead: float, step: float) -> None:
    shown = template_functions.round_forecast(1_000_000_007 + ahead, 1_000_000_007)
    assert shown % step == 0
    assert 0 <= shown - 1_000_000_007 - ahead < step


def test_a_sparkline_has_every_value_within_its_frame() -> None:
    points = [
        tuple(map(float, point.split(",")))
        for point in template_functions.sparkline_points([0, 5, 10]).split()
    ]
    assert points == [(0, 19), (50, 10), (100, 1)]
    assert template_functions.sparkline_points([]) == ""
    assert template_functions.sparkline_points([0, 0]) == "0.0,19.0 100.0,19.0"


def test_a_link_encodes_its_parts() -> None:
    link = link_builder("/board")
    assert link("/jobs/{}", 'a/b?c#"é') == "/board/jobs/a%2Fb%3Fc%23%22%C3%A9"
    assert (
        link("/jobs", queue="a&b", state=None, text="", tag=["x", "y"])
        == "/board/jobs?queue=a%26b&tag=x&tag=y"
    )
    assert build_path("/queues/{}", "{0}") == "/queues/%7B0%7D"


def test_data_is_indented_json() -> None:
    assert template_functions.format_json({"é": [1]}) == '{\n  "é": [\n    1\n  ]\n}'
    assert [template_functions.format_input_number(value) for value in (None, 86_400.0, 0.5)] == [
        "",
        "86400",
        "0.5",
    ]
    assert template_functions.shorten_id("x" * 24) == "x" * 24
    assert template_functions.shorten_id("0123456789abcdefghijklmno") == "0123456789…hijklmno"
