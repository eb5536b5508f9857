"""A metered provider that counts arriving calls and refuses at random; it checks I14."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.simulation.trace import Violation
from tidemill.core.limits import Limit, window_seconds
from tidemill.core.needs import Need
from tidemill.core.pools import PoolSettings
from tidemill.testing.clocks import VirtualClock

POOLS = {
    "account": PoolSettings(limits=(Limit.requests(3, per=20.0),)),
    "site": PoolSettings(limits=(Limit.requests(2, per=4.0),), keyed=True),
}
SHANGHAI = timedelta(hours=8)


class ProviderRefusal(Exception):
    """A refusal as client libraries raise it."""

    def __init__(self, status: int, headers: Mapping[str, str] | None = None, body: Any = None) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code, self.headers, self.body = status, dict(headers or {}), body


def need_of(task: str, serial: int) -> Need:
    return Need("account") if task == "metered" else Need("site", "ab"[serial % 2])


@dataclass
class Provider:
    clock: VirtualClock
    chance: random.Random
    violated: Callable[[Violation], None]
    arrivals: defaultdict[tuple[str, str | None], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    answers: Counter[str] = field(default_factory=Counter)
    moody: bool = True

    def call(self, place: Need) -> None:
        """Counts the call at once: nothing is awaited before, so the jitter is kept."""
        now, [limit] = self.clock.boot(), POOLS[place.pool].limits
        arrivals = self.arrivals[place.pool, place.key]
        arrivals.append(now)
        inside = sum(at > now - window_seconds(limit) for at in arrivals[-20:])
        if inside > limit.amount:
            whose = f"{place.pool} of {place.key}" if place.key else place.pool
            self.violated(Violation("I14", f"{inside} calls of {whose} within {limit.per} s"))
        self._refuse()

    def _refuse(self) -> None:
        mood = self.chance.choices(("well", "rate", "stated", "overload"), (76, 7, 10, 7))[0]
        self.answers[mood if self.moody else "well"] += 1
        if not self.moody or mood == "well":
            return
        if mood == "rate":
            raise ProviderRefusal(429, {"retry-after": str(self.chance.choice((2, 6)))})
        if mood == "overload":
            raise ProviderRefusal(503)
        ends = datetime.fromtimestamp(self.clock.wall() + self.chance.choice((3, 8)), UTC) + SHANGHAI
        text = f"您的限额将在 {ends:%Y-%m-%d %H:%M:%S} 重置。"
        raise ProviderRefusal(429, body={"error": {"code": "1308", "message": text}})
