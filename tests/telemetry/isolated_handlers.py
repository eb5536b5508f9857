"""Handlers that an isolated process imports."""

from __future__ import annotations

from tidemill.telemetry.current_attempt import current_attempt


def current_trace() -> str | None:
    attempt = current_attempt()
    return None if attempt is None else attempt.trace


def fails() -> None:
    raise ValueError("apart")
