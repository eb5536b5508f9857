"""Clocks that move only when a test moves them, and random numbers that repeat for the same seed."""

from __future__ import annotations

import asyncio
import random
from base64 import b32encode
from datetime import timedelta
from typing import cast

from tidemill.core.validation import is_number
from tidemill.testing.virtual_loop import START_TIME, VirtualLoop
from tidemill.times import to_seconds


class ManualClock:
    """A clock that moves only when the test moves it.

    - `advance` lets time pass.
    - `step_wall` changes only the wall clock, like an NTP correction.
    - `reboot` simulates a restart of the machine: the boot clock starts near 0.
    """

    def __init__(self, wall: float = 1_700_000_000.0, boot: float = 5_000.0) -> None:
        self._wall, self._boot, self._boots = wall, boot, 1

    @property
    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    def wall(self) -> float:
        return self._wall

    def boot(self) -> float:
        return self._boot

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"time does not run backwards: {seconds}; step_wall sets the wall clock")
        self._wall += seconds
        self._boot += seconds

    def step_wall(self, seconds: float) -> None:
        self._wall += seconds

    def reboot(self, after: float = 60.0) -> None:
        """Simulates a restart of the machine with `after` seconds of downtime."""
        self._wall += after
        self._boot = 1.0
        self._boots += 1


class SeededEntropy:
    """Generates job ids, claim ids, secrets and random numbers. The same seed gives the same sequence."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - deterministic on purpose
        self._made = 0

    def new_id(self) -> str:
        self._made += 1
        return f"{self._made:08x}{self._random.getrandbits(64):016x}"

    def claim_id(self) -> int:
        return self._random.getrandbits(62) << 1 | 1

    def chance(self) -> float:
        return self._random.random()

    def secret(self) -> str:
        return b32encode(self._random.randbytes(20)).decode().lower()


class VirtualClock:
    """A clock that shows the virtual time of an event loop. `skew` is the error of its wall clock in
    seconds."""

    def __init__(self, loop: VirtualLoop | None = None, *, skew: float = 0.0) -> None:
        self._loop = loop or cast("VirtualLoop", asyncio.get_running_loop())
        self._skew = skew
        self._boots = 1

    @property
    def boot_id(self) -> str:
        return f"virtual boot {self._boots}"

    def wall(self) -> float:
        return self._loop.epoch + self._loop.time() + self._skew

    def boot(self) -> float:
        return self._loop.time()

    def step_wall(self, seconds: float) -> None:
        """Changes the wall clock only, like an NTP correction."""
        self._skew += seconds

    def reboot(self) -> None:
        """Simulates a restart of the machine: the boot id changes. A store then no longer trusts boot times
        that it stored before."""
        self._boots += 1


MIN_ADVANCE_SECONDS = 1e-6
"""A smaller step may not change a present-day wall time, because a float cannot represent it."""


class KitClock:
    """The clock of a test kit. Its time is the seconds by which the kit has advanced it, plus the time of the
    virtual event loop, if there is one."""

    boot_id = "test"

    def __init__(self, start: float = START_TIME, loop: VirtualLoop | None = None) -> None:
        self._start, self._passed = start, 0.0
        self._loop = loop

    def wall(self) -> float:
        return self._start + self.boot()

    def boot(self) -> float:
        loop = self._loop or self._virtual_loop()
        return self._passed + (0.0 if loop is None else loop.time())

    @property
    def moves(self) -> bool:
        """True if the clock follows a virtual event loop, so that a sleep makes time pass."""
        return self._loop is not None

    def advance(self, seconds: float | timedelta) -> None:
        self._passed += check_advance_seconds(seconds)

    def advance_to(self, wall: float) -> None:
        self._passed += max(0.0, wall - self.wall())
        if self.wall() < wall:
            self._passed += MIN_ADVANCE_SECONDS

    def _virtual_loop(self) -> VirtualLoop | None:
        """Returns the virtual event loop that runs now, or None if there is none. After the first call that
        finds a virtual loop, the clock follows the time of that loop."""
        loop = asyncio._get_running_loop()  # noqa: SLF001 - returns None without a running loop
        if isinstance(loop, VirtualLoop):
            self._loop = loop
            self._passed -= loop.time()
        return self._loop


def check_advance_seconds(seconds: float | timedelta) -> float:
    """Returns the duration in seconds, or raises ValueError if it is negative or no number."""
    length = to_seconds(seconds)
    if not is_number(length, 0):
        raise ValueError(
            f"seconds: time only goes forward, by a number of seconds or a timedelta, not by {seconds!r}"
        )
    return length
