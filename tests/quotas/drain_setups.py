"""The accounts of the drains: the provider's behaviour, and the pool that a user would declare for it.

Four documented dialects, and one undocumented limit. Each seed draws the latency, the jitter, the start
of the day and the number of processes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from tidemill import Day, Limit
from tidemill.testing.simulator import (
    AnthropicDialect,
    Dialect,
    GeminiDialect,
    GlmDialect,
    OpenAIDialect,
    Quota,
    SimulatorOptions,
)
from tidemill.testing.virtual_loop import START_TIME

ZONE = "America/Los_Angeles"
MAX_JITTER_SECONDS = 0.5
"""The provider counts a call up to this much later: as much as the guard allows."""


class DrainSetup(msgspec.Struct, frozen=True, kw_only=True):
    """One account.

    `tokens` of one call: sent, allowed and generated. `calls` fill ten to twelve windows. `long` drains
    take days; their polls are rarer, because otherwise a test would take minutes."""

    name: str
    dialect: Dialect
    quotas: tuple[Quota, ...]
    limits: tuple[Limit, ...]
    calls: int
    options: SimulatorOptions
    cost: dict[str, float] = {}
    tokens: tuple[int, int, int] = (0, 0, 0)
    most: float
    start: float = START_TIME
    processes: int = 3
    concurrency: int = 20
    long: bool = False

    @property
    def counted(self) -> dict[str, int]:
        """Returns the units that the provider counts for one call."""
        sent, allowed, generated = self.tokens
        if self.options.charge == "admission":
            return {"tokens": max(sent, allowed), "input_tokens": sent, "output_tokens": allowed}
        return {"tokens": sent + generated, "input_tokens": sent, "output_tokens": generated}

    @property
    def latency(self) -> float:
        """The average duration of a call, including the way to the provider."""
        return sum(self.options.latency) / 2 + self.options.jitter / 2


def openai(draw: random.Random) -> DrainSetup:
    """Token buckets. At admission, a call takes the larger of the allowed and the sent tokens."""
    allowed = draw.choice([250, 500, 600])
    return DrainSetup(
        name="bucket (OpenAI)",
        dialect=OpenAIDialect(),
        quotas=(Quota.bucket("requests", 60), Quota.bucket("tokens", 30_000)),
        limits=(
            Limit.requests(60, per="minute", shape="bucket"),
            Limit.tokens(30_000, per="minute", shape="bucket", charge="reserved"),
        ),
        calls=11 * min(60, 30_000 // allowed),
        cost={"tokens": allowed},
        tokens=(100, allowed, draw.randint(20, allowed)),
        options=_options(draw, charge="admission", rejected_count=True),
        most=1.03,
        processes=draw.randint(2, 4),
    )


def anthropic(draw: random.Random) -> DrainSetup:
    """Token buckets. Output counts when it is generated. A call reserves what it may generate, which is
    more than most calls use."""
    generated = draw.choice([200, 300, 400])
    return DrainSetup(
        name="bucket (Anthropic)",
        dialect=AnthropicDialect(),
        quotas=(
            Quota.bucket("requests", 300),
            Quota.bucket("input_tokens", 30_000),
            Quota.bucket("output_tokens", 8_000),
        ),
        limits=(
            Limit.requests(300, per="minute", shape="bucket"),
            Limit.of("input_tokens", 30_000, per="minute", shape="bucket"),
            Limit.of("output_tokens", 8_000, per="minute", shape="bucket", charge="completed"),
        ),
        calls=11 * 8_000 // generated,
        cost={"input_tokens": 500, "output_tokens": 400},
        tokens=(500, 400, generated),
        options=_options(draw, charge="actual"),
        most=1.03,
        processes=draw.randint(2, 4),
    )


def gemini_days(draw: random.Random) -> DrainSetup:
    """A calendar limit per day in Los Angeles, beside a paced limit per minute."""
    return DrainSetup(
        name="calendar (Gemini)",
        dialect=GeminiDialect(),
        quotas=(Quota.rolling("requests", 10), Quota.day("requests", 50, zone=ZONE)),
        limits=(
            Limit.requests(10, per="minute", shape="paced"),
            Limit.requests(50, per=Day(ZONE)),
        ),
        calls=11 * 50,
        tokens=(300, 0, 50),
        options=_options(draw, charge="actual", scope="model", skew=draw.uniform(-4, 4)),
        most=1.03,
        start=START_TIME + draw.uniform(0, 300 * 86_400),
        long=True,
        processes=draw.randint(2, 4),
    )


def gemini_minutes(draw: random.Random) -> DrainSetup:
    """Ten requests a minute, in an undocumented shape."""
    shapes = (
        Quota.rolling("requests", 10),
        Quota.bucket("requests", 10),
        Quota.bucket("requests", 10, interval=1.0),
    )
    return DrainSetup(
        name="unknown shape (Gemini)",
        dialect=GeminiDialect(),
        quotas=(draw.choice(shapes),),
        limits=(Limit.requests(10, per="minute", shape="paced"),),
        calls=12 * 10,
        tokens=(300, 0, 50),
        options=_options(draw, charge="actual", scope="model"),
        most=1.20,
        processes=draw.randint(2, 4),
    )


def glm_at_once(draw: random.Random) -> DrainSetup:
    """A concurrency limit, and a daily limit that is never reached."""
    seconds = draw.uniform(2, 12)
    return DrainSetup(
        name="concurrent (GLM)",
        dialect=GlmDialect(),
        quotas=(Quota.concurrent(5), Quota.day("requests", 2_000, zone="Asia/Shanghai")),
        limits=(Limit.concurrent(5), Limit.requests(2_000, per=Day("Asia/Shanghai"))),
        calls=5 * 60,
        tokens=(300, 0, 50),
        options=_options(draw, charge="actual", latency=(seconds, seconds)),
        most=1.05,
        processes=draw.randint(2, 4),
    )


def glm_rolling(draw: random.Random) -> DrainSetup:
    """Rolling limits per minute for requests and for tokens."""
    sent = draw.choice([400, 1_000, 2_000])
    return DrainSetup(
        name="rolling (GLM)",
        dialect=GlmDialect(),
        quotas=(Quota.rolling("requests", 60), Quota.rolling("input_tokens", 60_000)),
        limits=(
            Limit.requests(60, per="minute"),
            Limit.of("input_tokens", 60_000, per="minute"),
        ),
        calls=11 * min(60, 60_000 // sent),
        cost={"input_tokens": sent},
        tokens=(sent, 0, 50),
        options=_options(draw, charge="actual"),
        most=1.05,
        processes=draw.randint(2, 4),
    )


SETUPS: dict[str, Callable[[random.Random], DrainSetup]] = {
    "openai": openai,
    "anthropic": anthropic,
    "days": gemini_days,
    "unknown": gemini_minutes,
    "concurrent": glm_at_once,
    "rolling": glm_rolling,
}


def setup_for(name: str, seed: int) -> DrainSetup:
    return SETUPS[name](random.Random(f"{name} {seed}"))


def _options(draw: random.Random, **given: Any) -> SimulatorOptions:
    fast = draw.uniform(0.2, 2.0)
    usual = {
        "jitter": draw.choice([0.0, 0.1, MAX_JITTER_SECONDS]),
        "latency": (fast, fast * draw.uniform(1, 4)),
    }
    return SimulatorOptions(**{**usual, **given})
