"""Metric families and their samples, the addition of samples, and the Prometheus text format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Literal

import msgspec

MetricKind = Literal["counter", "gauge", "histogram"]
LabelValues = tuple[str, ...]
SampleValues = tuple[float, ...]
"""The numbers of one series. A counter has its value. A gauge has its value and the wall time at which it
was set. A histogram has the count of each bucket, the last one unbounded, and then the sum of all
values."""


class MetricFamily(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a metric. `bounds` are the inclusive upper bounds of a histogram's buckets; empty for
    other kinds."""

    name: str
    kind: MetricKind
    help_text: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    def fits(self, other: MetricFamily) -> bool:
        """True if values of both families can be added: name, kind, labels and bounds are equal."""
        return (self.name, self.kind, self.labels, self.bounds) == (
            other.name,
            other.kind,
            other.labels,
            other.bounds,
        )


class MetricSamples(msgspec.Struct, frozen=True):
    """The values of one metric family. `series` has one entry for each combination of label values."""

    family: MetricFamily
    series: tuple[tuple[LabelValues, SampleValues], ...] = ()

    def plus(self, more: MetricSamples) -> MetricSamples:
        """Returns the sum of both samples. For a gauge, the value that was set last is used. If the family of
        `more` does not fit, `more` is ignored."""
        if not self.family.fits(more.family):
            return self
        found = dict(self.series)
        join = _latest_value if self.family.kind == "gauge" else _add_values
        for labels, amounts in more.series:
            found[labels] = join(found[labels], amounts) if labels in found else amounts
        return MetricSamples(self.family, tuple(found.items()))

    def minus(self, before: MetricSamples) -> MetricSamples:
        """Returns the increase since `before`. Gauges are returned unchanged, and so are samples whose family
        does not fit."""
        if self.family.kind == "gauge" or not self.family.fits(before.family):
            return self
        earlier = dict(before.series)
        return MetricSamples(
            self.family,
            tuple(
                (labels, _subtract_values(amounts, earlier[labels]) if labels in earlier else amounts)
                for labels, amounts in self.series
            ),
        )


SamplesByName = Mapping[str, MetricSamples]
"""Samples by family name."""


def add_samples(*counts: Iterable[MetricSamples]) -> dict[str, MetricSamples]:
    """Returns the sum of all samples, by family name. If two families with the same name do not fit, the
    first one is kept."""
    found: dict[str, MetricSamples] = {}
    for samples in (member for some in counts for member in some):
        name = samples.family.name
        found[name] = found[name].plus(samples) if name in found else samples
    return found


def subtract_samples(now: SamplesByName, before: SamplesByName) -> dict[str, MetricSamples]:
    return {name: samples.minus(before[name]) if name in before else samples for name, samples in now.items()}


def _add_values(values: SampleValues, other: SampleValues) -> SampleValues:
    return tuple(a + b for a, b in zip(values, other, strict=True))


def _subtract_values(values: SampleValues, other: SampleValues) -> SampleValues:
    return tuple(a - b for a, b in zip(values, other, strict=True))


def _latest_value(values: SampleValues, other: SampleValues) -> SampleValues:
    return values if values[1] > other[1] else other


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

_MAX_EXACT_INTEGER = 2.0**53
"""Above this a float cannot represent every integer."""


def render_text(counted: Iterable[MetricSamples]) -> str:
    """Returns the samples in the Prometheus text format. Series are sorted by their labels, so equal samples
    give equal texts."""
    return "".join(f"{line}\n" for samples in counted if samples.series for line in _format_family(samples))


def _format_family(counted: MetricSamples) -> Iterator[str]:
    family = counted.family
    yield f"# HELP {family.name} {family.help_text.translate(_HELP_ESCAPES)}"
    yield f"# TYPE {family.name} {family.kind}"
    for labels, amounts in sorted(counted.series):
        if family.kind == "histogram":
            yield from _format_histogram(family, labels, amounts)
        else:
            yield _format_sample(family.name, zip(family.labels, labels, strict=True), amounts[0])


def _format_histogram(family: MetricFamily, labels: LabelValues, amounts: SampleValues) -> Iterator[str]:
    """Yields the text lines of one histogram series. Each bucket also counts the smaller values, as
    Prometheus requires."""
    named = tuple(zip(family.labels, labels, strict=True))
    bounds = (*map(format_number, family.bounds), "+Inf")
    *counts, total = amounts
    for bound, below in zip(bounds, accumulate(counts), strict=True):
        yield _format_sample(f"{family.name}_bucket", (*named, ("le", bound)), below)
    yield _format_sample(f"{family.name}_sum", named, total)
    yield _format_sample(f"{family.name}_count", named, sum(counts))


def _format_sample(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    pairs = ",".join(f'{label}="{text.translate(_LABEL_ESCAPES)}"' for label, text in labels)
    return f"{name}{{{pairs}}} {format_number(value)}" if pairs else f"{name} {format_number(value)}"


def format_number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < _MAX_EXACT_INTEGER else repr(float(value))
