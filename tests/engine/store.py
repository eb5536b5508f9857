"""A store that looks up every row it needs, and writes what became of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Self, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tests.engine.source import RecordsSource
from tidemill.clock import Clock, Entropy
from tidemill.contract.copying import Copies
from tidemill.contract.jobs import Admission, Extended, Reclaimed
from tidemill.core.changes import Amended, Change
from tidemill.core.checkpoints import Beginning, OnUnknown, Step, Try
from tidemill.core.claims import ClaimRequest, Claims, Heartbeat, Settled, Settlement
from tidemill.core.filters import Filter, checked
from tidemill.core.job import Group
from tidemill.core.needs import Need
from tidemill.core.outcomes import Answer
from tidemill.core.pools import PoolChanges, PoolSettings
from tidemill.core.queues import Inserted, QueueChanges, QueueSettings, overridden
from tidemill.core.spending import Observation
from tidemill.engine import (
    admit,
    amend,
    checkpoints,
    claim,
    copying,
    extend,
    insert,
    plans,
    pools,
    reclaim,
    settle,
    steering,
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

    async def _run(self, plan: Plan, verb: Callable[[Records], T]) -> T:
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
        return await self._run(plans.insert(groups), lambda records: insert.insert(records, groups))

    async def admit(self, admissions: Sequence[Admission]) -> int:
        return await self._run(plans.admit(admissions), lambda records: admit.admit(records, admissions))

    async def claim(self, request: ClaimRequest) -> Claims:
        return await self._run(plans.claim(request), lambda records: claim.claim(records, request))

    async def settle(self, settlements: Sequence[Settlement], request: ClaimRequest | None = None) -> Settled:
        plan = plans.settle(settlements, request)
        return await self._run(plan, lambda records: settle.settle(records, settlements, request))

    async def extend(self, heartbeat: Heartbeat) -> Extended:
        return await self._run(plans.extend(heartbeat), lambda records: extend.extend(records, heartbeat))

    async def reclaim(self, dead: Sequence[str] = ()) -> Reclaimed:
        return await self._run(plans.reclaim(dead), lambda records: reclaim.reclaim(records, dead))

    async def amend(self, wanted: Filter, change: Change, limit: int = 1000) -> Amended:
        checked(wanted)
        with self.verb() as records:
            meant = tuple(job.id for job in amend.oldest_first(records, wanted))[:limit]
        named = replace(wanted, ids=meant)
        return await self._run(
            plans.amend(meant, change), lambda records: amend.amend(records, named, change, limit)
        )

    async def declare(self, queues: Mapping[str, QueueSettings]) -> None:
        await self._run(plans.queues(queues), lambda records: steering.declare(records, queues))

    async def override(
        self,
        queue: str,
        changes: QueueChanges,
        *,
        by: str,
        reason: str | None = None,
        until: float | UnsetType | None = UNSET,
    ) -> None:
        change = partial(overridden, changes=changes, by=by, reason=reason, until=until)
        await self._run(plans.queues([queue]), lambda records: steering.override(records, queue, change))

    async def clear_override(self, queue: str, names: Sequence[str] = ()) -> None:
        await self._run(plans.queues([queue]), lambda records: steering.clear_override(records, queue, names))

    async def pause(self, queue: str, *, until: float | None = None, reason: str | None = None) -> None:
        await self._run(plans.queues([queue]), lambda records: steering.pause(records, queue, until, reason))

    async def resume(self, queue: str) -> None:
        await self._run(plans.queues([queue]), lambda records: steering.resume(records, queue))

    async def lead(self, duty: str, worker: str, lease: float) -> bool:
        return await self._run(plans.lead(duty), lambda records: steering.lead(records, duty, worker, lease))

    async def resign(self, duty: str, worker: str) -> None:
        await self._run(plans.lead(duty), lambda records: steering.resign(records, duty, worker))

    async def declare_pools(self, declared: Mapping[str, PoolSettings]) -> None:
        await self._run(plans.pools(declared), lambda records: pools.declare(records, declared))

    async def override_pool(
        self,
        pool: str,
        changes: PoolChanges | None,
        *,
        by: str,
        reason: str | None = None,
        until: float | None = None,
    ) -> None:
        await self._run(
            plans.pools([pool]),
            lambda records: pools.override(records, pool, changes, by=by, reason=reason, until=until),
        )

    async def reserve(self, job: str, fence: int, claim: int, need: Need) -> float | None:
        return await self._run(
            plans.change([job]), lambda records: pools.reserve(records, job, fence, claim, need)
        )

    async def observe(self, observations: Sequence[Observation]) -> None:
        await self._run(
            plans.pools({seen.pool for seen in observations}),
            lambda records: pools.observe(records, observations),
        )

    async def close_pool(
        self,
        pool: str,
        *,
        key: str | None = None,
        until: float | None = None,
        by: str,
        reason: str | None = None,
    ) -> None:
        await self._run(
            plans.account(pool, key), lambda records: pools.close(records, (pool, key), until, by, reason)
        )

    async def open_pool(self, pool: str, *, key: str | None = None) -> None:
        await self._run(plans.account(pool, key), lambda records: pools.open_again(records, (pool, key)))

    async def copy_in(self, copies: Copies) -> None:
        await self._run(plans.copy_in(copies), lambda records: copying.copy_in(records, copies))
        await super().copy_in(Copies(arrivals=copies.arrivals, fence=copies.fence))

    async def begin_step(self, job: str, by: Try, step: Step, on_unknown: OnUnknown = "retry") -> Beginning:
        return await self._run(
            plans.steps(job), lambda records: checkpoints.begin(records, job, by, step, on_unknown)
        )

    async def forget_step(self, job: str, by: Try, step: Step) -> None:
        await self._run(plans.steps(job), lambda records: checkpoints.forget(records, job, by, step))

    async def keep_step(
        self, job: str, by: Try, step: Step, result: bytes, *, paid: bool
    ) -> tuple[Answer, bytes]:
        return await self._run(
            plans.steps(job),
            lambda records: checkpoints.keep(records, job, by, step, result, paid=paid),
        )
