"""A store that loads every row that a verb needs, and writes its changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self, TypeVar

from msgspec.structs import replace

from tests.engine.row_source import RecordsSource
from tidemill.clock import Clock, Entropy
from tidemill.contract.copy import StoreCopy
from tidemill.contract.jobs import ExtendResult, ReclaimResult
from tidemill.core.claims import ClaimRequest, ClaimResult, Heartbeat, Settlement, SettleResult
from tidemill.core.filters import Filter, check_filter
from tidemill.core.jobs import JobGroup
from tidemill.core.operator_changes import AmendResult, OperatorChange
from tidemill.core.queues import InsertResult
from tidemill.engine import claim, copy, insert, leases, queue_changes, read_sets, settle, transaction
from tidemill.engine.read_sets import ReadSet
from tidemill.engine.records import Records
from tidemill.stores.memory import MemoryStore

T = TypeVar("T")

TRIES = 5


class PrefetchStore(MemoryStore):
    """Keeps its records like the memory store, but gives verbs only loaded rows."""

    usual = 200

    def __init__(self, clock: Clock | None = None, entropy: Entropy | None = None) -> None:
        super().__init__(clock, entropy)
        self.refusals: list[bool] = []

    def new_handle(self) -> Self:
        other = super().new_handle()
        other.refusals = self.refusals
        return other

    async def step(self, plan: ReadSet, verb: Callable[[Records], T], *, repeatable: bool = True) -> T:
        shared = self._shared

        @asynccontextmanager
        async def begin() -> AsyncIterator[RecordsSource]:
            yield RecordsSource(shared.records, self.usual, self.refusals)

        async def pause(tries: int) -> None:
            assert tries < TRIES, "nobody else writes here"

        with self.verb() as records:
            answer, changes = await transaction.run_verb(begin, plan, verb, records.entropy, pause)
        shared.hub.wake(changes.topics)
        return answer

    async def insert(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
        return await self.step(read_sets.insert(groups), lambda records: insert.insert(records, groups))

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        return await self.step(read_sets.claim(request), lambda records: claim.claim(records, request))

    async def settle(
        self, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
        plan = read_sets.settle(settlements, request)
        return await self.step(plan, lambda records: settle.settle(records, settlements, request))

    async def extend(self, heartbeat: Heartbeat) -> ExtendResult:
        return await self.step(read_sets.extend(heartbeat), lambda records: leases.extend(records, heartbeat))

    async def reclaim(self, dead: Sequence[str] = ()) -> ReclaimResult:
        return await self.step(read_sets.reclaim(dead), lambda records: leases.reclaim(records, dead))

    async def amend(self, wanted: Filter, change: OperatorChange, limit: int = 1000) -> AmendResult:
        check_filter(wanted)
        with self.verb() as records:
            meant = tuple(job.id for job in queue_changes.matching_jobs(records, wanted))[:limit]
        named = replace(wanted, ids=meant)
        return await self.step(
            read_sets.amend(meant, change), lambda records: queue_changes.amend(records, named, change, limit)
        )

    async def copy_in(self, copies: StoreCopy) -> None:
        await self.step(read_sets.copy_in(copies), lambda records: copy.copy_in(records, copies))
        await super().copy_in(StoreCopy(arrivals=copies.arrivals, fence=copies.fence))
