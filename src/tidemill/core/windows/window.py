"""What every shape of window can answer."""

from __future__ import annotations

from typing import Protocol, Self

import msgspec

from tidemill.core.limits import Limit

TINY = 1e-9
"""Below any unit: sums of fractions do not come out even."""


LONG_AGO = -1e9
"""A boot time from before any boot: what was taken then has come back."""


class Instant(msgspec.Struct, frozen=True):
    """The store's two clocks: calendars go by the wall, everything else by the boot clock."""

    wall: float
    boot: float


LEAVE_SHARE = 0.5
"""The share of the jitter in which a handler must begin and its request must leave. The rest is for the way:
the first call of a process looks up a name, connects and agrees on keys before anything arrives."""


class Guards(msgspec.Struct, frozen=True):
    """jitter: how long after a decision its call may reach the provider.
    midnight: how far the provider's calendar may be from ours."""

    jitter: float = 0.5
    midnight: float = 5.0


class Window(Protocol):
    """A value: every change is a new one. Waits are seconds from now; infinity is never."""

    def counted(self, limit: Limit, now: Instant, guards: Guards) -> float:
        """What counts now. Guards, a pace or the turn of a period keep calls back, but nothing is used by
        them."""
        ...

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        """How many units could be taken now; below 0 in debt."""
        ...

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        """How long until that many could be taken, if nobody else takes any."""
        ...

    def taken(self, limit: Limit, units: float, now: Instant, guards: Guards) -> tuple[Self, float]:
        """After a take, with the mark that tells where it was entered. Never refuses: a debt is entered
        the same way."""
        ...

    def returned(self, limit: Limit, units: float, mark: float, now: Instant) -> Self:
        """After some of a take came back, or its call has ended (concurrent)."""
        ...

    def lost(self, limit: Limit, now: Instant) -> Self:
        """After what was known is no longer: as if all had been taken just now."""
        ...
