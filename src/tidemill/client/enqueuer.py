"""Sends jobs and flows to the store. Requests that are made at the same time share one call (group commit).
Each call has a time limit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from tidemill.contract.documents import check_advances
from tidemill.core.documents import MAX_JOBS_PER_ADVANCE, Advance, AdvanceResult
from tidemill.core.jobs import JobGroup
from tidemill.core.queues import InsertResult
from tidemill.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from tidemill.contract.store import Store


class CallDeadline:
    """A context manager that cancels its block at a loop time and raises TimeoutError: `with
    deadline.until(time):`.

    It is a faster `asyncio.timeout_at` that reuses its timer. Only one block at a time may use it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._until = 0.0
        self._cancelling = 0
        self._is_expired = False

    def until(self, time: float) -> CallDeadline:
        self._until = time
        if self._timer is None:
            self._timer = self._loop.call_at(time, self._on_timer)
        elif time < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(time, self._on_timer)
        return self

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task()
        assert task is not None  # noqa: S101 - only a task can await
        self._cancelling, self._is_expired = task.cancelling(), False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        # The task may also have been cancelled by another caller: then it is not only a timeout.
        if (
            self._is_expired
            and task is not None
            and task.uncancel() <= self._cancelling
            and kind is asyncio.CancelledError
        ):
            raise TimeoutError from error

    def _on_timer(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._on_timer)
        else:
            self._is_expired = True
            self._task.cancel()


ENQUEUE_DEADLINE_SECONDS = 5.0
"""An enqueue has returned or raised after this many seconds (I22)."""

ATTEMPT_TIMEOUT_SECONDS = ENQUEUE_DEADLINE_SECONDS / 2
"""A call without a reply is repeated after this time: one lost reply is not an outage."""

FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.02, 0.5
MAX_JOBS_PER_INSERT = 1000
MAX_IDS_SHOWN = 3

InsertReplies = list[list[InsertResult]]


class _PendingInsert(NamedTuple):
    groups: Sequence[JobGroup]
    answers: asyncio.Future[InsertReplies]
    deadline: float


