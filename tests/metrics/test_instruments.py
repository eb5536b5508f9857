"""Counters, gauges and histograms of an application."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill import ConfigurationError, Tidemill
from tidemill.metrics.instruments import MAX_SERIES_PER_METRIC, OTHER_LABELS, MetricRegistry


@pytest.fixture
def metrics() -> MetricRegistry:
    return MetricRegistry(lambda: 7.0)


def _series(metrics: MetricRegistry, name: str) -> dict[tuple[str, ...], tuple[float, ...]]:
    return dict(metrics.counted()[name].series)


def test_a_counter_grows_by_label(metrics: MetricRegistry) -> None:
    plays = metrics.counter("plays_total", "Songs played.", labels=["model", "tier"])
    plays.add(model="small", tier=1)
    plays.add(2.5, tier=1, model="small")
    plays.add(model="large", tier=2)
    assert _series(metrics, "plays_total") == {("small", "1"): (3.5,), ("large", "2"): (1,)}


def test_a_gauge_is_what_was_set_last(metrics: MetricRegistry) -> None:
    level = metrics.gauge("level", "How high.")
    level.set(3)
    level.set(-2)
    assert _series(metrics, "level") == {(): (-2.0, 7.0)}


def test_a_value_on_a_bound_is_in_its_bucket(metrics: MetricRegistry) -> None:
    took = metrics.histogram("took_seconds", "How long.", bounds=[1, 2])
    for value in (0.5, 1, 1.5, 2, 3):
        took.observe(value)
    assert _series(metrics, "took_seconds") == {(): (2, 2, 1, 8.0)}


def test_more_series_than_a_process_should_keep_are_counted_together(metrics: MetricRegistry) -> None:
    seen = metrics.counter("seen_total", "Users seen.", labels=["user"])
    for user in range(MAX_SERIES_PER_METRIC + 50):
        seen.add(user=user)
    seen.add(user=3)
    series = _series(metrics, "seen_total")
    assert len(series) == MAX_SERIES_PER_METRIC + 1
    assert series[OTHER_LABELS,] == (50,)
    assert series["3",] == (2,)


def _wrongly_labelled(metrics: MetricRegistry) -> None:
    metrics.counter("plays_total", "Songs played.", labels=["model"]).add(size=1)


def _taken_away(metrics: MetricRegistry) -> None:
    metrics.counter("plays_total", "Songs played.").add(-1)


def _twice(metrics: MetricRegistry) -> None:
    metrics.gauge("level", "How high.")
    metrics.gauge("level", "How high.")


def _read_and_set(metrics: MetricRegistry) -> None:
    metrics.gauge("level", "How high.", read=lambda: 1).set(2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (_wrongly_labelled, r"'plays_total': must be given its labels \(model\), was given size"),
        (_taken_away, "a counter only grows"),
        (_twice, "'level': is declared twice"),
        (_read_and_set, "'level': is read by a function and cannot be set"),
        (lambda metrics: metrics.counter("plays", "Songs played."), "ends in _total"),
        (lambda metrics: metrics.gauge("tidemill_level", "How high."), "nor with tidemill_"),
        (lambda metrics: metrics.gauge("how-high", "How high."), "a name has letters"),
        (lambda metrics: metrics.gauge("level", "How high.", labels="at"), "labels: must be a list"),
        (lambda metrics: metrics.gauge("level", "How high.", labels=["le"]), "labels: must be a list"),
        (lambda metrics: metrics.histogram("took", "How long.", bounds=[2, 1]), "numbers that grow"),
    ],
)
def test_an_invalid_metric_is_refused_by_name(metrics: MetricRegistry, wrong: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        wrong(metrics)


def test_an_application_has_them() -> None:
    app = Tidemill("memory://")
    app.metrics.counter("plays_total", "Songs played.").add(3)
    assert _series(app.metrics, "plays_total") == {(): (3,)}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_an_invalid_number_is_refused_and_changes_nothing(value: float) -> None:
    metrics = MetricRegistry(lambda: 1.0)
    gauge, histogram = metrics.gauge("a", "A."), metrics.histogram("b", "B.")
    for note in (gauge.set, histogram.observe):
        with pytest.raises(ConfigurationError, match=r"metric '[ab]': .* is no number to keep"):
            note(value)
    assert metrics.counted() == {}


def test_a_label_that_cannot_be_written_is_counted_under_what_can() -> None:
    metrics = MetricRegistry(lambda: 1.0)
    plays = metrics.counter("plays_total", "Songs played.", labels=["title"])
    plays.add(title="\ud800 song")
    plays.add(title="曲")
    assert [of for of, _ in metrics.counted()["plays_total"].series] == [("? song",), ("曲",)]
