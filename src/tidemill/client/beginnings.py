"""Flows that begin together share one call to the store, as enqueued jobs do.

Whoever comes while a call is under way goes with the next one. The call is a task of its own: a caller that
is cancelled takes nobody else down, and its flow may still begin.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from tidemill.client.enqueuer import ATTEMPT
from tidemill.contract.courses import checked
from tidemill.core.courses import JOBS_AT_ONCE, Advance, Advanced
from tidemill.errors import StoreUnavailable

if TYPE_CHECKING:
    from tidemill.contract.store import Store


class _Waiting(NamedTuple):
    advance: Advance
    answer: asyncio.Future[Advanced]


class Beginnings:
    """Belongs to one event loop."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store, self._loop = store, loop
        self._waiting: deque[_Waiting] = deque()
        self._sending: asyncio.Task[None] | None = None

    async def begin(self, advance: Advance) -> Advanced:
        """Raises what the store raised; trying again is the caller's."""
        checked([advance])  # or all that go with it would be refused
        answer: asyncio.Future[Advanced] = self._loop.create_future()
        self._waiting.append(_Waiting(advance, answer))
        if self._sending is None or self._sending.done():
            self._sending = self._loop.create_task(self._send_all(), name="tidemill flows begin")
        return await answer

    async def drain(self) -> None:
        """Returns when everything sent so far was answered."""
        while self._sending is not None and not self._sending.done():
            await asyncio.wait([self._sending])

    async def _send_all(self) -> None:
        while batch := self._take():
            try:
                async with asyncio.timeout(ATTEMPT):
                    answers = await self._store.advance([waiting.advance for waiting in batch])
            except asyncio.CancelledError:
                for waiting in (*batch, *self._waiting):
                    waiting.answer.cancel()
                self._waiting.clear()
                raise
            except TimeoutError as error:
                _fail(batch, StoreUnavailable("it did not answer"), error)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the callers' to hear
                _fail(batch, error, error)
            else:
                for waiting, answer in zip(batch, answers, strict=True):
                    if not waiting.answer.done():
                        waiting.answer.set_result(answer)

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        jobs = 0
        while self._waiting and (not batch or jobs + len(self._waiting[0].advance.jobs) <= JOBS_AT_ONCE):
            waiting = self._waiting.popleft()
            batch.append(waiting)
            jobs += len(waiting.advance.jobs) or 1
        return batch


def _fail(batch: list[_Waiting], error: Exception, cause: Exception) -> None:
    for waiting in batch:
        if not waiting.answer.done():
            own = type(error)(*error.args)  # one raised in many tasks would collect all their tracebacks
            own.__cause__ = cause
            waiting.answer.set_exception(own)
