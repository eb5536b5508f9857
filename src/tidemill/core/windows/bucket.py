"""The bucket window. It refills evenly, and a full bucket may be used at once, like the provider's own
bucket."""

from __future__ import annotations

import math
from typing import Self

import msgspec
from msgspec.structs import replace

from tidemill.core.limits import Limit, window_seconds
from tidemill.core.windows.base import LONG_AGO, TOLERANCE, Guards, Instant


class BucketWindow(msgspec.Struct, frozen=True, tag="bucket"):
    """A bucket that refills evenly.

    - `spent`: how many units were missing at boot-clock time `at`.
    - `size`: the amount of the limit for which `spent` was counted, 0 before the first use. If the amount of
      the limit changes, call `resized`.
    - `forgone`: the time span whose inflow was subtracted from refunds, see `returned`.

    A call may reach the provider late, by up to the jitter, and empty the provider's bucket later than ours.
    Our bucket therefore keeps back the units that flow in during the jitter. It grants its whole amount only
    after it has been full for that long; `spent` is then below 0."""

    spent: float = 0.0
    at: float = LONG_AGO
    forgone: tuple[float, float] = (LONG_AGO, LONG_AGO)
    size: float = 0.0

    def counted(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return max(0.0, self._spent(limit, now, guards))

    def room(self, limit: Limit, now: Instant, guards: Guards) -> float:
        return limit.amount - _inflow(limit, guards) - self._spent(limit, now, guards)

    def wait(self, limit: Limit, units: float, now: Instant, guards: Guards) -> float:
        if units > limit.amount + TOLERANCE:
            return math.inf
        missing = units - self.room(limit, now, guards)
        return max(0.0, missing / _rate(limit)) if missing > TOLERANCE else 0.0

    def taken(self, limit: Limit, units: float, now: Instant, guards: Guards) -> tuple[Self, float]:
        spent = max(0.0, self._spent(limit, now, guards))
        return type(self)(spent + units, now.boot, self.forgone, self.size or limit.amount), now.boot

    def returned(self, limit: Limit, units: float, mark: float, now: Instant) -> Self:
        """Returns the bucket after a refund of `units` that were taken at the boot-clock time `mark`. The
        refund is reduced by the units that flowed in since then. Each time span reduces only one refund."""
        since, until = self.forgone
        before = max(0.0, min(now.boot, until) - max(mark, since))
        # Without the call the bucket might have been full, and these units would not have flowed in.
        left = units - max(0.0, now.boot - mark - before) * _rate(limit)
        if left <= 0:
            return self
        stretch = (min(mark, since) if before > 0 else mark, now.boot) if now.boot > mark else self.forgone
        return type(self)(self.spent - left, self.at, stretch, self.size)

    def lost(self, limit: Limit, now: Instant) -> Self:
        return type(self)(limit.amount, now.boot, size=limit.amount)

    def resized(self, limit: Limit, now: Instant, guards: Guards) -> Self:
        """Returns the bucket adapted to the amount of `limit`. If the bucket grows, the additional units flow
        in over time. If it shrinks, the number of missing units stays the same."""
        # It is unknown when the provider changed the limit, so the slower rate counts since the last use.
        slower = replace(limit, amount=min(limit.amount, self.size))
        more = max(0.0, limit.amount - self.size)
        return type(self)(self._spent(slower, now, guards) + more, now.boot, self.forgone, limit.amount)

    def _spent(self, limit: Limit, now: Instant, guards: Guards) -> float:
        flowed = max(0.0, now.boot - self.at) * _rate(limit)
        return max(-_inflow(limit, guards), self.spent - flowed)


def _rate(limit: Limit) -> float:
    return limit.amount / window_seconds(limit)


def _inflow(limit: Limit, guards: Guards) -> float:
    """Returns the units that flow in during the jitter."""
    return _rate(limit) * guards.jitter
