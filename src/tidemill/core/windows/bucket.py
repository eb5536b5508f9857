"""Refills evenly, and a full one may be spent at once: a mirror of the provider's own."""

from __future__ import annotations

import math
from typing import Self

import msgspec

from tidemill.core.limits import Limit, seconds_of
from tidemill.core.windows.window import TINY, Guards, Instant


class Bucket(msgspec.Struct, frozen=True, tag="bucket"):
    """`spent` is what was missing from a full bucket at boot time `at`.

    Ours is smaller than the provider's by what flows in during the jitter: a call that was decided
    early and arrives late leaves ours refilled before the provider's has been emptied.
    """

    spent: float = 0.0
    at: float = 0.0

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return _size(limit, guards) - self._spent(limit, now)

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        if units > _size(limit, guards) + TINY:
            return math.inf
        missing = units - self.room(limit, now, guards)
        return max(0.0, missing / _rate(limit)) if missing > TINY else 0.0

    def taken(self, limit: Limit, units: float, now: Instant, guards: Guards) -> tuple[Self, float]:
        return type(self)(self._spent(limit, now) + units + _borrowed(limit, guards), now.boot), now.boot

    def returned(self, limit: Limit, units: float, mark: float, now: Instant) -> Self:
        """What has flowed in since the take cannot be had twice."""
        return type(self)(max(0.0, self._spent(limit, now) - units), now.boot)

    def lost(self, limit: Limit, now: Instant) -> Self:
        return type(self)(limit.amount, now.boot)

    def _spent(self, limit: Limit, now: Instant) -> float:
        return max(0.0, self.spent - max(0.0, now.boot - self.at) * _rate(limit))


def _rate(limit: Limit) -> float:
    return limit.amount / seconds_of(limit)


def _size(limit: Limit, guards: Guards) -> float:
    """At least one unit, or a limit smaller than the jitter's inflow could never be used."""
    return max(_safe_size(limit, guards), min(1.0, limit.amount))


def _borrowed(limit: Limit, guards: Guards) -> float:
    """By how much a small bucket is larger than is safe: every take pays for it by a longer wait, or two
    calls could arrive closer together than one unit takes to flow in."""
    return _size(limit, guards) - _safe_size(limit, guards)


def _safe_size(limit: Limit, guards: Guards) -> float:
    return limit.amount - _rate(limit) * guards.jitter
