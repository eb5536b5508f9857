"""The clock argument of Lua scripts: it tells a script to read the server's clock, or gives it the time of a
test's clock.

Leases and windows must not change when the server's wall clock is set. So each request sends the boot time
that the client expects. If the server's clock differs by seconds, the script corrects the boot clock or
refuses the request (`lua/parts/clock.lua`)."""

from __future__ import annotations

import time
from collections.abc import Callable

from tidemill.clock import Clock, SystemClock

MAX_DRIFT_RATIO = 0.0005
"""The largest drift between two clocks, in seconds per second: the fastest slew of NTP."""
CLOCK_REREAD_SECONDS = 30.0
"""The server's clock is read again after this many seconds, so that the possible drift stays small."""


class InjectedRedisClock:
    """The clock of a test. Every script gets the time of this clock and does not read the server's clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def argument(self) -> str:
        return f"given {self._clock.wall()!r} {self._clock.boot()!r} {self._clock.boot_id}"

    argument_without_boot = argument

    @property
    def is_old(self) -> bool:
        return False

    def note_boot(self, boot: float | None) -> None:
        """Does nothing. An injected clock does not depend on the server's replies."""


class RedisServerClock:
    """The clock in production: every script reads the server's clock. `skew`: returns seconds to add to the
    server's clock, for tests."""

    def __init__(self, skew: Callable[[], float] | None = None) -> None:
        self._skew = skew
        self._own = SystemClock()
        self._seen: tuple[float, float] | None = None

    def argument(self) -> str:
        seen = self._seen  # threads share it, and another thread may reset it
        if seen is None or not _COUNTS_SLEEP:
            return self.argument_without_boot()
        boot, at = seen
        age = self._own.boot() - at
        return f"kept {self._skew() if self._skew else 0} {boot + age:.6f} {age * MAX_DRIFT_RATIO:.6f}"

    def argument_without_boot(self) -> str:
        """Returns the clock argument (see this module) without the boot time. For the handshake, and for
        scripts that use no leases or windows."""
        return f"kept {self._skew() if self._skew else 0} - 0"

    @property
    def is_old(self) -> bool:
        seen = self._seen
        return seen is None or self._own.boot() - seen[1] > CLOCK_REREAD_SECONDS

    def note_boot(self, boot: float | None) -> None:
        """Stores the boot time that the server replied. `boot=None`: forget it, so that the next request
        reads the server's clock again."""
        self._seen = None if boot is None else (boot, self._own.boot())


_COUNTS_SLEEP = hasattr(time, "CLOCK_BOOTTIME")
"""A clock that continues during sleep. With another one, a laptop after sleep would suspect a clock step."""
