"""A rule: what is watched, and from where on it is wrong."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from tidemill.core.names import problem_with_name
from tidemill.errors import ConfigurationError

MINUTE = 60.0


class On(StrEnum):
    QUEUE_LENGTH = "queue_length"  # jobs that are ready or scheduled
    OLDEST_JOB = "oldest_job"  # seconds the longest waiting ready job has waited
    FAILURE_RATIO = "failure_ratio"  # failed of those that ended within the window, 0 to 1
    DEAD_LETTERS = "dead_letters"  # jobs that failed for good within the window
    POOL_CLOSED = "pool_closed"  # seconds a pool has been closed
    WORKER_GONE = "worker_gone"  # workers that fell silent within the window without a farewell
    STORE_SIZE = "store_size"  # bytes the store takes, of memory or of disk
    STORE_LOST = "store_lost"  # seconds without the store
    OWN = "own"  # what the application measures


Measure = Callable[[], Awaitable[float | Mapping[str, float]] | float | Mapping[str, float]]
"""What an application measures: a number, or one for each thing by its name."""

ABOVE: Mapping[On, float] = {
    On.OLDEST_JOB: 15 * MINUTE,
    On.FAILURE_RATIO: 0.5,
    On.DEAD_LETTERS: 0.0,
    On.POOL_CLOSED: 10 * MINUTE,
    On.WORKER_GONE: 0.0,
    On.STORE_LOST: 30.0,
}
"""From where on it is wrong when nobody says; how long a queue may be, or how large a store, only people
know."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """It is raised when what it is `on` has been over `above` for `lasting` seconds, and over when it is down
    to `clear`, which is `above` unless said. `queue` and `pool` narrow it, each is looked at by itself.
    `window` is how far back ends are counted; of fewer than `least` no ratio is made."""

    on: On
    above: float | None = None
    clear: float | None = None
    lasting: float = 0.0
    queue: str | None = None
    pool: str | None = None
    window: float = 5 * MINUTE
    least: int = 10

    @property
    def raises_at(self) -> float:
        return self.above if self.above is not None else ABOVE.get(self.on, 0.0)

    @property
    def clears_at(self) -> float:
        return self.raises_at if self.clear is None else self.clear

    def problem(self) -> str | None:
        """Why it cannot work, naming the field."""
        if self.above is None and self.on not in ABOVE:
            return f"above: must be given for {self.on}"
        numbers = {"above": self.raises_at, "clear": self.clears_at, "lasting": self.lasting}
        for field, value in numbers.items():
            if not _is_number(value):
                return f"{field}: must be a number, 0 or more, is {value!r}"
        if self.clears_at > self.raises_at:
            return f"clear: must not be over {self.raises_at:g}, where it is raised, is {self.clears_at:g}"
        if not _is_number(self.window) or self.window < MINUTE:
            return f"window: must be 60 seconds or more, is {self.window!r}: ends are counted by the minute"
        for field in ("queue", "pool"):
            name = getattr(self, field)
            if name is not None and (problem := problem_with_name(field, name)):
                return problem
        return None


def _is_number(value: Any) -> bool:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and math.isfinite(value) and value >= 0


def declared(name: str, fields: Mapping[str, Any]) -> Rule:
    """What code says; refused naming the field."""
    try:
        rule = msgspec.convert(fields, Rule)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"alert {name!r}: {error}") from None
    if problem := problem_with_name("name", name) or rule.problem():
        raise ConfigurationError(f"alert {name!r}: {problem}")
    return rule


USUAL: Mapping[str, Rule] = {
    "dead letters": Rule(on=On.DEAD_LETTERS),
    "pool closed": Rule(on=On.POOL_CLOSED),
    "oldest job": Rule(on=On.OLDEST_JOB, clear=MINUTE),
    "worker gone": Rule(on=On.WORKER_GONE),
    "store lost": Rule(on=On.STORE_LOST),
}
"""What holds where somebody is to be told and nobody said of what."""
