"""Feedback from provider calls: refusals, used units, remaining limits."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from tidemill.core.needs import IMPLIED, Units

MIN_REFUSAL_STATUS = 400
"""The lowest HTTP status that refuses a call."""


class Reason(StrEnum):
    """The reason why a provider refused a call and why a pool is closed. The reason decides how long the pool
    stays closed, see `core.closures`."""

    RATE = "rate"  # more per window than allowed, for one unit
    CONCURRENCY = "concurrency"  # more concurrent calls than allowed
    DAY_QUOTA = "day quota"  # the amount of the calendar period is used up
    STATED = "stated"  # used up until a time that the provider stated
    SPENDING = "spending"  # a spending cap or no credit: an operator must act
    FORBIDDEN = "forbidden"  # wrong key, no right, blocked for abuse: an operator must act
    OVERLOAD = "overload"  # the provider is overloaded; not our quota
    TOO_LARGE = "too large"  # never fits: the job fails
    UNKNOWN = "unknown"  # a 429 without a reason


OPERATOR_REASONS = frozenset({Reason.SPENDING, Reason.FORBIDDEN})
"""After these only an operator reopens the pool."""

PROBED_REASONS = frozenset(Reason) - {Reason.RATE, Reason.CONCURRENCY, Reason.TOO_LARGE}
"""After these a single probe precedes the other calls."""

UNCHARGED_REASONS = frozenset(Reason) - {Reason.TOO_LARGE, Reason.OVERLOAD}
"""A job stopped by these spends no attempt (I16). Overload spends from the pool's budget first."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's refusal of a call.

    - `unit`: the unit that ran out, if stated.
    - `retry_after`: the minimum wait in seconds.
    - `resets_at`: the wall time at which the provider resets the limit.
    - `status`: the HTTP status.
    - `then`: the reason to assume if a refusal of unknown reason repeats.
    - `slow`: True if the provider asked for a lower rate; a ramp then follows.
    - `text`: the provider's message, for people.
    - `bare`: True if only the HTTP status shows the reason."""

    reason: Reason
    unit: str | None = None
    retry_after: float | None = None
    resets_at: float | None = None
    status: int | None = None
    then: Reason | None = None
    slow: bool = False
    text: str = ""
    bare: bool = False

    @property
    def broke_off(self) -> bool:
        """True if the provider had begun to answer when it refused. It may then have counted tokens."""
        return self.reason is Reason.OVERLOAD if self.status is None else self.status < MIN_REFUSAL_STATUS


class PoolUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The units that an attempt really used of one pool. If a unit is missing in `units`, its reserved amount
    counts as used."""

    pool: str
    key: str | None = None
    units: Units

    @property
    def account_key(self) -> tuple[str, str | None]:
        return self.pool, self.key


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The information about a pool in a provider's answer. Three fields have a value for each limit name that
    the answer mentions:

    - `remaining`: the units left.
    - `amounts`: the size of the limit.
    - `resets`: the wall time when the whole limit is free."""

    pool: str
    key: str | None = None
    remaining: Units = msgspec.field(default_factory=dict)
    amounts: Units = msgspec.field(default_factory=dict)
    resets: dict[str, float] = msgspec.field(default_factory=dict)
    refusal: Refusal | None = None

    @property
    def account_key(self) -> tuple[str, str | None]:
        return self.pool, self.key


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """The pool usage of one attempt, as its worker reports it.

    - `made`: False if no call was made; all reserved units are then returned.
    - `is_success`: True if the provider answered without an error. A successful probe opens its pool.
    - `usages`: the used units. A unit without reported usage counts with its reserved amount."""

    made: bool = True
    is_success: bool = False
    usages: tuple[PoolUsage, ...] = ()
    observations: tuple[Observation, ...] = ()


def share_usage(used: Units | None, reserved: Sequence[Units]) -> list[Units | None]:
    """Divides a reported usage among several reservations, and returns one share per reservation, in order.
    The last share has everything that exceeds the reserved units. If `used` is None (unknown), every share is
    None."""
    if used is None or len(reserved) == 1:
        return [used] * len(reserved)
    left = dict(used)
    shares: list[Units | None] = []
    for units in reserved[:-1]:
        share = {unit: min(left[unit], units.get(unit, IMPLIED.get(unit, 0.0))) for unit in left}
        left = {unit: left[unit] - share[unit] for unit in left}
        shares.append(share)
    return [*shares, left]
