"""Limits of public routes: requests per minute of one client."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from tidemill.web import HTTPError

MINUTE_SECONDS = 60.0
MAX_CLIENTS = 10_000
"""The number of clients in memory above which all counts start again at 0."""


class RequestLimits:
    """Allows each client `limit` requests in any minute. `now` returns the time in seconds."""

    def __init__(self, now: Callable[[], float], limit: int) -> None:
        self._now, self._limit = now, limit
        self._recent: dict[str, list[float]] = {}

    def check(self, client: str) -> None:
        """Counts a request. Raises HTTPError 429 if the client has made too many."""
        now = self._now()
        if len(self._recent) > MAX_CLIENTS:
            self._recent.clear()
        times = [at for at in self._recent.get(client, ()) if at > now - MINUTE_SECONDS]
        if len(times) >= self._limit:
            seconds = str(round(times[0] + MINUTE_SECONDS - now) + 1)
            sentence = f"too many requests; try again in {seconds} seconds"
            raise HTTPError(HTTPStatus.TOO_MANY_REQUESTS, sentence, headers={"retry-after": seconds})
        self._recent[client] = [*times, now]
