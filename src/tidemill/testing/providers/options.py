"""How a simulated provider behaves beside its quotas, and what goes wrong with it. Times are seconds since
its start."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal

import msgspec

from tidemill.testing.providers.faults import Faults


class Reason(StrEnum):
    """Why a call was refused. Each dialect says it in its own way, or does not know it."""

    RATE = "rate"
    DAY = "day"
    PERIOD = "period"
    CONCURRENCY = "concurrency"
    TOO_LARGE = "too large"
    ACCELERATION = "acceleration"
    OVERLOAD = "overload"
    NO_CREDIT = "no credit"
    SPEND_CAP = "spend cap"
    NOT_ON_TIER = "not on this tier"
    PLAN_EXPIRED = "plan expired"
    FAIR_USE = "fair use"
    CONTENT = "content"
    WRONG_KEY = "wrong key"


class Trouble(msgspec.Struct, frozen=True):
    """Every call is refused for this reason from `start` until `end`: an overload storm, an empty account.
    Nothing is counted or billed meanwhile."""

    reason: Reason
    start: float = 0.0
    end: float = math.inf


class Change(msgspec.Struct, frozen=True):
    """The account's quota of that name becomes another amount."""

    at: float
    quota: str
    amount: int


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of somebody else on the same account: at given times, or at a rate (the gaps are drawn, seeded).
    scope: whose counters they use, where counters are kept per model or key."""

    times: tuple[float, ...] = ()
    per_second: float = 0.0
    start: float = 0.0
    end: float = math.inf
    input_tokens: int = 0
    output_tokens: int = 0
    max_tokens: int = 0
    seconds: float = 0.0
    scope: str = ""


class Acceleration(msgspec.Struct, frozen=True):
    """Calls in any `over` seconds: at most `factor` times those of the `over` seconds before, and `free`
    whatever came before."""

    over: float = 60.0
    factor: float = 2.0
    free: int = 10


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """charge: "admission" takes max(max_tokens, estimate) tokens when a call is let in and gives nothing
    back; "actual" takes the input then and the output when the answer is complete, which is the latest and
    so the hardest a client can meet.
    scope: whether counters are one set, or one per model or per key.
    skew: by how many seconds its calendar is ahead.
    jitter, latency: seconds from sending to being counted (0 to `jitter`), and from then to the answer.
    lost: which billed calls (counted from 1) are cut off before their answer; lost_rate: a drawn share.
    faults: which answers are wrong, and how."""

    charge: Literal["admission", "actual"] = "actual"
    scope: Literal["account", "model", "key"] = "account"
    rejected_count: bool = False
    acceleration: Acceleration | None = None
    skew: float = 0.0
    jitter: float = 0.0
    latency: tuple[float, float] = (0.0, 0.0)
    output_tokens: int = 16
    troubles: tuple[Trouble, ...] = ()
    changes: tuple[Change, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    lost: frozenset[int] = frozenset()
    lost_rate: float = 0.0
    faults: Faults = Faults()
