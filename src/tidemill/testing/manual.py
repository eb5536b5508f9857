"""A clock that stands still until it is moved, and randomness that can be replayed."""

from __future__ import annotations

import random
from base64 import b32encode


class ManualClock:
    """`advance` is time passing; `step_wall` is somebody setting the clock; `reboot` is another boot,
    whose clock starts from nothing."""

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
        """The machine was down for `after` seconds of wall time."""
        self._wall += after
        self._boot = 1.0
        self._boots += 1


class SeededEntropy:
    """The same seed draws the same ids, claim ids and chances."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - to be replayed is the point
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
