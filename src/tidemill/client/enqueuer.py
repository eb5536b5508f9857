"""Group commit: enqueues that happen together share one call to the store.

A lone enqueue calls the store itself and waits for nothing but its own insert. Whoever comes
while it is under way is sent by a flush, together with all who came meanwhile. The flush is a
task of its own, so a caller that is cancelled takes nobody else down; its job may still be accepted.

Jobs carry their ids, and a store answers a repeated id with its first verdict (J11). That
is what makes it safe to send again after an error or a silence.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tidemill.client.patience import Patience
from tidemill.core.job import Group
from tidemill.core.queues import Inserted
from tidemill.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from tidemill.contract.store import Store

DEADLINE = 5.0
"""An enqueue has returned or raised after this many seconds (I22)."""

ATTEMPT = DEADLINE / 2
"""A store that says nothing for this long is asked again: one lost reply is not an outage."""

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
JOBS_AT_ONCE = 1000
IDS_SHOWN = 3

Answers = list[list[Inserted]]


class _Waiting(NamedTuple):
    groups: Sequence[Group]
    answers: asyncio.Future[Answers]
    deadline: float


class Enqueuer:
    """Belongs to one event loop."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._waiting: deque[_Waiting] = deque()
        self._flush: asyncio.Task[None] | None = None
        self._lone: asyncio.Future[None] | None = None
        self._patience = Patience(loop)
        self._pause = FIRST_PAUSE

    async def insert(self, groups: Sequence[Group], deadline: float | None = None) -> Answers:
        deadline = deadline or self._loop.time() + DEADLINE
        if self._under_way is None:
            answers = await self._insert_alone(groups, deadline)
            if answers is not None:
                return answers
        return await self._insert_together(groups, deadline)

    async def drain(self) -> None:
        """Returns when everything sent so far was answered."""
        while under_way := self._under_way:
            await asyncio.wait([under_way])

    @property
    def _under_way(self) -> asyncio.Future[None] | None:
        """A flush that was cancelled before its first step never said that it is over."""
        if self._flush is not None and not self._flush.done():
            return self._flush
        return self._lone

    async def _insert_alone(self, groups: Sequence[Group], deadline: float) -> Answers | None:
        """None when the store was unavailable: then it is tried again with the others."""
        self._lone = self._loop.create_future()
        try:
            with self._patience.until(min(self._loop.time() + ATTEMPT, deadline)):
                return await self._store.insert(groups)
        except (TimeoutError, StoreUnavailable):
            return None
        except StoreError:
            raise
        except Exception as error:
            raise _bug_in_store(error) from error
        finally:
            over, self._lone = self._lone, None
            if not self._loop.is_closed():
                over.set_result(None)  # a flush begins for those who came meanwhile

    async def _insert_together(self, groups: Sequence[Group], deadline: float) -> Answers:
        answers: asyncio.Future[Answers] = self._loop.create_future()
        self._waiting.append(_Waiting(groups, answers, deadline))
        if self._lone is None:
            self._start_flush()
        elif len(self._waiting) == 1:
            self._lone.add_done_callback(self._start_flush)
        return await answers

    def _start_flush(self, _: object = None) -> None:
        if self._flush is None or self._flush.done():
            self._flush = self._loop.create_task(self._flush_all(), name="tidemill enqueue")

    async def _flush_all(self) -> None:
        try:
            while batch := self._take():
                try:
                    await self._send(batch)
                except asyncio.CancelledError:
                    # The loop is being shut down: nobody may be left waiting for an answer.
                    _cancel([*batch, *self._waiting])
                    self._waiting.clear()
                    raise
        finally:
            self._flush = None

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        jobs = 0
        while self._waiting and jobs < JOBS_AT_ONCE:
            waiting = self._waiting.popleft()
            jobs += sum(len(group.jobs) for group in waiting.groups)
            batch.append(waiting)
        return batch

    async def _send(self, batch: list[_Waiting]) -> None:
        groups = [group for waiting in batch for group in waiting.groups]
        until = min(self._loop.time() + ATTEMPT, *(waiting.deadline for waiting in batch))
        try:
            async with asyncio.timeout_at(until):
                answers = await self._store.insert(groups)
        except TimeoutError:
            await self._later(batch, StoreUnavailable("it did not answer"))
        except StoreUnavailable as error:
            await self._later(batch, error)
        except StoreError as error:
            # Full, read-only, corrupt: another try within seconds would say the same.
            _fail(batch, error)
        except Exception as error:  # noqa: BLE001 - a bug in a store must reach the callers, not hang them
            _fail(batch, _bug_in_store(error), error)
        else:
            self._pause = FIRST_PAUSE
            _answer(batch, answers)

    async def _later(self, batch: list[_Waiting], error: StoreUnavailable) -> None:
        """Give up on those whose time is over; the others go first in the next flush."""
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        next_try = self._loop.time() + pause
        everybody = [*batch, *self._waiting]
        over = [waiting for waiting in everybody if waiting.deadline <= next_try]
        self._waiting = deque(waiting for waiting in everybody if waiting.deadline > next_try)
        for waiting in over:
            _raise_in(waiting, gave_up(error, waiting.groups), error)
        if self._waiting:
            await asyncio.sleep(pause)


def _bug_in_store(error: Exception) -> StoreError:
    return StoreError(f"the store raised {type(error).__name__}: {error}")


@contextmanager
def naming(groups: Sequence[Group]) -> Iterator[None]:
    """Who cannot even reach the store is told the ids as well: what to do about them is the same."""
    try:
        yield
    except StoreUnavailable as error:
        error.ids = _ids(groups)
        raise


def gave_up(error: StoreUnavailable, groups: Sequence[Group]) -> StoreUnavailable:
    ids = _ids(groups)
    if len(ids) == 1:
        what = f"job {ids[0]} may or may not have been accepted: enqueue it again with using(id={ids[0]!r})"
    else:
        shown = ", ".join(ids[:IDS_SHOWN]) + (" …" if len(ids) > IDS_SHOWN else "")
        what = f"{len(ids)} jobs ({shown}) may or may not have been accepted: send the same requests again"
    given_up = StoreUnavailable(
        f"the store could not be reached for {DEADLINE:g} s ({error}); {what}. "
        "By the same id a job exists once"
    )
    given_up.ids = ids
    return given_up


def _ids(groups: Sequence[Group]) -> tuple[str, ...]:
    return tuple(job.id for group in groups for job in group.jobs)


def _answer(batch: list[_Waiting], answers: Answers) -> None:
    start = 0
    for waiting in batch:
        end = start + len(waiting.groups)
        if not waiting.answers.done():
            waiting.answers.set_result(answers[start:end])
        start = end


def _fail(batch: Sequence[_Waiting], error: StoreError, cause: Exception | None = None) -> None:
    for waiting in batch:
        # One exception raised in many tasks would collect all their tracebacks.
        _raise_in(waiting, type(error)(*error.args), cause or error)


def _raise_in(waiting: _Waiting, error: StoreError, cause: Exception) -> None:
    if not waiting.answers.done():
        error.__cause__ = cause
        waiting.answers.set_exception(error)


def _cancel(batch: Sequence[_Waiting]) -> None:
    for waiting in batch:
        waiting.answers.cancel()
