"""Who gets how much of what several lines want at once.

The most urgent lines first. Lines of one priority take turns, so what each gets grows alike, by its
weight, until something it needs is used up; the others go on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from tidemill.core.forecast.lines import Units, Which

ENOUGH = 1e-9
"""The share of a call that is nothing."""


class Wanting(msgspec.Struct):
    """A line as one filling sees it. `most` is how many calls it can use; `bounds` are what it may take of
    each of its meters, by names that several lines share."""

    priority: int
    weight: float
    most: float
    units: Units
    bounds: Mapping[Which, float]


def fill(lines: Sequence[Wanting]) -> list[float]:
    """Calls, or calls a second, for each line in order."""
    got = [0.0] * len(lines)
    taken: Units = {}
    order = sorted(range(len(lines)), key=lambda index: lines[index].priority)
    for _, tier in groupby(order, key=lambda index: lines[index].priority):
        _fill_alike(lines, list(tier), got, taken)
    return got


def _fill_alike(lines: Sequence[Wanting], growing: list[int], got: list[float], taken: Units) -> None:
    growing = [index for index in growing if lines[index].most > ENOUGH]
    while growing:
        step = min(_steps(lines, growing, got, taken))
        if math.isinf(step):
            for index in growing:
                got[index] = math.inf
            return
        for index in growing:
            line, more = lines[index], max(0.0, step) * lines[index].weight
            got[index] += more
            for which, units in line.units.items():
                taken[which] = taken.get(which, 0.0) + more * units
        growing = [index for index in growing if _can_grow(lines[index], got[index], taken)]


def _steps(
    lines: Sequence[Wanting], growing: Sequence[int], got: Sequence[float], taken: Units
) -> Iterator[float]:
    """How far all can grow before one of them has all it can use, or a meter is used up for it."""
    asked: Units = {}
    for index in growing:
        line = lines[index]
        yield (line.most - got[index]) / line.weight
        for which, units in line.units.items():
            asked[which] = asked.get(which, 0.0) + units * line.weight
    for index in growing:
        for which, bound in lines[index].bounds.items():
            if asked.get(which, 0.0) > 0 and math.isfinite(bound):
                yield (bound - taken.get(which, 0.0)) / asked[which]


def _can_grow(line: Wanting, got: float, taken: Units) -> bool:
    if got >= line.most - ENOUGH * max(1.0, line.most if math.isfinite(line.most) else 1.0):
        return False
    return all(
        bound - taken.get(which, 0.0) > ENOUGH * units
        for which, bound in line.bounds.items()
        if (units := line.units.get(which, 0.0)) > 0
    )
