"""Adds up what would be forgotten: minutes of history before they go, tallies of processes that are gone."""

from __future__ import annotations

import math
from collections.abc import Callable

from tidemill.contract.store import Store
from tidemill.tallies import totals
from tidemill.tallies.folding import FOLD_EVERY, Folding


class Bookkeeper:
    """`time` is the event loop's."""

    def __init__(self, store: Store, time: Callable[[], float]) -> None:
        self._store, self._time = store, time
        self._folding = Folding(store)
        self._kept = self._folded = -math.inf

    async def keep(self) -> None:
        now = self._time()
        if now - self._kept >= totals.KEEP_EVERY:
            await totals.keep(self._store)
            self._kept = now
        if now - self._folded >= FOLD_EVERY:
            await self._folding.fold()
            self._folded = now
