"""The accounts a drain is measured on: what the provider does, and what a user would declare of it.

Four dialects as they are documented, and the one nobody documents. What differs from seed to seed (how
long a call takes, how late it is counted, when the day began, how many processes there are) is drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from tidemill import Day, Limit
from tidemill.testing.providers import GLM, Anthropic, Dialect, Gemini, OpenAI, Options, Quota
from tidemill.testing.virtual import START

ZONE = "America/Los_Angeles"
MOST_JITTER = 0.5
"""As much as the guard allows for: a provider may count a call at once or so much later."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """`tokens` of one call: sent, allowed and generated. `calls` is how many fill ten to twelve windows.
    `long`: over days, so that whatever looks around every second does so seldom, or a test takes minutes."""

    name: str
    dialect: Dialect
    quotas: tuple[Quota, ...]
    limits: tuple[Limit, ...]
    calls: int
    options: Options
    cost: dict[str, float] = {}
    tokens: tuple[int, int, int] = (0, 0, 0)
    most: float
    start: float = START
    processes: int = 3
    concurrency: int = 20
    long: bool = False

    @property
    def counted(self) -> dict[str, int]:
        """What the provider counts for one call."""
        sent, allowed, generated = self.tokens
        if self.options.charge == "admission":
            return {"tokens": max(sent, allowed), "input_tokens": sent, "output_tokens": allowed}
        return {"tokens": sent + generated, "input_tokens": sent, "output_tokens": generated}

    @property
    def latency(self) -> float:
        """How long a call takes on average, with its way to the provider."""
        return sum(self.options.latency) / 2 + self.options.jitter / 2


def openai(draw: random.Random) -> Setup:
    """Continuous buckets; the larger of the allowed and the sent tokens is taken when a call is let in."""
    allowed = draw.choice([250, 500, 600])
    return Setup(
        name="bucket (OpenAI)",
        dialect=OpenAI(),
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


def anthropic(draw: random.Random) -> Setup:
    """Continuous buckets; what is generated counts when it is. A call is reserved at what it may generate,
    which is more than most do."""
    generated = draw.choice([200, 300, 400])
    return Setup(
        name="bucket (Anthropic)",
        dialect=Anthropic(),
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


def gemini_days(draw: random.Random) -> Setup:
    """A calendar: so many a day in Los Angeles, beside a minute that is spread."""
    return Setup(
        name="calendar (Gemini)",
        dialect=Gemini(),
        quotas=(Quota.rolling("requests", 10), Quota.day("requests", 50, zone=ZONE)),
        limits=(
            Limit.requests(10, per="minute", shape="paced"),
            Limit.requests(50, per=Day(ZONE)),
        ),
        calls=11 * 50,
        tokens=(300, 0, 50),
        options=_options(draw, charge="actual", scope="model", skew=draw.uniform(-4, 4)),
        most=1.03,
        start=START + draw.uniform(0, 300 * 86_400),
        long=True,
        processes=draw.randint(2, 4),
    )


def gemini_minutes(draw: random.Random) -> Setup:
    """Ten a minute, in a shape that is documented nowhere."""
    shapes = (
        Quota.rolling("requests", 10),
        Quota.bucket("requests", 10),
        Quota.bucket("requests", 10, interval=1.0),
    )
    return Setup(
        name="unknown shape (Gemini)",
        dialect=Gemini(),
        quotas=(draw.choice(shapes),),
        limits=(Limit.requests(10, per="minute", shape="paced"),),
        calls=12 * 10,
        tokens=(300, 0, 50),
        options=_options(draw, charge="actual", scope="model"),
        most=1.20,
        processes=draw.randint(2, 4),
    )


def glm_at_once(draw: random.Random) -> Setup:
    """So many calls at once, and a day that is not reached."""
    seconds = draw.uniform(2, 12)
    return Setup(
        name="concurrent (GLM)",
        dialect=GLM(),
        quotas=(Quota.concurrent(5), Quota.day("requests", 2_000, zone="Asia/Shanghai")),
        limits=(Limit.concurrent(5), Limit.requests(2_000, per=Day("Asia/Shanghai"))),
        calls=5 * 60,
        tokens=(300, 0, 50),
        options=_options(draw, charge="actual", latency=(seconds, seconds)),
        most=1.05,
        processes=draw.randint(2, 4),
    )


def glm_rolling(draw: random.Random) -> Setup:
    """At most so many in any minute, and so many tokens."""
    sent = draw.choice([400, 1_000, 2_000])
    return Setup(
        name="rolling (GLM)",
        dialect=GLM(),
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


SETUPS: dict[str, Callable[[random.Random], Setup]] = {
    "openai": openai,
    "anthropic": anthropic,
    "days": gemini_days,
    "unknown": gemini_minutes,
    "concurrent": glm_at_once,
    "rolling": glm_rolling,
}


def setup_for(name: str, seed: int) -> Setup:
    return SETUPS[name](random.Random(f"{name} {seed}"))


def _options(draw: random.Random, **given: Any) -> Options:
    fast = draw.uniform(0.2, 2.0)
    usual = {"jitter": draw.choice([0.0, 0.1, MOST_JITTER]), "latency": (fast, fast * draw.uniform(1, 4))}
    return Options(**{**usual, **given})
