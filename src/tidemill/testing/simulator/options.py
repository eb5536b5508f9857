"""How a simulated provider behaves: charging, latency, disruptions, external traffic, preset accounts."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from enum import StrEnum
from typing import Literal

import msgspec

from tidemill.testing.simulator.quotas import Quota, to_ticks
from tidemill.testing.simulator.replies import ReplyFaults


class RefusalCause(StrEnum):
    """Why a call was refused. Each dialect expresses it in its format, or does not support it."""

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


class Disruption(msgspec.Struct, frozen=True):
    """Refuses every call with the cause `reason` from `start` until `end`, in seconds since the provider's
    start. Refused calls are neither counted nor billed."""

    reason: RefusalCause
    start: float = 0.0
    end: float = math.inf


class QuotaChange(msgspec.Struct, frozen=True):
    """Changes the amount of a quota. `quota` is the name of the quota, `at` the time in seconds since the
    provider's start."""

    at: float
    quota: str
    amount: int


class ExternalTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of other programs on the same account. All times are seconds since the provider's start.

    - `times`: the times of the calls
    - `per_second`: instead of `times`, the mean rate of calls from `start` to `end`; the gaps are random
    - `seconds`: the duration of each call
    - `scope`: the model or API key whose counters the calls use, if counters are separate
    """

    times: tuple[float, ...] = ()
    per_second: float = 0.0
    start: float = 0.0
    end: float = math.inf
    input_tokens: int = 0
    output_tokens: int = 0
    max_tokens: int = 0
    seconds: float = 0.0
    scope: str = ""


class AccelerationLimit(msgspec.Struct, frozen=True):
    """Limits the growth of traffic. In `over` seconds the provider allows at most `factor` times as many
    calls as in the `over` seconds before, but at least `free` calls."""

    over: float = 60.0
    factor: float = 2.0
    free: int = 10


class SimulatorOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The behaviour of a simulated provider. Durations are seconds.

    - `charge`: when the provider counts tokens. "admission": max(max_tokens, input tokens) when it admits the
      call. "actual": the input tokens at admission, and the output tokens at the end of the reply.
    - `scope`: whether counters are for the whole account, per model or per API key.
    - `rejected_count`: whether refused calls count as requests.
    - `skew`: by how much the provider's calendar is ahead.
    - `jitter`: the maximum time from sending a call to counting it; each call draws a random time.
    - `latency`: the shortest and longest time from counting a call to its reply.
    - `output_tokens`: the tokens of a reply, if the request does not set them.
    - `lost`: the numbers of the billed calls whose reply is lost, counted from 1.
    - `lost_rate`: the probability, from 0 to 1, that the reply to any other billed call is lost.
    - `faults`: which replies are wrong, and how.
    """

    charge: Literal["admission", "actual"] = "actual"
    scope: Literal["account", "model", "key"] = "account"
    rejected_count: bool = False
    acceleration: AccelerationLimit | None = None
    skew: float = 0.0
    jitter: float = 0.0
    latency: tuple[float, float] = (0.0, 0.0)
    output_tokens: int = 16
    disruptions: tuple[Disruption, ...] = ()
    changes: tuple[QuotaChange, ...] = ()
    external: tuple[ExternalTraffic, ...] = ()
    lost: frozenset[int] = frozenset()
    lost_rate: float = 0.0
    faults: ReplyFaults = ReplyFaults()


def generate_call_times(external: ExternalTraffic, seed: int) -> Iterator[int]:
    """Yields the times of the external calls in microseconds, in order. Does not end if the traffic has no
    end."""
    yield from (to_ticks(at) for at in sorted(external.times))
    if external.per_second > 0:
        draws = random.Random(seed)  # noqa: S311 - deterministic on purpose
        at = external.start + draws.expovariate(external.per_second)
        while at < external.end:
            yield to_ticks(at)
            at += draws.expovariate(external.per_second)


PRESETS: dict[str, tuple[tuple[Quota, ...], SimulatorOptions]] = {
    "openai": (
        (Quota.bucket("requests", 500), Quota.bucket("tokens", 200_000)),
        SimulatorOptions(charge="admission", rejected_count=True),
    ),
    "anthropic": (
        (
            Quota.bucket("requests", 60, interval=1.0),
            Quota.bucket("input_tokens", 30_000),
            Quota.bucket("output_tokens", 8_000),
        ),
        SimulatorOptions(charge="actual"),
    ),
    "gemini": (
        (
            Quota.rolling("requests", 10),
            Quota.rolling("input_tokens", 250_000),
            Quota.day("requests", 250, zone="America/Los_Angeles"),
        ),
        SimulatorOptions(charge="actual", scope="model"),
    ),
    "glm": (
        (
            Quota.concurrent(5),
            Quota.rolling("requests", 60),
            Quota.day("requests", 2_000, zone="Asia/Shanghai"),
            Quota.period("tokens", 5_000_000, per=5 * 3600.0),
        ),
        SimulatorOptions(charge="actual"),
    ),
}
