"""The last day of each queue, for a display that asks every second: minutes that are over stay so."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidemill.contract.reader import Minute
from tidemill.contract.store import Store
from tidemill.core.queues import DAY

RECENT = 120.0
"""Minutes in which something may still be counted are read again each time ..."""
READ_AGAIN = 600.0
"""... and all of them now and then: a clock that was put back, or somebody's long transaction, counts in
minutes that are over."""


class Known(msgspec.Struct, frozen=True):
    """Minutes, all of which were read at that time."""

    read: float
    minutes: Sequence[Minute]


class Days:
    def __init__(self) -> None:
        self._known: dict[str, Known] = {}

    async def of(self, store: Store, queue: str, now: float) -> Sequence[Minute]:
        known = self._known.get(queue)
        if known is None or not 0 <= now - known.read < READ_AGAIN:
            known = Known(now, await store.history(queue, now - DAY))
        else:
            known = Known(known.read, await _brought_up(store, queue, known.minutes, now))
        self._known[queue] = known
        return known.minutes


async def _brought_up(store: Store, queue: str, minutes: Sequence[Minute], now: float) -> list[Minute]:
    fresh = await store.history(queue, now - RECENT)
    first, since = (now - DAY) // 60 * 60, (now - RECENT) // 60 * 60
    return [minute for minute in minutes if first <= minute.at < since] + fresh
