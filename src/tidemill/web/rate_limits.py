"""Rate limits of the HTTP server: token buckets, requests per API token, and failed sign-ins per network."""

from __future__ import annotations

import math
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address, ip_network

from tidemill.clock import Clock
from tidemill.http_routes.problems import HTTPError

_MAX_KEYS = 10_000
"""Most keys in memory; above it, full buckets are dropped first."""


class TokenBuckets:
    def __init__(self, clock: Clock, amount: int, per: float) -> None:
        """Creates token buckets, one per key. A bucket holds `amount` tokens, and an empty bucket is full
        again after `per` seconds."""
        self._clock, self.amount, self.per = clock, amount, per
        self._rate = amount / per
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, key: str) -> float:
        """Takes one token from the bucket of `key` and returns 0.0. If the bucket is empty, returns the
        seconds until a token is free."""
        # No await between check and take: two requests cannot take the same token.
        left, now = self.left(key), self._clock.boot()
        if left < 1.0:
            return (1.0 - left) / self._rate
        if len(self._levels) >= _MAX_KEYS:
            self._forget()
        self._levels[key] = (left - 1.0, now)
        return 0.0

    def give_back(self, key: str) -> None:
        self._levels[key] = (min(float(self.amount), self.left(key) + 1.0), self._clock.boot())

    def left(self, key: str) -> float:
        level, since = self._levels.get(key, (float(self.amount), 0.0))
        return min(float(self.amount), level + (self._clock.boot() - since) * self._rate)

    def _forget(self) -> None:
        self._levels = {key: level for key, level in self._levels.items() if self.left(key) < self.amount}
        if len(self._levels) >= _MAX_KEYS:
            self._levels.clear()


MINUTE_SECONDS = 60.0

RateLimitHeaders = dict[str, str]


class RequestRateLimiter:
    def __init__(self, clock: Clock, amount: int) -> None:
        self._buckets = TokenBuckets(clock, amount, MINUTE_SECONDS)

    def take(self, token: str) -> RateLimitHeaders:
        wait = math.ceil(self._buckets.take(token))
        headers = self._headers(token)
        if wait:
            raise HTTPError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"this token may ask {self._buckets.amount} times a minute; ask again in {wait} seconds, or "
                "raise web.rate",
                headers={**headers, "retry-after": str(wait)},
            )
        return headers

    def _headers(self, token: str) -> RateLimitHeaders:
        left = int(self._buckets.left(token))
        full = math.ceil((self._buckets.amount - left) * self._buckets.per / self._buckets.amount)
        return {
            "ratelimit-policy": f'"token";q={self._buckets.amount};w={int(MINUTE_SECONDS)}',
            "ratelimit": f'"token";r={left};t={full}',
        }


MAX_FAILED_SIGN_INS, FAILED_SIGN_IN_WINDOW_SECONDS = 5, 150.0
"""Failed sign-ins allowed per network, and the seconds in which the allowance refills."""
MAX_FAILED_SIGN_INS_TOTAL = 100
_IPV6_NETWORK_BITS = 64
"""Bits of an IPv6 address that a provider assigns to one customer; the customer chooses the rest."""


class SignInThrottle:
    """Limits failed sign-ins per network and in total, so that they cannot flood the audit log. It counts
    only failures, so a valid token or link is always accepted."""

    def __init__(self, clock: Clock) -> None:
        self._per_network, self._all = (
            TokenBuckets(clock, MAX_FAILED_SIGN_INS, FAILED_SIGN_IN_WINDOW_SECONDS),
            TokenBuckets(clock, MAX_FAILED_SIGN_INS_TOTAL, FAILED_SIGN_IN_WINDOW_SECONDS),
        )

    def failed(self, address: str | None) -> None:
        """Counts a failed sign-in of the client at `address`. Raises HTTPError with status 429 if there were
        too many."""
        network = client_network(address)
        wait = self._per_network.take(network)
        if not wait and (wait := self._all.take("")):
            self._per_network.give_back(network)
        if wait:
            seconds = math.ceil(wait)
            raise HTTPError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"too many sign-ins have failed; try again in {seconds} seconds",
                headers={"retry-after": str(seconds)},
            )


def client_network(address: str | None) -> str:
    """Returns the network under which failures of a client are counted: its IPv4 address, or the /64 network
    of its IPv6 address."""
    try:
        known = ip_address(address or "")
    except ValueError:
        return address or ""
    if not isinstance(known, IPv6Address):
        return str(known)
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    without_zone = IPv6Address(int(known))
    return str(ip_network((without_zone, _IPV6_NETWORK_BITS), strict=False))
