"""What is counted, and how two counts of it become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
Amounts = tuple[float, ...]
"""Of a counter its value. Of a gauge its value and the wall time it was set at. Of a histogram how many were
in each bucket, the last of which has no bound, and the sum of them."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """`bounds` are those of a histogram's buckets; a value that is equal to one is in its bucket."""

    name: str
    kind: Kind
    says: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    def fits(self, other: Family) -> bool:
        """Whether values of both can be added: an older program may have had other labels or bounds."""
        return (self.name, self.kind, self.labels, self.bounds) == (
            other.name,
            other.kind,
            other.labels,
            other.bounds,
        )


class Counted(msgspec.Struct, frozen=True):
    """A family with a series for every combination of its labels' values."""

    family: Family
    series: tuple[tuple[Labels, Amounts], ...] = ()

    def plus(self, more: Counted) -> Counted:
        """Of a gauge, the value that was set last. What does not fit is left out."""
        if not self.family.fits(more.family):
            return self
        found = dict(self.series)
        join = _later if self.family.kind == "gauge" else _sum
        for labels, amounts in more.series:
            found[labels] = join(found[labels], amounts) if labels in found else amounts
        return Counted(self.family, tuple(found.items()))

    def minus(self, before: Counted) -> Counted:
        """What came since. A gauge is what it is."""
        if self.family.kind == "gauge" or not self.family.fits(before.family):
            return self
        told = dict(before.series)
        return Counted(
            self.family,
            tuple(
                (labels, _difference(amounts, told[labels]) if labels in told else amounts)
                for labels, amounts in self.series
            ),
        )


Counts = Mapping[str, Counted]
"""By the family's name."""


def added(*counts: Iterable[Counted]) -> dict[str, Counted]:
    """Where families of one name do not fit, the first one stays."""
    found: dict[str, Counted] = {}
    for each in (one for some in counts for one in some):
        name = each.family.name
        found[name] = found[name].plus(each) if name in found else each
    return found


def since(now: Counts, before: Counts) -> dict[str, Counted]:
    return {name: each.minus(before[name]) if name in before else each for name, each in now.items()}


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _difference(one: Amounts, other: Amounts) -> Amounts:
    return tuple(a - b for a, b in zip(one, other, strict=True))


def _later(one: Amounts, other: Amounts) -> Amounts:
    return one if one[1] > other[1] else other
