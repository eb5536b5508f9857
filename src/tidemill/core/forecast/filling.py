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
    """A line as one filling sees it. `most` is how many calls it can use, and `goes_on` that it wants more
    afterwards, of another kind; `bounds` are what it may take of each of its meters."""

    priority: int
    weight: float
    most: float
    units: Units
    bounds: Mapping[Which, float]
    goes_on: bool = False

    def has_all(self, got: float) -> bool:
        return got >= self.most - ENOUGH * max(1.0, self.most if math.isfinite(self.most) else 1.0)


def fill(lines: Sequence[Wanting]) -> list[float]:
    """Calls, or calls a second, for each line in order. It ends early when a line has all it can use now and
    goes on: nobody takes its share meanwhile."""
    got = [0.0] * len(lines)
    taken: Units = {}
    order = sorted(range(len(lines)), key=lambda index: lines[index].priority)
    for _, tier in groupby(order, key=lambda index: lines[index].priority):
        if not _fill_alike(lines, list(tier), got, taken):
            break
    return got


def _fill_alike(lines: Sequence[Wanting], growing: list[int], got: list[float], taken: Units) -> bool:
    growing = [index for index in growing if lines[index].most > ENOUGH]
    while growing:
        step = min(_steps(lines, growing, got, taken))
        if math.isinf(step):
            for index in growing:
                got[index] = math.inf
            return True
        for index in growing:
            line, more = lines[index], max(0.0, step) * lines[index].weight
            got[index] += more
            for which, units in line.units.items():
                taken[which] = taken.get(which, 0.0) + more * units
        if any(lines[index].goes_on and lines[index].has_all(got[index]) for index in growing):
            return False
        growing = [index for index in growing if _can_grow(lines[index], got[index], taken)]
    return True


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
    if line.has_all(got):
        return False
    return all(
        bound - taken.get(which, 0.0) > ENOUGH * units
        for which, bound in line.bounds.items()
        if (units := line.units.get(which, 0.0)) > 0
    )
