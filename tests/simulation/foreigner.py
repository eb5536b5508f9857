"""A producer that knows nothing of Tidemill but one table: it writes arrivals, and workers admit them."""

from __future__ import annotations

import asyncio
import random

import msgspec

from tests.simulation.handlers import Script
from tests.simulation.ledger import Ledger
from tests.simulation.trace import Trace
from tidemill.core.job import NewJob
from tidemill.stores.memory import MemoryStore


class Foreigner:
    """Its write is a commit in its own database: once it returned, the request is accepted (J20)."""

    def __init__(self, store: MemoryStore, ledger: Ledger, trace: Trace, chance: random.Random) -> None:
        self._store, self._ledger, self._trace, self._chance = store, ledger, trace, chance

    async def run(self) -> None:
        for serial in range(1, 9):
            await asyncio.sleep(self._chance.expovariate(0.3))
            script = Script("quick", self._chance.uniform(0, 0.3), 1, serial)
            task = self._chance.choice(("work", "work", "rare"))
            request = NewJob(id=f"f{serial:02d}", task=task, payload=msgspec.json.encode({"script": script}))
            self._ledger.send("plain", request)
            self._store.arrive(request.id, request.task, request.payload, b'{"queue": "plain"}')
            self._ledger.accept(request.id)
            self._trace.add("foreigner", f"wrote {request.id}")
