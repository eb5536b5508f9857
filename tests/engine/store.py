"""A store that looks up every row it needs, and writes what became of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self, TypeVar

from msgspec.structs import replace

from tests.engine.source import RecordsSource
from tidemill.clock import Clock, Entropy
from tidemill.contract.copying import Copies
from tidemill.contract.jobs import Extended, Reclaimed
from tidemill.core.changes import Amended, Change
from tidemill.core.claims import ClaimRequest, Claims, Heartbeat, Settled, Settlement
from tidemill.core.filters import Filter, checked
from tidemill.core.job import Group
from tidemill.core.queues import Inserted
from tidemill.engine import (
    amend,
    claim,
    copying,
    extend,
    insert,
    plans,
    reclaim,
    settle,
    steps,
)
from tidemill.engine.plans import Plan
from tidemill.engine.records import Records
from tidemill.stores.memory import MemoryStore

T = TypeVar("T")

TRIES = 5


class LookingStore(MemoryStore):
    """Keeps its records as the memory store does, and lets no verb touch them."""

    usual = 200

    def __init__(self, clock: Clock | None = None, entropy: Entropy | None = None) -> None:
        super().__init__(clock, entropy)
        self.refusals: list[bool] = []

    def another(self) -> Self:
        other = super().another()
        other.refusals = self.refusals
        return other

    async def step(self, plan: Plan, verb: Callable[[Records], T], *, repeatable: bool = True) -> T:
        shared = self._shared

        @asynccontextmanager
        async def begin() -> AsyncIterator[RecordsSource]:
            yield RecordsSource(shared.records, self.usual, self.refusals)

        async def pause(tries: int) -> None:
            assert tries < TRIES, "nobody else writes here"

        with self.verb() as records:
            answer, changes = await steps.run(begin, plan, verb, records.entropy, pause)
        shared.hub.ring(changes.topics)
        return answer

    async def insert(self, groups: Sequence[Group]) -> list[list[Inserted]]:
        return await self.step(plans.insert(groups), lambda records: insert.insert(records, groups))

    async def claim(self, request: ClaimRequest) -> Claims:
        return await self.step(plans.claim(request), lambda records: claim.claim(records, request))

    async def settle(self, settlements: Sequence[Settlement], request: ClaimRequest | None = None) -> Settled:
        plan = plans.settle(settlements, request)
        return await self.step(plan, lambda records: settle.settle(records, settlements, request))

    async def extend(self, heartbeat: Heartbeat) -> Extended:
        return await self.step(plans.extend(heartbeat), lambda records: extend.extend(records, heartbeat))

    async def reclaim(self, dead: Sequence[str] = ()) -> Reclaimed:
        return await self.step(plans.reclaim(dead), lambda records: reclaim.reclaim(records, dead))

    async def amend(self, wanted: Filter, change: Change, limit: int = 1000) -> Amended:
        checked(wanted)
        with self.verb() as records:
            meant = tuple(job.id for job in amend.oldest_first(records, wanted))[:limit]
        named = replace(wanted, ids=meant)
        return await self.step(
            plans.amend(meant, change), lambda records: amend.amend(records, named, change, limit)
        )

    async def copy_in(self, copies: Copies) -> None:
        await self.step(plans.copy_in(copies), lambda records: copying.copy_in(records, copies))
        await super().copy_in(Copies(arrivals=copies.arrivals, fence=copies.fence))
