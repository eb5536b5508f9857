"""The only module that reads clocks and draws random numbers.

All other code receives a `Clock` and an `Entropy`, which tests can replace."""

from __future__ import annotations

import os
import random
import time
from base64 import b32encode
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """The two clocks of a process, and the id of the machine's start.

    - `wall`: returns Unix time; this clock may be set
    - `boot`: returns seconds since the machine started; this clock never goes back or stops
    - `boot_id`: changes with every restart; boot times with different ids cannot be compared"""

    @property
    def boot_id(self) -> str: ...
    def wall(self) -> float: ...
    def boot(self) -> float: ...


class Entropy(Protocol):
    """The source of everything random. `new_id` returns an id, `claim_id` a claim id, `chance` a random
    number from 0 to below 1, and `secret` a secret text."""

    def new_id(self) -> str: ...
    def claim_id(self) -> int: ...
    def chance(self) -> float: ...
    def secret(self) -> str: ...


class SystemClock:
    """The clocks of this machine."""

    def __init__(self) -> None:
        self.boot_id = _read_boot_id()

    def wall(self) -> float:
        return time.time()

    def boot(self) -> float:
        return time.clock_gettime(_BOOT_CLOCK)


class SystemEntropy:
    """The random source of this machine. Ids begin with the millisecond of their creation."""

    def new_id(self) -> str:
        return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"

    def claim_id(self) -> int:
        return int.from_bytes(os.urandom(8)) >> 1 | 1

    def chance(self) -> float:
        return random.random()  # noqa: S311 - jitter, not a secret

    def secret(self) -> str:
        """Returns a text of 160 random bits, in lower-case letters and digits."""
        return b32encode(os.urandom(20)).decode().lower()


_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _read_boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # Outside of Linux the file does not exist. The time of the last boot distinguishes boots well
        # enough.
        return f"up-since-{round((time.time() - time.clock_gettime(_BOOT_CLOCK)) / 60)}"
