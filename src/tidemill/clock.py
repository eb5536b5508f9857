"""The one place that reads clocks and draws random numbers.

Everything else is handed a `Clock` and an `Entropy`, which is what lets the tests and a
user's own tests run days of queue time in milliseconds, and replay a failure from its seed.
"""

from __future__ import annotations

import os
import random
import time
from base64 import b32encode
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """`wall` is for schedules and calendars and may be stepped; `boot` only moves forward,
    sleeps included, and means nothing across boots."""

    @property
    def boot_id(self) -> str: ...
    def wall(self) -> float: ...
    def boot(self) -> float: ...


class Entropy(Protocol):
    def new_id(self) -> str: ...
    def claim_id(self) -> int: ...
    def chance(self) -> float: ...
    def secret(self) -> str: ...


class SystemClock:
    def __init__(self) -> None:
        self.boot_id = _read_boot_id()

    def wall(self) -> float:
        return time.time()

    def boot(self) -> float:
        return time.clock_gettime(_BOOT_CLOCK)


class SystemEntropy:
    """Ids begin with the millisecond they were made in, so that an index on them grows at its end."""

    def new_id(self) -> str:
        return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"

    def claim_id(self) -> int:
        return int.from_bytes(os.urandom(8)) >> 1 | 1

    def chance(self) -> float:
        return random.random()  # noqa: S311 - jitter, not a secret

    def secret(self) -> str:
        """160 bits that nobody guesses, in small letters and digits."""
        return b32encode(os.urandom(20)).decode().lower()


_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _read_boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # No such file outside Linux: the time the machine came up tells boots apart well enough.
        return f"up-since-{round((time.time() - time.clock_gettime(_BOOT_CLOCK)) / 60)}"
