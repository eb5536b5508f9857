"""The four accounts, one per dialect, and the call that every job makes.

All calls of an account are alike, so that the one rate a simple limiter knows can be computed exactly: it
is given the strictest of the account's limits, as jobs per window. Calendar days are left out: who reads
the wall clock cannot be sped up. They are in the virtual-time table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.testing.providers import Options, Quota, best_drain
from tidemill.testing.providers.quota import Units

LATENCY = 4.0
JITTER = 0.4
"""Of the simulated network, in the provider's seconds: within the guard of 0.5 s that T_opt allows for."""


@dataclass(frozen=True)
class Account:
    """jobs_per_window, window: the one rate a simple limiter is given. at_once: calls under way, where the
    provider limits them. `units` are what a call is metered at."""

    dialect: str
    path: str
    body: dict[str, Any]
    input_tokens: int
    output_tokens: int
    quotas: tuple[Quota, ...]
    units: Units
    jobs_per_window: int
    window: float = 60.0
    at_once: int | None = None
    charged: bool = False

    @property
    def options(self) -> Options:
        return Options(
            charge="admission" if self.charged else "actual",
            rejected_count=self.charged,
            jitter=JITTER,
            latency=(LATENCY, LATENCY),
        )

    def best(self, jobs: int) -> float:
        """T_opt, in the provider's seconds."""
        return best_drain(self.quotas, jobs, cost=self.units, latency=LATENCY)


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


ACCOUNTS = {
    account.dialect: account
    for account in (
        Account(
            dialect="openai",
            path="/v1/chat/completions",
            body={"model": "gpt-4o", "max_tokens": 800, "messages": _said("How high is the tide?")},
            input_tokens=200,
            output_tokens=150,
            # Tokens are charged by max_tokens when a call is let in, and are the tighter of the two.
            quotas=(Quota.bucket("requests", 60), Quota.bucket("tokens", 40_000)),
            units={"tokens": 800},
            jobs_per_window=50,
            charged=True,
        ),
        Account(
            dialect="anthropic",
            path="/v1/messages",
            body={
                "model": "claude-sonnet-4-5",
                "max_tokens": 150,
                "messages": _said("How high is the tide?"),
            },
            input_tokens=300,
            output_tokens=150,
            # 60 a minute, enforced over 5 seconds: five at once and no more.
            quotas=(
                Quota.bucket("requests", 60, interval=5.0),
                Quota.bucket("input_tokens", 30_000),
                Quota.bucket("output_tokens", 12_000),
            ),
            units={"input_tokens": 300, "output_tokens": 150},
            jobs_per_window=5,
            window=5.0,
        ),
        Account(
            dialect="gemini",
            path="/v1beta/models/gemini-2.5-flash:generateContent",
            body={"contents": [{"parts": [{"text": "How high is the tide?"}]}]},
            input_tokens=900,
            output_tokens=150,
            quotas=(Quota.rolling("requests", 50), Quota.rolling("input_tokens", 250_000)),
            units={"input_tokens": 900},
            jobs_per_window=50,
        ),
        Account(
            dialect="glm",
            path="/api/paas/v4/chat/completions",
            body={"model": "glm-4.6", "messages": _said("How high is the tide?")},
            input_tokens=300,
            output_tokens=150,
            # Five at once is the tighter of the two: 75 a minute at 4 s a call.
            quotas=(Quota.concurrent(5), Quota.rolling("requests", 120)),
            units={},
            jobs_per_window=120,
            at_once=5,
        ),
    )
}
