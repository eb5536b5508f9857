"""Meters: the limits of a forecast. A meter knows how many units are free now and how many become free per
second. Times are seconds from the moment of the forecast."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from tidemill.core.calendars import CalendarPeriod, period_at
from tidemill.core.limits import Limit, window_calendar
from tidemill.core.windows import Guards

TIME_TOLERANCE_SECONDS = 1e-6
"""Two times this close are equal: sums of many time spans are not exact."""

AmountSteps = tuple[tuple[float, float], ...]
"""Amounts, each from a time on. The first holds from the beginning."""


class LimitMeter(Protocol):
    """The protocol of a meter: one limit over the time of a forecast. Call `advance` first at every new time.
    All remaining methods refer to that time."""

    def advance(self, now: float) -> None: ...

    def room(self) -> float:
        """Returns the units that are free now and can be taken at once."""
        ...

    def inflow(self) -> float:
        """Returns the units per second that become free from now on."""
        ...

    def next_change(self) -> float:
        """Returns the next time at which `room` or `inflow` changes by itself, for example because a period
        ends."""
        ...

    def take(self, units: float, until: float) -> None:
        """Takes `units`, spread evenly over the time from now to `until`."""
        ...


class _SteppedMeter:
    """A meter whose amount changes at known times. `steps` has pairs of a time and the amount from then
    on."""

    def __init__(self, steps: AmountSteps) -> None:
        self._steps, self._now = deque(steps), 0.0
        self._amount = 0.0
        self._step()

    def advance(self, now: float) -> None:
        self._now = now
        self._step()

    def _step(self) -> None:
        while self._steps and self._steps[0][0] <= self._now + TIME_TOLERANCE_SECONDS:
            self._amount = self._steps.popleft()[1]

    def _next_step(self) -> float:
        return self._steps[0][0] if self._steps else math.inf


class WindowMeter(_SteppedMeter):
    """A meter whose units become free `hold` seconds after they were taken, as in a rolling window.

    `back` has the units in use now, as tuples of start, end and units. The units of a tuple become free
    evenly between its start and its end."""

    def __init__(self, steps: AmountSteps, hold: float, back: Sequence[tuple[float, float, float]]) -> None:
        super().__init__(steps)
        self._hold = hold
        self._back = deque(back)
        self._out = sum(units for _, _, units in back)

    def advance(self, now: float) -> None:
        super().advance(now)
        while self._back and self._back[0][1] <= now + TIME_TOLERANCE_SECONDS:
            self._out -= self._back.popleft()[2]

    def room(self) -> float:
        return self._amount - self._out + self._returned()

    def inflow(self) -> float:
        if not self._back or self._back[0][0] > self._now + TIME_TOLERANCE_SECONDS:
            return 0.0
        begin, end, units = self._back[0]
        return units / (end - begin)

    def next_change(self) -> float:
        if not self._back:
            return self._next_step()
        begin, end, _ = self._back[0]
        return min(begin if begin > self._now + TIME_TOLERANCE_SECONDS else end, self._next_step())

    def take(self, units: float, until: float) -> None:
        begin, end = self._now + self._hold, until + self._hold
        if self._back:  # units return in turn
            begin = max(begin, self._back[-1][1])
        self._out += units
        if not self._joins(begin, end, units):
            self._back.append((begin, max(begin, end), units))

    def _joins(self, begin: float, end: float, units: float) -> bool:
        """Adds the units to the last time span and returns True, if they continue it at the same rate.
        Otherwise returns False."""
        if not self._back or end - begin <= TIME_TOLERANCE_SECONDS:
            return False
        first, last, before = self._back[-1]
        if last - first <= TIME_TOLERANCE_SECONDS or begin - last > TIME_TOLERANCE_SECONDS:
            return False
        if not math.isclose(before / (last - first), units / (end - begin), rel_tol=1e-3):
            return False
        self._back[-1] = (first, end, before + units)
        return True

    def _returned(self) -> float:
        """Returns how many units of the first time span are already free again."""
        if not self._back or self._back[0][0] >= self._now:
            return 0.0
        begin, end, units = self._back[0]
        return units * (self._now - begin) / (end - begin)


class BucketMeter(_SteppedMeter):
    """A meter whose units refill evenly: the whole amount in `seconds`.

    - `spent`: the units in use now.
    - `missing`: units that are never granted; the meter is full at the amount minus `missing`."""

    def __init__(self, steps: AmountSteps, seconds: float, spent: float, missing: float = 0.0) -> None:
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

    def next_change(self) -> float:
        return self._next_step()

    def take(self, units: float, until: float) -> None:
        del until  # `advance` counts what flows in meanwhile
        self._spent += units


class CalendarMeter(_SteppedMeter):
    """A meter that counts units per calendar period. Around the end of a period it grants nothing.

    - `used`: the units used in the current period.
    - `wall`: the wall time of the forecast."""

    def __init__(self, steps: AmountSteps, limit: Limit, used: float, wall: float, guards: Guards) -> None:
        super().__init__(steps)
        self._calendar, self._wall, self._guards = window_calendar(limit), wall, guards
        self._used = used
        self._period = self._current_period()

    def advance(self, now: float) -> None:
        super().advance(now)
        if now + TIME_TOLERANCE_SECONDS >= self._period.end:
            self._period, self._used = self._current_period(), 0.0

    def room(self) -> float:
        left = self._amount - self._used
        return (
            left if self._opens() <= self._now + TIME_TOLERANCE_SECONDS < self._closes() else min(left, 0.0)
        )

    def inflow(self) -> float:
        return 0.0

    def next_change(self) -> float:
        moments = (self._opens(), self._closes(), self._period.end, self._next_step())
        return min(moment for moment in moments if moment > self._now + TIME_TOLERANCE_SECONDS)

    def take(self, units: float, until: float) -> None:
        del until  # a time span never crosses the end of a period
        self._used += units

    def _current_period(self) -> CalendarPeriod:
        # A wall time is a large number, whose float precision is below our tolerance.
        found = period_at(self._calendar, self._wall + self._now + TIME_TOLERANCE_SECONDS * 1000)
        return CalendarPeriod(found.start - self._wall, found.end - self._wall)

    def _opens(self) -> float:
        return self._period.start + self._guards.midnight

    def _closes(self) -> float:
        return self._period.end - self._guards.midnight - self._guards.jitter


class ClosedMeter:
    """A meter that grants nothing before the time `until`, and everything afterwards."""

    def __init__(self, until: float) -> None:
        self._until, self._now = until, 0.0

    def advance(self, now: float) -> None:
        self._now = now

    def room(self) -> float:
        return math.inf if self._now + TIME_TOLERANCE_SECONDS >= self._until else 0.0

    def inflow(self) -> float:
        return 0.0

    def next_change(self) -> float:
        return self._until if self._until > self._now + TIME_TOLERANCE_SECONDS else math.inf

    def take(self, units: float, until: float) -> None:
        """Does nothing, because this meter counts no units."""
