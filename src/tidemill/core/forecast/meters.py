"""A limit as a flow sees it: how much is there, how much comes in, and when that changes by itself.

Times are seconds from the moment of the forecast.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from tidemill.core.calendars import Period, period_at
from tidemill.core.limits import Limit, calendar_of
from tidemill.core.windows import Guards

SOON = 1e-6
"""Two times so close are one: sums of many stretches do not come out even."""

Steps = tuple[tuple[float, float], ...]
"""Amounts, each from a time on. The first holds from the beginning."""


class Meter(Protocol):
    """`advance` comes first at every new time; the others speak of that time."""

    def advance(self, now: float) -> None: ...

    def room(self) -> float:
        """Units that can be taken at once."""
        ...

    def inflow(self) -> float:
        """Units a second that come free from now on."""
        ...

    def turns(self) -> float:
        """The next time at which room jumps or the inflow changes, whatever is taken until then."""
        ...

    def take(self, units: float, until: float) -> None:
        """So many, evenly from now until then."""
        ...


class _Stepped:
    def __init__(self, steps: Steps) -> None:
        self._steps, self._now = deque(steps), 0.0
        self._amount = 0.0
        self._step()

    def advance(self, now: float) -> None:
        self._now = now
        self._step()

    def _step(self) -> None:
        while self._steps and self._steps[0][0] <= self._now + SOON:
            self._amount = self._steps.popleft()[1]

    def _next_step(self) -> float:
        return self._steps[0][0] if self._steps else math.inf


class Held(_Stepped):
    """What is taken comes back after `hold`: a rolling window, or calls at once that take so long.

    `back` are the units that are out now, each with the stretch of time in which they come back."""

    def __init__(self, steps: Steps, hold: float, back: Sequence[tuple[float, float, float]]) -> None:
        super().__init__(steps)
        self._hold = hold
        self._back = deque(back)
        self._out = sum(units for _, _, units in back)

    def advance(self, now: float) -> None:
        super().advance(now)
        while self._back and self._back[0][1] <= now + SOON:
            self._out -= self._back.popleft()[2]

    def room(self) -> float:
        return self._amount - self._out + self._returned()

    def inflow(self) -> float:
        if not self._back or self._back[0][0] > self._now + SOON:
            return 0.0
        begin, end, units = self._back[0]
        return units / (end - begin)

    def turns(self) -> float:
        if not self._back:
            return self._next_step()
        begin, end, _ = self._back[0]
        return min(begin if begin > self._now + SOON else end, self._next_step())

    def take(self, units: float, until: float) -> None:
        begin, end = self._now + self._hold, until + self._hold
        if self._back:  # they come back in turn
            begin = max(begin, self._back[-1][1])
        self._out += units
        if not self._joins(begin, end, units):
            self._back.append((begin, max(begin, end), units))

    def _joins(self, begin: float, end: float, units: float) -> bool:
        """A flow that goes on as it was is one stretch: else each change would make another, for ever."""
        if not self._back or end - begin <= SOON:
            return False
        first, last, before = self._back[-1]
        if last - first <= SOON or begin - last > SOON:
            return False
        if not math.isclose(before / (last - first), units / (end - begin), rel_tol=1e-3):
            return False
        self._back[-1] = (first, end, before + units)
        return True

    def _returned(self) -> float:
        """Of the first that come back, what already has."""
        if not self._back or self._back[0][0] >= self._now:
            return 0.0
        begin, end, units = self._back[0]
        return units * (self._now - begin) / (end - begin)


class Refilled(_Stepped):
    """Refills evenly, in `seconds` for the whole amount: a bucket, a pace, or a window so short that its
    steps do not matter. When it is full, `missing` of the amount are not in it."""

    def __init__(self, steps: Steps, seconds: float, spent: float, missing: float = 0.0) -> None:
        super().__init__(steps)
        self._seconds, self._spent, self._missing = seconds, spent, missing
        self._since = 0.0

    def advance(self, now: float) -> None:
        self._spent = max(0.0, self._spent - (now - self._since) * self._amount / self._seconds)
        self._since = now
        super().advance(now)

    def room(self) -> float:
        return self._amount - self._missing - self._spent

    def inflow(self) -> float:
        return self._amount / self._seconds

    def turns(self) -> float:
        return self._next_step()

    def take(self, units: float, until: float) -> None:
        del until  # what flows in meanwhile is counted by `advance`
        self._spent += units


class Counted(_Stepped):
    """A counter per period. Around its turn nothing is taken."""

    def __init__(self, steps: Steps, limit: Limit, used: float, wall: float, guards: Guards) -> None:
        super().__init__(steps)
        self._calendar, self._wall, self._guards = calendar_of(limit), wall, guards
        self._used = used
        self._period = self._look()

    def advance(self, now: float) -> None:
        super().advance(now)
        if now + SOON >= self._period.end:
            self._period, self._used = self._look(), 0.0

    def room(self) -> float:
        left = self._amount - self._used
        return left if self._opens() <= self._now + SOON < self._closes() else min(left, 0.0)

    def inflow(self) -> float:
        return 0.0

    def turns(self) -> float:
        moments = (self._opens(), self._closes(), self._period.end, self._next_step())
        return min(moment for moment in moments if moment > self._now + SOON)

    def take(self, units: float, until: float) -> None:
        del until  # a stretch never goes beyond a turn
        self._used += units

    def _look(self) -> Period:
        # A wall time is a large number, whose smallest step is larger than ours.
        found = period_at(self._calendar, self._wall + self._now + SOON * 1000)
        return Period(found.start - self._wall, found.end - self._wall)

    def _opens(self) -> float:
        return self._period.start + self._guards.midnight

    def _closes(self) -> float:
        return self._period.end - self._guards.midnight - self._guards.jitter


class Shut:
    """Nothing until a time, then anything."""

    def __init__(self, until: float) -> None:
        self._until, self._now = until, 0.0

    def advance(self, now: float) -> None:
        self._now = now

    def room(self) -> float:
        return math.inf if self._now + SOON >= self._until else 0.0

    def inflow(self) -> float:
        return 0.0

    def turns(self) -> float:
        return self._until if self._until > self._now + SOON else math.inf

    def take(self, units: float, until: float) -> None:
        """It counts nothing."""
