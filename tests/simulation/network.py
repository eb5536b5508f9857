"""The network between a process and the store: seeded delay, loss and repetition of messages.

A request travels outside of its sender's process, so it arrives even if the sender died."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

from msgspec import UNSET, UnsetType

from tests.simulation.store_monitor import StoreMonitor, VerbCall
from tidemill.contract.coordination import Leadership, WakeupListener
from tidemill.contract.copy import IdPage, JobCopy, StoreCopy
from tidemill.contract.documents import DocumentPage
from tidemill.contract.jobs import Admission, Arrival, ClockReading, ExtendResult, PruneResult, ReclaimResult
from tidemill.contract.pools import PoolMinute, PoolView
from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import AttemptRecord, Backlog, JobPage, LogLine, QueueMinute, WorkerInfo
from tidemill.contract.store import ProgressCallback, StoreFacts
from tidemill.core.checkpoints import Checkpoint, OnUnknown, StepAttempt, StepKey, StepStart
from tidemill.core.claims import ClaimRequest, ClaimResult, Heartbeat, Settlement, SettleResult
from tidemill.core.documents import Advance, AdvanceResult, Document, DocumentKind, Worklist
from tidemill.core.feedback import Observation
from tidemill.core.filters import Filter
from tidemill.core.forecast.backlog import Demand
from tidemill.core.jobs import Job, JobGroup
from tidemill.core.late_calls import Departure
from tidemill.core.needs import Need
from tidemill.core.operator_changes import AmendResult, OperatorChange
from tidemill.core.outcomes import WriteAnswer
from tidemill.core.pool_statistics import PoolChange
from tidemill.core.pools import LimitChanges, PoolSettings
from tidemill.core.queues import InsertResult, QueueChanges, QueueSettings
from tidemill.core.states import State
from tidemill.errors import StoreUnavailable
from tidemill.testing.virtual_loop import VirtualLoop
from tidemill.testing.virtual_processes import context_for_process

MAX_DELAY_SECONDS = 2.0
"""The longest travel time of a message."""

REPLY_TIMEOUT_SECONDS = 3.0
"""The timeout of a caller."""


REPEAT_DELAYS_SECONDS = (0.0, 0.1, 5.0, 15.0)
MAX_ARRIVAL_SECONDS = REPEAT_DELAYS_SECONDS[-1] + 2 * MAX_DELAY_SECONDS
"""Time after a storm at which its last message has arrived."""


@dataclass(slots=True)
class NetworkConditions:
    """The conditions of all links. All zero is a perfect network."""

    slow: float = 0.0
    lost_request: float = 0.0
    lost_reply: float = 0.0
    doubled: float = 0.0
    lost_wakeup: float = 0.0

    @property
    def bad(self) -> bool:
        return bool(self.slow or self.lost_request or self.lost_reply or self.doubled)

    def clear(self) -> None:
        """Ends the storm. The loss of wake-ups does not depend on it."""
        self.slow = self.lost_request = self.lost_reply = self.doubled = 0.0


class Network:
    """The link of one process to the store; implements `contract.Store`."""

    def __init__(
        self, loop: VirtualLoop, monitor: StoreMonitor, conditions: NetworkConditions, name: str, seed: int
    ) -> None:
        self._loop, self._monitor, self._conditions, self._name = loop, monitor, conditions, name
        self._chance = random.Random(seed)
        self._outside = context_for_process(None)
        self.last_number = 0

    async def _call(self, verb: str, *args: Any, **options: Any) -> Any:
        reply: asyncio.Future[Any] = self._loop.create_future()
        given_up = self._loop.call_later(REPLY_TIMEOUT_SECONDS, _give_up, reply, verb)
        self._travel(self._arrive, VerbCall(self._name, verb, args, self._loop.time(), options), reply)
        try:
            return await reply
        finally:
            given_up.cancel()

    def _travel(self, then: Callable[..., object], *args: Any, later: float = 0.0) -> None:
        self._loop.call_later(self._delay() + later, then, *args, context=self._outside)

    def _arrive(self, call: VerbCall, reply: asyncio.Future[Any]) -> None:
        if self._happens(self._conditions.lost_request):
            return
        if self._happens(self._conditions.doubled):
            self._travel(self._monitor.execute, call, later=self._chance.choice(REPEAT_DELAYS_SECONDS))
        outcome = self._monitor.execute(call)
        if not self._happens(self._conditions.lost_reply):
            self._travel(_answer, reply, outcome)

    def _delay(self) -> float:
        if self._happens(self._conditions.slow):
            return self._chance.uniform(0.05, MAX_DELAY_SECONDS)
        return self._chance.uniform(0.0005, 0.003)

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._chance.random() < probability

    # The verbs, in the order of the contracts.

    async def insert(self, groups: Sequence[JobGroup]) -> list[list[InsertResult]]:
        return cast("list[list[InsertResult]]", await self._call("insert", groups))

    async def arrivals(self, limit: int, after: int = 0) -> list[Arrival]:
        return cast("list[Arrival]", await self._call("arrivals", limit, after))

    async def admit(self, admissions: Sequence[Admission]) -> int:
        return cast("int", await self._call("admit", admissions))

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        self.last_number = max(self.last_number, request.number)
        return cast("ClaimResult", await self._call("claim", request))

    async def settle(
        self, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
        if request is not None:
            self.last_number = max(self.last_number, request.number)
        return cast("SettleResult", await self._call("settle", tuple(settlements), request))

    async def extend(self, heartbeat: Heartbeat) -> ExtendResult:
        return cast("ExtendResult", await self._call("extend", heartbeat))

    async def reclaim(self, dead: Sequence[str] = ()) -> ReclaimResult:
        return cast("ReclaimResult", await self._call("reclaim", dead))

    async def amend(self, wanted: Filter, change: OperatorChange, limit: int = 1000) -> AmendResult:
        return cast("AmendResult", await self._call("amend", wanted, change, limit))

    async def prune(self, limit: int = 1000) -> PruneResult:
        return cast("PruneResult", await self._call("prune", limit))

    async def read_clock(self) -> ClockReading:
        return cast("ClockReading", await self._call("read_clock"))

    async def declare(self, queues: Mapping[str, QueueSettings]) -> None:
        await self._call("declare", queues)

    async def override(
        self,
        queue: str,
        changes: QueueChanges,
        *,
        by: str,
        reason: str | None = None,
        until: float | UnsetType | None = UNSET,
    ) -> None:
        await self._call("override", queue, changes, by=by, reason=reason, until=until)

    async def clear_override(self, queue: str, names: Sequence[str] = ()) -> None:
        await self._call("clear_override", queue, names)

    async def pause(self, queue: str, *, until: float | None = None, reason: str | None = None) -> None:
        await self._call("pause", queue, until=until, reason=reason)

    async def resume(self, queue: str) -> None:
        await self._call("resume", queue)

    async def queues(self) -> list[QueueInfo]:
        return cast("list[QueueInfo]", await self._call("queues"))

    async def declare_pools(self, pools: Mapping[str, PoolSettings]) -> None:
        await self._call("declare_pools", pools)

    async def override_pool(self, pool: str, changes: LimitChanges, **mark: Any) -> None:
        await self._call("override_pool", pool, changes, **mark)

    async def clear_pool_override(
        self, pool: str, names: Sequence[str] = (), *, key: str | None = None
    ) -> None:
        await self._call("clear_pool_override", pool, names, key=key)

    async def reserve(
        self, job: str, fence: int, claim: int, need: Need, departure: Departure | None = None
    ) -> float | None:
        return cast("float | None", await self._call("reserve", job, fence, claim, need, departure))

    async def observe(self, observations: Sequence[Observation]) -> tuple[PoolChange, ...]:
        return cast("tuple[PoolChange, ...]", await self._call("observe", observations))

    async def close_pool(self, pool: str, **mark: Any) -> None:
        await self._call("close_pool", pool, **mark)

    async def open_pool(self, pool: str, *, key: str | None = None) -> None:
        await self._call("open_pool", pool, key=key)

    async def pools(self) -> list[PoolView]:
        return cast("list[PoolView]", await self._call("pools"))

    async def advance(self, advances: Sequence[Advance]) -> list[AdvanceResult]:
        return cast("list[AdvanceResult]", await self._call("advance", tuple(advances)))

    async def worklist(
        self, kind: DocumentKind, limit: int = 100, ids: Sequence[str] | None = None
    ) -> Worklist:
        return cast("Worklist", await self._call("worklist", kind, limit, ids))

    async def documents(self, kind: DocumentKind, ids: Sequence[str]) -> list[Document | None]:
        return cast("list[Document | None]", await self._call("documents", kind, ids))

    async def find_documents(self, kind: DocumentKind, **wanted: Any) -> DocumentPage:
        return cast("DocumentPage", await self._call("find_documents", kind, **wanted))

    async def document_counts(self, kind: DocumentKind) -> dict[str, int]:
        return cast("dict[str, int]", await self._call("document_counts", kind))

    async def begin_step(
        self, job: str, by: StepAttempt, step: StepKey, on_unknown: OnUnknown = "retry"
    ) -> StepStart:
        return cast("StepStart", await self._call("begin_step", job, by, step, on_unknown))

    async def forget_step(self, job: str, by: StepAttempt, step: StepKey) -> None:
        await self._call("forget_step", job, by, step)

    async def keep_step(
        self, job: str, by: StepAttempt, step: StepKey, result: bytes, *, paid: bool
    ) -> tuple[WriteAnswer, bytes]:
        kept = await self._call("keep_step", job, by, step, result, paid=paid)
        return cast("tuple[WriteAnswer, bytes]", kept)

    async def checkpoints(self, job: str) -> list[Checkpoint]:
        return cast("list[Checkpoint]", await self._call("checkpoints", job))

    async def kept_step(self, job: str, step: StepKey) -> bytes | None:
        return cast("bytes | None", await self._call("kept_step", job, step))

    async def pool_history(self, pool: str, since: float) -> list[PoolMinute]:
        return cast("list[PoolMinute]", await self._call("pool_history", pool, since))

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return cast("list[Job | None]", await self._call("get", ids))

    async def find(
        self, wanted: Filter, limit: int = 100, cursor: int | None = None, looks: int | None = None
    ) -> JobPage:
        return cast("JobPage", await self._call("find", wanted, limit, cursor, looks))

    async def counts(self) -> dict[str, dict[State, int]]:
        return cast("dict[str, dict[State, int]]", await self._call("counts"))

    async def history(self, queue: str, since: float) -> list[QueueMinute]:
        return cast("list[QueueMinute]", await self._call("history", queue, since))

    async def logs(self, job: str) -> list[LogLine]:
        return cast("list[LogLine]", await self._call("logs", job))

    async def attempts(self, job: str) -> list[AttemptRecord]:
        return cast("list[AttemptRecord]", await self._call("attempts", job))

    async def workers(self) -> list[WorkerInfo]:
        return cast("list[WorkerInfo]", await self._call("workers"))

    async def backlog(self, queue: str) -> Backlog:
        return cast("Backlog", await self._call("backlog", queue))

    async def ahead(self, job: str) -> int | None:
        return cast("int | None", await self._call("ahead", job))

    async def demand(self) -> list[Demand]:
        return cast("list[Demand]", await self._call("demand"))

    async def describe(self) -> StoreFacts:
        return cast("StoreFacts", await self._call("describe"))

    async def check(self) -> tuple[str, ...]:
        return cast("tuple[str, ...]", await self._call("check"))

    async def backup(self, target: Path, progress: ProgressCallback | None = None) -> None:
        await self._call("backup", target, progress)

    async def compact(self) -> None:
        await self._call("compact")

    async def copy_jobs(self, after: int = 0, limit: int = 100) -> list[JobCopy]:
        return cast("list[JobCopy]", await self._call("copy_jobs", after, limit))

    async def copy_ids(self, cursor: str = "") -> IdPage:
        return cast("IdPage", await self._call("copy_ids", cursor))

    async def copy_in(self, copies: StoreCopy) -> None:
        await self._call("copy_in", copies)

    async def lead(self, duties: Sequence[str], worker: str, lease: float) -> Leadership:
        return cast("Leadership", await self._call("lead", tuple(duties), worker, lease))

    async def resign(self, duties: Sequence[str], worker: str) -> None:
        await self._call("resign", tuple(duties), worker)

    def listen(self, topics: Iterable[str]) -> WakeupListener:
        inner = self._monitor.store.listen(topics)
        return _LossyListener(inner, self._loop, lambda: self._happens(self._conditions.lost_wakeup))

    def wake(self, topics: Iterable[str]) -> None:
        if not self._happens(self._conditions.lost_wakeup):
            self._monitor.store.wake(topics)

    @property
    def blocking(self) -> None:
        return None

    async def open(self) -> Self:
        return self

    async def close(self) -> None:
        return None

    def new_handle(self) -> Self:
        return self


class _LossyListener:
    """A listener that misses some wake-ups."""

    def __init__(self, inner: WakeupListener, loop: VirtualLoop, misses: Callable[[], bool]) -> None:
        self._inner, self._loop, self._misses = inner, loop, misses

    def arm(self) -> None:
        self._inner.arm()

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the contract's signature
        until = self._loop.time() + timeout
        while await self._inner.wait(max(0.0, until - self._loop.time())):
            if not self._misses():
                return True
            self._inner.arm()
        return False

    def disarm(self) -> None:
        self._inner.disarm()

    def close(self) -> None:
        self._inner.close()


def _answer(reply: asyncio.Future[Any], outcome: Any) -> None:
    if reply.done():
        return
    if isinstance(outcome, Exception):
        reply.set_exception(outcome)
        reply.exception()  # its caller may be dead, so the error is dropped
    else:
        reply.set_result(outcome)


def _give_up(reply: asyncio.Future[Any], verb: str) -> None:
    _answer(reply, StoreUnavailable(f"{verb}: nobody answered for {REPLY_TIMEOUT_SECONDS:g} s"))
