"""A small metered provider: it records when calls arrive, and refuses when the test asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping


class Refused(Exception):
    """An error as a client library raises it, with a status and a response with headers."""

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
        """Returns the largest number of calls in any period of that length."""
        return max(sum(first <= at < first + seconds for at in self.arrivals) for first in self.arrivals)
