"""What time a script is to go by: the caller's own in tests, else the server's.

The server's clock may be stepped. Every call says which boot time its sender reckons with: the last
one it saw plus what its own clock, which nobody can step, has counted since (`lua/parts/clock.lua`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidemill.clock import Clock, SystemClock

DRIFT = 0.0005
"""How far two clocks part at most, per second: as much as NTP may slew one."""
SEEN_FOR = 30.0
"""After so many seconds the server's clock is read anew, lest doubt grows."""


class GivenClock:
    """Virtual time, the caller's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def words(self) -> str:
        return f"given {self._clock.wall()!r} {self._clock.boot()!r} {self._clock.boot_id}"

    first_words = words

    @property
    def is_old(self) -> bool:
        return False

    def saw(self, boot: float | None) -> None:
        """The caller's clock needs no telling."""


class ServerClock:
    """`skew` is added by the server to what its clock says: a machine's clock cannot be stepped by a
    test, so the tests of steps shift what the scripts read."""

    def __init__(self, skew: Callable[[], float] | None = None) -> None:
        self._skew = skew
        self._own = SystemClock()
        self._seen: tuple[float, float] | None = None

    def words(self) -> str:
        seen = self._seen  # threads share it, and another may forget it meanwhile
        if seen is None or not _COUNTS_SLEEP:
            return self.first_words()
        boot, at = seen
        age = self._own.boot() - at
        return f"kept {self._skew() if self._skew else 0} {boot + age:.6f} {age * DRIFT:.6f}"

    def first_words(self) -> str:
        """Of one that expects nothing: a greeting must not be refused, and many scripts do not reckon."""
        return f"kept {self._skew() if self._skew else 0} - 0"

    @property
    def is_old(self) -> bool:
        seen = self._seen
        return seen is None or self._own.boot() - seen[1] > SEEN_FOR

    def saw(self, boot: float | None) -> None:
        """None forgets: nothing is expected until the server's clock was read again."""
        self._seen = None if boot is None else (boot, self._own.boot())


_COUNTS_SLEEP = hasattr(time, "CLOCK_BOOTTIME")
"""Elsewhere a laptop that slept would think that the server's clock was stepped."""
