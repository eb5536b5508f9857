"""Somebody else's calls, one after the other."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tidemill.testing.providers.options import Foreign
from tidemill.testing.providers.quota import ticks


def times_of(foreign: Foreign, seed: int) -> Iterator[int]:
    """In ticks, in order; without end when nothing ends it."""
    yield from (ticks(at) for at in sorted(foreign.times))
    if foreign.per_second > 0:
        draws = random.Random(seed)  # noqa: S311 - to be replayed is the point
        at = foreign.start + draws.expovariate(foreign.per_second)
        while at < foreign.end:
            yield ticks(at)
            at += draws.expovariate(foreign.per_second)
