"""What was read, as values."""

from __future__ import annotations

from typing import Literal

import msgspec

from tidemill.core.refusals import Refusal
from tidemill.core.units import Units

Sent = Literal["not sent", "unknown", "answered"]

AT_ONCE = 0.0
"""The window of a limit on calls at once."""


class Stated(msgspec.Struct, frozen=True, kw_only=True):
    """One limit in the provider's own words. `window` is in seconds, 0: so many at once, None: not said.
    `resets_at` is the wall time when it is whole again."""

    unit: str
    window: float | None = None
    limit: float | None = None
    remaining: float | None = None
    resets_at: float | None = None


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """`usage` None: nobody said. `sent`: "not sent" only when that is proven. `problems`: what went wrong
    with the user's own classifiers, to be logged."""

    usage: Units | None = None
    stated: tuple[Stated, ...] = ()
    refusal: Refusal | None = None
    sent: Sent = "unknown"
    problems: tuple[str, ...] = ()


class Known(msgspec.Struct, frozen=True):
    """An adapter's answer when it recognises what it sees: a refusal, or surely none."""

    refusal: Refusal | None
