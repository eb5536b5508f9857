"""A tiny metered provider: it only remembers when calls arrived, and refuses when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping


class Refused(Exception):
    """As a client library raises it: a status, and a response with headers."""

    def __init__(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"status {status}")
        self.status_code = status
        self.headers = dict(headers or {})


class Provider:
    def __init__(self) -> None:
        self.arrivals: list[float] = []
        self.refusals: list[Refused] = []

    def call(self) -> None:
        self.arrivals.append(asyncio.get_running_loop().time())
        if self.refusals:
            raise self.refusals.pop(0)

    def most_within(self, seconds: float) -> int:
        """In any stretch of that length."""
        return max(sum(first <= at < first + seconds for at in self.arrivals) for first in self.arrivals)
