"""Accounts to begin with, shaped as the providers document theirs. The amounts are examples: real ones
differ by account and change."""

from __future__ import annotations

from tidemill.testing.providers.options import Options
from tidemill.testing.providers.quota import Quota

PRESETS: dict[str, tuple[tuple[Quota, ...], Options]] = {
    "openai": (
        (Quota.bucket("requests", 500), Quota.bucket("tokens", 200_000)),
        Options(charge="admission", rejected_count=True),
    ),
    "anthropic": (
        (
            Quota.bucket("requests", 60, interval=1.0),
            Quota.bucket("input_tokens", 30_000),
            Quota.bucket("output_tokens", 8_000),
        ),
        Options(charge="actual"),
    ),
    "gemini": (
        (
            Quota.rolling("requests", 10),
            Quota.rolling("input_tokens", 250_000),
            Quota.day("requests", 250, zone="America/Los_Angeles"),
        ),
        Options(charge="actual", scope="model"),
    ),
    "glm": (
        (
            Quota.concurrent(5),
            Quota.rolling("requests", 60),
            Quota.day("requests", 2_000, zone="Asia/Shanghai"),
            Quota.period("tokens", 5_000_000, per=5 * 3600.0),
        ),
        Options(charge="actual"),
    ),
}
