"""The text format of Prometheus, version 0.0.4."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import accumulate

from tidemill.tallies.families import Amounts, Counted, Family, Labels

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_VALUE = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

_WHOLE_BELOW = 2.0**53
"""From there on a float is no longer every whole number."""


def render(counted: Iterable[Counted]) -> str:
    """Series in the order of their labels: two texts of the same numbers are the same text."""
    return "".join(f"{line}\n" for each in counted if each.series for line in _lines(each))


def _lines(counted: Counted) -> Iterator[str]:
    family = counted.family
    yield f"# HELP {family.name} {family.says.translate(_HELP)}"
    yield f"# TYPE {family.name} {family.kind}"
    for labels, amounts in sorted(counted.series):
        if family.kind == "histogram":
            yield from _buckets(family, labels, amounts)
        else:
            yield _sample(family.name, zip(family.labels, labels, strict=True), amounts[0])


def _buckets(family: Family, labels: Labels, amounts: Amounts) -> Iterator[str]:
    """Each with those below it, as the format has them."""
    named = tuple(zip(family.labels, labels, strict=True))
    bounds = (*map(number, family.bounds), "+Inf")
    *counts, total = amounts
    for bound, below in zip(bounds, accumulate(counts), strict=True):
        yield _sample(f"{family.name}_bucket", (*named, ("le", bound)), below)
    yield _sample(f"{family.name}_sum", named, total)
    yield _sample(f"{family.name}_count", named, sum(counts))


def _sample(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    said = ",".join(f'{label}="{text.translate(_VALUE)}"' for label, text in labels)
    return f"{name}{{{said}}} {number(value)}" if said else f"{name} {number(value)}"


def number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < _WHOLE_BELOW else repr(float(value))