class JobEnqueuer:
    """Inserts jobs into the store. Requests that arrive while a call runs share the next call. Each event
    loop has its own JobEnqueuer."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._waiting: deque[_PendingInsert] = deque()
        self._flush: asyncio.Task[None] | None = None
        self._single_call: asyncio.Future[None] | None = None
        self._call_deadline = CallDeadline(loop)
        self._pause = FIRST_RETRY_SECONDS

    async def insert(self, groups: Sequence[JobGroup], deadline: float | None = None) -> InsertReplies:
        deadline = deadline or self._loop.time() + ENQUEUE_DEADLINE_SECONDS
        if self._running_call is None:
            answers = await self._insert_alone(groups, deadline)
            if answers is not None:
                return answers
        return await self._insert_together(groups, deadline)

    async def drain(self) -> None:
        """Returns when all requests sent so far are answered."""
        while under_way := self._running_call:
            await asyncio.wait([under_way])

    @property
    def _running_call(self) -> asyncio.Future[None] | None:
        """A future that is done when the current call to the store has ended; None if no call runs."""
        # A task that is cancelled before its start never sets `_flush` to None.
        if self._flush is not None and not self._flush.done():
            return self._flush
        return self._single_call

    async def _insert_alone(self, groups: Sequence[JobGroup], deadline: float) -> InsertReplies | None:
        """Sends one request in a call of its own and returns the replies. Returns None if the store was
        unavailable; the caller then sends the request again."""
        self._single_call = self._loop.create_future()
        try:
            with self._call_deadline.until(min(self._loop.time() + ATTEMPT_TIMEOUT_SECONDS, deadline)):
                return await self._store.insert(groups)
        except (TimeoutError, StoreUnavailable):
            return None
        except StoreError:
            raise
        except Exception as error:
            raise _bug_in_store(error) from error
        finally:
            expired, self._single_call = self._single_call, None
            if not self._loop.is_closed():
                expired.set_result(None)  # starts a flush for requests that arrived meanwhile

    async def _insert_together(self, groups: Sequence[JobGroup], deadline: float) -> InsertReplies:
        answers: asyncio.Future[InsertReplies] = self._loop.create_future()
        self._waiting.append(_PendingInsert(groups, answers, deadline))
        if self._single_call is None:
            self._start_flush()
        elif len(self._waiting) == 1:
            self._single_call.add_done_callback(self._start_flush)
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
                    # The loop is shutting down: every caller must get an answer.
                    _cancel_inserts([*batch, *self._waiting])
                    self._waiting.clear()
                    raise
        finally:
            self._flush = None

    def _take(self) -> list[_PendingInsert]:
        batch: list[_PendingInsert] = []
        jobs = 0
        while self._waiting and jobs < MAX_JOBS_PER_INSERT:
            waiting = self._waiting.popleft()
            jobs += sum(len(group.jobs) for group in waiting.groups)
            batch.append(waiting)
        return batch

    async def _send(self, batch: list[_PendingInsert]) -> None:
        groups = [group for waiting in batch for group in waiting.groups]
        until = min(self._loop.time() + ATTEMPT_TIMEOUT_SECONDS, *(waiting.deadline for waiting in batch))
        try:
            async with asyncio.timeout_at(until):
                answers = await self._store.insert(groups)
        except TimeoutError:
            await self._retry_later(batch, StoreUnavailable("it did not answer"))
        except StoreUnavailable as error:
            await self._retry_later(batch, error)
        except StoreError as error:
            # Full, read-only or corrupt: a retry within seconds would fail too.
            _fail_inserts(batch, error)
        except Exception as error:  # noqa: BLE001 - a bug in a store must reach the callers, not hang them
            _fail_inserts(batch, _bug_in_store(error), error)
        else:
            self._pause = FIRST_RETRY_SECONDS
            _resolve_inserts(batch, answers)

    async def _retry_later(self, batch: list[_PendingInsert], error: StoreUnavailable) -> None:
        """Waits before the next call, which sends the requests in `batch` again. Requests whose deadline
        comes first fail at once with `error`."""
        pause, self._pause = self._pause, min(self._pause * 2, MAX_RETRY_SECONDS)
        next_try = self._loop.time() + pause
        pending = [*batch, *self._waiting]
        expired = [waiting for waiting in pending if waiting.deadline <= next_try]
        self._waiting = deque(waiting for waiting in pending if waiting.deadline > next_try)
        for waiting in expired:
            _fail_insert(waiting, enqueue_deadline_error(error, waiting.groups), error)
        if self._waiting:
            await asyncio.sleep(pause)


def _bug_in_store(error: Exception) -> StoreError:
    return StoreError(f"the store raised {type(error).__name__}: {error}")


@contextmanager
def add_ids_to_errors(groups: Sequence[JobGroup]) -> Iterator[None]:
    """Context manager that adds the job ids of `groups` to a StoreUnavailable error of its block. The caller
    can then send the same jobs again."""
    try:
        yield
    except StoreUnavailable as error:
        error.ids = _job_ids(groups)
        raise


def enqueue_deadline_error(error: StoreUnavailable, groups: Sequence[JobGroup]) -> StoreUnavailable:
    ids = _job_ids(groups)
    if len(ids) == 1:
        what = f"job {ids[0]} may or may not have been accepted: enqueue it again with using(id={ids[0]!r})"
    else:
        shown = ", ".join(ids[:MAX_IDS_SHOWN]) + (" …" if len(ids) > MAX_IDS_SHOWN else "")
        what = f"{len(ids)} jobs ({shown}) may or may not have been accepted: send the same requests again"
    failure = StoreUnavailable(
        f"the store could not be reached for {ENQUEUE_DEADLINE_SECONDS:g} s ({error}); {what}. "
        "By the same id a job exists once"
    )
    failure.ids = ids
    return failure


def _job_ids(groups: Sequence[JobGroup]) -> tuple[str, ...]:
    return tuple(job.id for group in groups for job in group.jobs)


def _resolve_inserts(batch: list[_PendingInsert], answers: InsertReplies) -> None:
    start = 0
    for waiting in batch:
        end = start + len(waiting.groups)
        if not waiting.answers.done():
            waiting.answers.set_result(answers[start:end])
        start = end


def _fail_inserts(batch: Sequence[_PendingInsert], error: StoreError, cause: Exception | None = None) -> None:
    for waiting in batch:
        # One exception raised in many tasks would collect all their tracebacks.
        _fail_insert(waiting, type(error)(*error.args), cause or error)


def _fail_insert(waiting: _PendingInsert, error: StoreError, cause: Exception) -> None:
    if not waiting.answers.done():
        error.__cause__ = cause
        waiting.answers.set_exception(error)


def _cancel_inserts(batch: Sequence[_PendingInsert]) -> None:
    for waiting in batch:
        waiting.answers.cancel()


class _PendingFlow(NamedTuple):
    advance: Advance
    answer: asyncio.Future[AdvanceResult]


class FlowEnqueuer:
    """Creates flows in the store. Requests that arrive while a call runs share the next call. Each event loop
    has its own FlowEnqueuer."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store, self._loop = store, loop
        self._waiting: deque[_PendingFlow] = deque()
        self._sending: asyncio.Task[None] | None = None

    async def begin(self, advance: Advance) -> AdvanceResult:
        """Creates a flow and returns the store's reply. Raises an error of the store without a retry, because
        the caller retries."""
        check_advances([advance])  # an invalid flow would fail the whole batch
        answer: asyncio.Future[AdvanceResult] = self._loop.create_future()
        self._waiting.append(_PendingFlow(advance, answer))
        if self._sending is None or self._sending.done():
            self._sending = self._loop.create_task(self._send_all(), name="tidemill flows begin")
        return await answer

    async def drain(self) -> None:
        """Returns when all requests sent so far are answered."""
        while self._sending is not None and not self._sending.done():
            await asyncio.wait([self._sending])

    async def _send_all(self) -> None:
        while batch := self._take():
            try:
                async with asyncio.timeout(ATTEMPT_TIMEOUT_SECONDS):
                    answers = await self._store.advance([waiting.advance for waiting in batch])
            except asyncio.CancelledError:
                for waiting in (*batch, *self._waiting):
                    waiting.answer.cancel()
                self._waiting.clear()
                raise
            except TimeoutError as error:
                _fail_flows(batch, StoreUnavailable("it did not answer"), error)
            except Exception as error:  # noqa: BLE001 - every error must reach the callers
                _fail_flows(batch, error, error)
            else:
                for waiting, answer in zip(batch, answers, strict=True):
                    if not waiting.answer.done():
                        waiting.answer.set_result(answer)

    def _take(self) -> list[_PendingFlow]:
        batch: list[_PendingFlow] = []
        jobs = 0
        while self._waiting and (
            not batch or jobs + len(self._waiting[0].advance.jobs) <= MAX_JOBS_PER_ADVANCE
        ):
            waiting = self._waiting.popleft()
            batch.append(waiting)
            jobs += len(waiting.advance.jobs) or 1
        return batch


def _fail_flows(batch: list[_PendingFlow], error: Exception, cause: Exception) -> None:
    for waiting in batch:
        if not waiting.answer.done():
            own = type(error)(*error.args)  # one exception in many tasks would collect all their tracebacks
            own.__cause__ = cause
            waiting.answer.set_exception(own)
