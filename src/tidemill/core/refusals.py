"""What a provider's refusal means, as data: adapters read it, the breaker acts on it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

CLIENT_ERROR = 400
"""The lowest HTTP status that refuses a call."""


class Reason(StrEnum):
    """Why a pool is closed, or a call was refused.

    A reason decides how long: see `core.breaker`.
    """

    RATE = "rate"  # more per window than allowed: one unit's window
    CONCURRENCY = "concurrency"  # more at once than allowed
    DAY_QUOTA = "day quota"  # the calendar period's amount is gone
    STATED = "stated"  # gone until a time the provider stated
    SPENDING = "spending"  # a spending cap or no credit: a person must act
    FORBIDDEN = "forbidden"  # wrong key, no right, blocked for abuse: a person must act
    OVERLOAD = "overload"  # the provider's own trouble, not our quota
    TOO_LARGE = "too large"  # never fits: the job fails
    UNKNOWN = "unknown"  # a 429 that says nothing


BY_HAND = frozenset({Reason.SPENDING, Reason.FORBIDDEN})
"""Only a person reopens after these."""

PROBED = frozenset(Reason) - {Reason.RATE, Reason.CONCURRENCY, Reason.TOO_LARGE}
"""After these one call tries alone before the others follow."""

UNCHARGED = frozenset(Reason) - {Reason.TOO_LARGE, Reason.OVERLOAD}
"""A job stopped by these spends no attempt (I16). Overload spends from the pool's budget first."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """retry_after: seconds, a floor. resets_at: a wall time the provider stated. unit: the one that is
    short, when it said so. then: what an unknown refusal is taken for when it comes again after its
    wait. slow: the provider asked for less speed, so the pool opens along a ramp. text: what it said, for
    people. bare: only the HTTP status says so, no word of the provider's."""

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
        """True when the provider had begun to answer: it may have counted tokens. A stream that breaks off
        has the status of its beginning, or none."""
        return self.reason is Reason.OVERLOAD if self.status is None else self.status < CLIENT_ERROR
