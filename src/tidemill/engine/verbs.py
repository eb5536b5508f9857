"""The verbs that are nothing but a step of the engine, for every store that takes such steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec import UNSET, UnsetType

from tidemill.contract.jobs import Admission
from tidemill.core.checkpoints import Beginning, OnUnknown, Step, Try
from tidemill.core.courses import Advance, Advanced
from tidemill.core.departures import Departure
from tidemill.core.needs import Need
from tidemill.core.outcomes import Answer
from tidemill.core.pool_news import PoolNews
from tidemill.core.pools import PoolChanges, PoolSettings
from tidemill.core.queues import QueueChanges, QueueSettings, overridden
from tidemill.core.spending import Observation
from tidemill.engine import admit, checkpoints, courses, plans, steering
from tidemill.engine import pools as pooling
from tidemill.engine.plans import Plan
from tidemill.engine.records import Records

T = TypeVar("T")


class SteppedVerbs(ABC):
    """Promises are those of `tidemill.contract`."""

    @abstractmethod
    async def step(self, plan: Plan, verb: Callable[[Records], T], *, repeatable: bool = True) -> T:
        """Look, decide, commit. `repeatable`: done once more after a lost reply it does no harm."""

    async def admit(self, admissions: Sequence[Admission]) -> int:
        if not admissions:
            return 0
        return await self.step(plans.admit(admissions), lambda records: admit.admit(records, admissions))

    # -- queues

    async def declare(self, queues: Mapping[str, QueueSettings]) -> None:
        if queues:
            await self.step(plans.queues(queues), lambda records: steering.declare(records, queues))

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
        await self.step(plans.queues([queue]), lambda records: steering.override(records, queue, change))

    async def clear_override(self, queue: str, names: Sequence[str] = ()) -> None:
        await self.step(plans.queues([queue]), lambda records: steering.clear_override(records, queue, names))

    async def pause(self, queue: str, *, until: float | None = None, reason: str | None = None) -> None:
        await self.step(plans.queues([queue]), lambda records: steering.pause(records, queue, until, reason))

    async def resume(self, queue: str) -> None:
        await self.step(plans.queues([queue]), lambda records: steering.resume(records, queue))

    # -- pools

    async def declare_pools(self, pools: Mapping[str, PoolSettings]) -> None:
        if pools:
            await self.step(plans.pools(pools), lambda records: pooling.declare(records, pools))

    async def override_pool(
        self,
        pool: str,
        changes: PoolChanges | None,
        *,
        by: str,
        reason: str | None = None,
        until: float | None = None,
    ) -> None:
        await self.step(
            plans.pools([pool]),
            lambda records: pooling.override(records, pool, changes, by=by, reason=reason, until=until),
        )

    async def reserve(
        self, job: str, fence: int, claim: int, need: Need, departure: Departure | None = None
    ) -> float | None:
        return await self.step(
            plans.change([job]),
            lambda records: pooling.reserve(records, job, fence, claim, need, departure),
            repeatable=False,
        )

    async def observe(self, observations: Sequence[Observation]) -> tuple[PoolNews, ...]:
        if not observations:
            return ()
        return await self.step(
            plans.pools({seen.pool for seen in observations}),
            lambda records: pooling.observe(records, observations),
            repeatable=False,
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
        await self.step(
            plans.account(pool, key), lambda records: pooling.close(records, (pool, key), until, by, reason)
        )

    async def open_pool(self, pool: str, *, key: str | None = None) -> None:
        await self.step(plans.account(pool, key), lambda records: pooling.open_again(records, (pool, key)))

    # -- courses

    async def advance(self, advances: Sequence[Advance]) -> list[Advanced]:
        if not advances:
            return []
        return await self.step(plans.advance(advances), lambda records: courses.advance(records, advances))

    # -- checkpoints

    async def begin_step(self, job: str, by: Try, step: Step, on_unknown: OnUnknown = "retry") -> Beginning:
        return await self.step(
            plans.steps(job), lambda records: checkpoints.begin(records, job, by, step, on_unknown)
        )

    async def forget_step(self, job: str, by: Try, step: Step) -> None:
        await self.step(plans.steps(job), lambda records: checkpoints.forget(records, job, by, step))

    async def keep_step(
        self, job: str, by: Try, step: Step, result: bytes, *, paid: bool
    ) -> tuple[Answer, bytes]:
        return await self.step(
            plans.steps(job), lambda records: checkpoints.keep(records, job, by, step, result, paid=paid)
        )
