"""The four accounts, one per dialect, and the call that every job makes.

All calls of an account are equal, so that the single rate of a simple limiter can be computed exactly.
It is the account's strictest limit, as jobs per window. Calendar days are left out, because the wall
clock cannot be accelerated. The virtual-time table includes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.testing.simulator import Quota, SimulatorOptions, optimal_drain_seconds
from tidemill.testing.simulator.quotas import UnitCounts

LATENCY = 4.0
JITTER = 0.4
"""Latency of the simulated network in the provider's seconds: within the guard of 0.5 s that T_opt allows."""


@dataclass(frozen=True)
class BenchmarkAccount:
    """One account.

    `jobs_per_window` and `window` are the single rate of a simple limiter. `at_once` is the concurrency
    limit of the provider, if it has one. `units` is the cost of a call."""

    dialect: str
    path: str
    body: dict[str, Any]
    input_tokens: int
    output_tokens: int
    quotas: tuple[Quota, ...]
    units: UnitCounts
    jobs_per_window: int
    window: float = 60.0
    at_once: int | None = None
    charged: bool = False

    @property
    def options(self) -> SimulatorOptions:
        return SimulatorOptions(
            charge="admission" if self.charged else "actual",
            rejected_count=self.charged,
            jitter=JITTER,
            latency=(LATENCY, LATENCY),
        )

    def best(self, jobs: int) -> float:
        """T_opt in the provider's seconds."""
        return optimal_drain_seconds(self.quotas, jobs, cost=self.units, latency=LATENCY)


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


ACCOUNTS = {
    account.dialect: account
    for account in (
        BenchmarkAccount(
            dialect="openai",
            path="/v1/chat/completions",
            body={"model": "gpt-4o", "max_tokens": 800, "messages": _said("How high is the tide?")},
            input_tokens=200,
            output_tokens=150,
            # Tokens are charged by max_tokens at admission, and are the stricter of the two limits.
            quotas=(Quota.bucket("requests", 60), Quota.bucket("tokens", 40_000)),
            units={"tokens": 800},
            jobs_per_window=50,
            charged=True,
        ),
        BenchmarkAccount(
            dialect="anthropic",
            path="/v1/messages",
            body={
                "model": "claude-sonnet-4-5",
                "max_tokens": 150,
                "messages": _said("How high is the tide?"),
            },
            input_tokens=300,
            output_tokens=150,
            # 60 a minute, enforced over 5 seconds: bursts of five.
            quotas=(
                Quota.bucket("requests", 60, interval=5.0),
                Quota.bucket("input_tokens", 30_000),
                Quota.bucket("output_tokens", 12_000),
            ),
            units={"input_tokens": 300, "output_tokens": 150},
            jobs_per_window=5,
            window=5.0,
        ),
        BenchmarkAccount(
            dialect="gemini",
            path="/v1beta/models/gemini-2.5-flash:generateContent",
            body={"contents": [{"parts": [{"text": "How high is the tide?"}]}]},
            input_tokens=900,
            output_tokens=150,
            quotas=(Quota.rolling("requests", 50), Quota.rolling("input_tokens", 250_000)),
            units={"input_tokens": 900},
            jobs_per_window=50,
        ),
        BenchmarkAccount(
            dialect="glm",
            path="/api/paas/v4/chat/completions",
            body={"model": "glm-4.6", "messages": _said("How high is the tide?")},
            input_tokens=300,
            output_tokens=150,
            # Five concurrent calls is the stricter of the two limits: 75 a minute at 4 s a call.
            quotas=(Quota.concurrent(5), Quota.rolling("requests", 120)),
            units={},
            jobs_per_window=120,
            at_once=5,
        ),
    )
}
