"""The store methods that only run an engine function, shared by all stores that run them in database
transactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import UNSET, UnsetType

from tidemill.contract.jobs import Admission
from tidemill.core.checkpoints import OnUnknown, StepAttempt, StepKey, StepStart
from tidemill.core.documents import Advance, AdvanceResult
from tidemill.core.feedback import Observation
from tidemill.core.late_calls import Departure
from tidemill.core.ledger import AccountKey
from tidemill.core.needs import Need
from tidemill.core.outcomes import WriteAnswer
from tidemill.core.overrides import OverrideEdit, clear_override, join_override
from tidemill.core.pool_statistics import PoolChange
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.queues import QueueChanges, QueueSettings
from tidemill.engine import advance, checkpoints, insert, queue_changes, read_sets
from tidemill.engine import pools as pooling
from tidemill.engine.read_sets import ReadSet
from tidemill.engine.records import Records

T = TypeVar("T")


class EngineVerbs(ABC):
    """A mixin with the store methods that only run an engine function. The protocols in `tidemill.contract`
    say what each method must do."""

    @abstractmethod
    async def step(self, plan: ReadSet, verb: Callable[[Records], T], *, repeatable: bool = True) -> T:
        """Runs the engine function `verb` in a transaction and returns its result.

        - `plan`: the rows to load first.
        - `repeatable`: True if the function may run again after the store's reply was lost."""

    async def admit(self, admissions: Sequence[Admission]) -> int:
        if not admissions:
            return 0
        return await self.step(read_sets.admit(admissions), lambda records: insert.admit(records, admissions))

    # -- queues

    async def declare(self, queues: Mapping[str, QueueSettings]) -> None:
        if queues:
            await self.step(
                read_sets.queues(queues), lambda records: queue_changes.declare_queues(records, queues)
            )

    async def override(
        self,
        queue: str,
        changes: QueueChanges,
        *,
        by: str,
        reason: str | None = None,
        until: float | UnsetType | None = UNSET,
    ) -> None:
        await self._override_queue(queue, join_override(changes, by=by, reason=reason, until=until))

    async def clear_override(self, queue: str, names: Sequence[str] = ()) -> None:
        await self._override_queue(queue, clear_override(names))

    async def _override_queue(self, queue: str, edit: OverrideEdit[QueueChanges]) -> None:
        await self.step(
            read_sets.queues([queue]), lambda records: queue_changes.override_queue(records, queue, edit)
        )

    async def pause(self, queue: str, *, until: float | None = None, reason: str | None = None) -> None:
        await self.step(
            read_sets.queues([queue]),
            lambda records: queue_changes.pause_queue(records, queue, until, reason),
        )

    async def resume(self, queue: str) -> None:
        await self.step(read_sets.queues([queue]), lambda records: queue_changes.resume_queue(records, queue))

    # -- pools

    async def declare_pools(self, pools: Mapping[str, PoolSettings]) -> None:
        if pools:
            await self.step(read_sets.pools(pools), lambda records: pooling.declare_pools(records, pools))

    async def override_pool(
        self,
        pool: str,
        changes: LimitChanges,
        *,
        key: str | None = None,
        by: str,
        reason: str | None = None,
        until: float | UnsetType | None = UNSET,
    ) -> None:
        await self._override_pool((pool, key), join_override(changes, by=by, reason=reason, until=until))

    async def clear_pool_override(
        self, pool: str, names: Sequence[str] = (), *, key: str | None = None
    ) -> None:
        await self._override_pool((pool, key), clear_override(names))

    async def _override_pool(self, account_key: AccountKey, edit: OverrideEdit[LimitChanges]) -> None:
        pool, key = account_key
        reads = read_sets.pools([pool]) if key is None else read_sets.account(pool, key)
        await self.step(reads, lambda records: pooling.override_pool(records, account_key, edit))

    async def reserve(
        self, job: str, fence: int, claim: int, need: Need, departure: Departure | None = None
    ) -> float | None:
        return await self.step(
            read_sets.change_jobs([job]),
            lambda records: pooling.reserve_units(records, job, fence, claim, need, departure),
            repeatable=False,
        )

    async def observe(self, observations: Sequence[Observation]) -> tuple[PoolChange, ...]:
        if not observations:
            return ()
        return await self.step(
            read_sets.pools({seen.pool for seen in observations}),
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
            read_sets.account(pool, key),
            lambda records: pooling.close_pool(records, (pool, key), until, by, reason),
        )

    async def open_pool(self, pool: str, *, key: str | None = None) -> None:
        await self.step(read_sets.account(pool, key), lambda records: pooling.open_pool(records, (pool, key)))

    # -- documents

    async def advance(self, advances: Sequence[Advance]) -> list[AdvanceResult]:
        if not advances:
            return []
        return await self.step(
            read_sets.advance(advances), lambda records: advance.advance(records, advances)
        )

    # -- checkpoints

    async def begin_step(
        self, job: str, by: StepAttempt, step: StepKey, on_unknown: OnUnknown = "retry"
    ) -> StepStart:
        return await self.step(
            read_sets.job_checkpoints(job),
            lambda records: checkpoints.begin_step(records, job, by, step, on_unknown),
        )

    async def forget_step(self, job: str, by: StepAttempt, step: StepKey) -> None:
        await self.step(
            read_sets.job_checkpoints(job), lambda records: checkpoints.forget_step(records, job, by, step)
        )

    async def keep_step(
        self, job: str, by: StepAttempt, step: StepKey, result: bytes, *, paid: bool
    ) -> tuple[WriteAnswer, bytes]:
        return await self.step(
            read_sets.job_checkpoints(job),
            lambda records: checkpoints.keep_step(records, job, by, step, result, paid=paid),
        )
