"""Refills evenly, and a full one may be spent at once: a mirror of the provider's own."""

from __future__ import annotations

import math
from typing import Self

import msgspec
from msgspec.structs import replace

from tidemill.core.limits import Limit, seconds_of
from tidemill.core.windows.window import LONG_AGO, TINY, Guards, Instant


class Bucket(msgspec.Struct, frozen=True, tag="bucket"):
    """`spent` is what was missing from a full bucket at boot time `at`.

    A call that was decided early may arrive late, and leave ours refilled before the provider's has been
    emptied. So ours counts as full only when it has been so for the jitter (`spent` goes on below 0 until
    then), and what flows in during the jitter is kept back from all calls but those it is full for. That
    way a call may be as large as the bucket, and no pattern of arrivals empties the provider's.

    `forgone` is the stretch whose inflow was taken off what came back, see `returned`. `size` is the amount
    `spent` is missing from, 0 before the first take: another one is another bucket, see `resized`.
    """

    spent: float = 0.0
    at: float = LONG_AGO
    forgone: tuple[float, float] = (LONG_AGO, LONG_AGO)
    size: float = 0.0

    def counted(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return max(0.0, self._spent(limit, now, guards))

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return limit.amount - _inflow(limit, guards) - self._spent(limit, now, guards)

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        if units > limit.amount + TINY:
            return math.inf
        missing = units - self.room(limit, now, guards)
        return max(0.0, missing / _rate(limit)) if missing > TINY else 0.0

    def taken(self, limit: Limit, units: float, now: Instant, guards: Guards) -> tuple[Self, float]:
        spent = max(0.0, self._spent(limit, now, guards))
        return type(self)(spent + units, now.boot, self.forgone, self.size or limit.amount), now.boot

    def returned(self, limit: Limit, units: float, mark: float, now: Instant) -> Self:
        """Had it not been taken, the bucket might have been full since, and what flowed in lost. So that much
        does not come back, once for all that come back after the same stretch. Of a call that took long
        nothing is left, which is why such calls are held (`core.reserving`)."""
        since, until = self.forgone
        before = max(0.0, min(now.boot, until) - max(mark, since))
        left = units - max(0.0, now.boot - mark - before) * _rate(limit)
        if left <= 0:
            return self
        stretch = (min(mark, since) if before > 0 else mark, now.boot) if now.boot > mark else self.forgone
        return type(self)(self.spent - left, self.at, stretch, self.size)

    def lost(self, limit: Limit, now: Instant) -> Self:
        return type(self)(limit.amount, now.boot, size=limit.amount)

    def resized(self, limit: Limit, now: Instant, guards: Guards) -> Self:
        """For a limit of another amount. What a larger bucket has more of flows in like the rest, and a
        smaller one is as empty as the larger was. When the provider changed is not known, so the slower of
        the two rates counts since the last take."""
        slower = replace(limit, amount=min(limit.amount, self.size))
        more = max(0.0, limit.amount - self.size)
        return type(self)(self._spent(slower, now, guards) + more, now.boot, self.forgone, limit.amount)

    def _spent(self, limit: Limit, now: Instant, guards: Guards) -> float:
        flowed = max(0.0, now.boot - self.at) * _rate(limit)
        return max(-_inflow(limit, guards), self.spent - flowed)


def _rate(limit: Limit) -> float:
    return limit.amount / seconds_of(limit)


def _inflow(limit: Limit, guards: Guards) -> float:
    """What flows in during the jitter."""
    return _rate(limit) * guards.jitter
