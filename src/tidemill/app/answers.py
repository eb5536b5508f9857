"""`app.answer`: runs one job ahead of all others and waits for its result until a deadline."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from tidemill.client.job_handle import JobHandle
from tidemill.client.request import JobRequest
from tidemill.contract.store import Store
from tidemill.core.jobs import PRIORITY_RANGE
from tidemill.core.states import PENDING
from tidemill.errors import (
    AnswerProblem,
    AnswerUnavailable,
    ConfigurationError,
    JobCancelled,
    JobFailed,
    ResultTimeout,
)
from tidemill.times import parse_seconds

if TYPE_CHECKING:
    from tidemill.client.client import Client
    from tidemill.inspect.explanation import Explanation
    from tidemill.inspect.inspector import Inspector

R = TypeVar("R")

EXPLAIN_AFTER_SECONDS = 0.25
"""A job that is not done after this time is explained, to see whether it can start before the deadline."""
UNKNOWN_WAIT_SECONDS = 60.0
"""`retry_after` if the time of the next free call is unknown."""


class PoolBlock(msgspec.Struct, frozen=True):
    """A closure of a pool. `until` is the wall time at which it ends; None if only an operator ends it."""

    pool: str
    reason: str
    until: float | None


class AnswerWait:
    """One call of `app.answer`: sends the job, waits for its result, and says why there is none."""

    def __init__(self, client: Client, inspector: Inspector, within: float | timedelta) -> None:
        self._client, self._inspector = client, inspector
        self._within = parse_seconds("within", within, ConfigurationError)
        if self._within <= 0:
            raise ConfigurationError(f"within: must be a number of seconds above 0, is {within!r}")
        self._deadline = asyncio.get_running_loop().time() + self._within

    async def run(self, request: JobRequest[R]) -> R:
        await self._check_pools(request)
        job = request.job
        expires = self._within if job.expires is None else min(job.expires, self._within)
        urgent = replace(job, priority=PRIORITY_RANGE[0], expires=expires)
        handle = await self._client.enqueue(replace(request, job=urgent))
        try:
            return await self._result(handle)
        except JobCancelled as error:
            raise await self._unavailable("cancelled", await self._inspector.explain(handle.id)) from error
        except JobFailed as error:
            raise AnswerUnavailable(f"the job failed: {error}", code="failed", reason=str(error)) from error

    async def _result(self, handle: JobHandle[R]) -> R:
        try:
            return await handle.result(min(EXPLAIN_AFTER_SECONDS, self._left()))
        except ResultTimeout:
            explanation = await self._inspector.explain(handle.id)
        if self._left() > 0:
            if await self._is_too_late(explanation):
                await self._withdraw(handle, explanation)
                raise await self._unavailable("too_late", explanation)
            try:
                return await handle.result(self._left())
            except ResultTimeout:
                explanation = await self._inspector.explain(handle.id)
        await self._withdraw(handle, explanation)
        raise await self._unavailable("timeout", explanation)

    def _left(self) -> float:
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    async def _withdraw(self, handle: JobHandle[R], explanation: Explanation) -> None:
        """Cancels the job, because its caller no longer waits. Does not cancel a job that runs, or that
        another request sent."""
        # The call of a running job is already paid for.
        if explanation.state in PENDING and not handle.existing:
            await handle.cancel("no answer was possible before the deadline of the request")

    async def _is_too_late(self, explanation: Explanation) -> bool:
        """True if the job is expected to start after the deadline."""
        if explanation.starts_at is None or explanation.state not in PENDING:
            return False
        return explanation.starts_at > await self._wall() + self._left()

    async def _wall(self) -> float:
        return (await (await self._client.store()).read_clock()).wall

    async def _check_pools(self, request: JobRequest[R]) -> None:
        """Raises AnswerUnavailable if a pool that the job needs stays closed beyond the deadline. The job is
        then not sent."""
        if not request.job.needs:
            return
        store = await self._client.store()
        needs = {(need.pool, need.key) for need in request.job.needs}
        block = await find_pool_block(store, needs)
        now = await self._wall()
        if block is None or (block.until is not None and block.until <= now + self._left()):
            return
        later = None if block.until is None else max(0.0, block.until - now)
        remedy = "an operator must open it" if later is None else "try later"
        raise AnswerUnavailable(
            f"the pool {block.pool!r} is closed: {block.reason}; {remedy}",
            code="pool_closed",
            reason=block.reason,
            retry_after=later,
        )

    async def _unavailable(self, code: AnswerProblem, explanation: Explanation) -> AnswerUnavailable:
        later = UNKNOWN_WAIT_SECONDS
        if explanation.starts_at is not None:
            later = max(0.0, explanation.starts_at - await self._wall())
        verb = "start" if code == "too_late" else "end"
        problem = f"the job did not {verb} within {self._within:g} s"
        return AnswerUnavailable(
            f"{problem}. {explanation.sentence}", code=code, reason=explanation.sentence, retry_after=later
        )


async def find_pool_block(store: Store, needs: set[tuple[str, str | None]]) -> PoolBlock | None:
    """Returns why one of the pools makes no calls now; None if all are open. `needs` has pools and keys.

    An operator's closure comes first, then the closure that ends last."""
    now = (await store.read_clock()).wall
    blocks: list[PoolBlock] = []
    for view in await store.pools():
        if not any(view.name == pool and view.key in (None, key) for pool, key in needs):
            continue
        if view.closed is not None and view.closed.holds(now):
            reason = view.closed.reason or f"closed by {view.closed.by}"
            return PoolBlock(view.name, reason, view.closed.until)
        blocks += [
            PoolBlock(view.name, closure.text or closure.reason.value, closure.until)
            for closure in view.closures
            if closure.holds(now)
        ]
    return max(blocks, key=lambda block: float("inf") if block.until is None else block.until, default=None)
