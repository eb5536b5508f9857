"""The handle of a job: its id, status, result, cancel and retry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from tidemill.client.background_loop import refuse_on_loop
from tidemill.contract.coordination import job_topic
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.core.operator_changes import AmendResult, CancelJobs, OperatorChange, RetryJobs
from tidemill.core.result_waits import WaitTarget
from tidemill.core.states import FINAL, State
from tidemill.errors import (
    ConfigurationError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultTimeout,
    ResultUnreadable,
)
from tidemill.tasks.context import OpenWait, open_wait
from tidemill.times import parse_seconds

if TYPE_CHECKING:
    from tidemill.client.client import Client
    from tidemill.contract.store import Store


MAX_QUEUES_NAMED = 5

R_co = TypeVar("R_co", covariant=True)

FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.25, 5.0
"""Wake-ups deliver a result at once; polling delivers it if a wake-up is lost."""


class JobHandle(Generic[R_co]):
    """The handle of a job that was sent: `await job.result(timeout=60)`. `app.job(id)` returns it by id.

    `existing`: True if a job with the same unique key existed before; the handle then belongs to that job."""

    __slots__ = ("_owner", "_queue", "_store_identity", "existing", "id")

    def __init__(
        self,
        client: Client,
        id: str,  # noqa: A002 - the public name
        *,
        existing: bool = False,
        queue: str | None = None,
    ) -> None:
        self._owner, self._store_identity = client, client.store_identity
        self._queue = queue
        self.id = id
        self.existing = existing

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}{' existing' if self.existing else ''}>"

    @property
    def _client(self) -> Client:
        """Returns the client. Raises JobNotFound if the client has changed its store since the handle was
        created."""
        if self._owner.store_identity is not self._store_identity:
            raise JobNotFound(
                f"job {self.id!r} is in another store than the application works on now: a job of a test "
                "kit is gone with its block, and inside the block there is no other"
            )
        return self._owner

    async def result(self, timeout: float | timedelta | None = None) -> R_co:  # noqa: ASYNC109 - raises ResultTimeout instead
        """Waits until the job ends, at most `timeout` seconds, and returns the handler's result. None waits
        without limit.

        Raises JobFailed, JobCancelled, JobNotFound, ResultTimeout or ResultUnreadable. While an async handler
        waits, other jobs may use its slot. Raises WaitRefused if the calling handler must not wait, for
        example because the wait could never end."""
        return self._outcome(await self._ended(timeout))

    def result_sync(self, timeout: float | timedelta | None = None) -> R_co:
        """`result` for programs without an event loop."""
        refuse_on_loop("result")
        return self._client.run_sync(lambda: self.result(timeout))

    async def status(self) -> Job:
        """Returns the job as it is stored now."""
        store = await self._client.store()
        if (job := (await store.get([self.id]))[0]) is None:
            raise await self._missing()
        return job

    def status_sync(self) -> Job:
        """`status` for programs without an event loop."""
        refuse_on_loop("status")
        blocking = self._client.blocking()
        if blocking is not None and (job := blocking.get([self.id])[0]) is not None:
            return job
        return self._client.run_sync(self.status)

    async def cancel(self, reason: str = "cancelled by hand") -> bool:
        """Cancels the job. Returns False if the job had already ended. No attempt starts after this call
        returns."""
        return await self._amend(CancelJobs(reason))

    def cancel_sync(self, reason: str = "cancelled by hand") -> bool:
        """`cancel` for programs without an event loop."""
        refuse_on_loop("cancel")
        return self._amend_sync(CancelJobs(reason))

    async def retry(self) -> bool:
        """Runs an ended job again as a new generation. Returns False if the job has not ended yet."""
        return await self._amend(RetryJobs())

    def retry_sync(self) -> bool:
        """`retry` for programs without an event loop."""
        refuse_on_loop("retry")
        return self._amend_sync(RetryJobs())

    async def _amend(self, change: OperatorChange) -> bool:
        store = await self._client.store()
        amended = await store.amend(Filter(ids=(self.id,)), change)
        if _is_missing(amended):
            raise await self._missing()
        return bool(amended.changed)

    def _amend_sync(self, change: OperatorChange) -> bool:
        if blocking := self._client.blocking():
            amended = blocking.amend(Filter(ids=(self.id,)), change)
            if not _is_missing(amended):
                return bool(amended.changed)
        return self._client.run_sync(lambda: self._amend(change))

    async def _missing(self) -> JobNotFound:
        """Returns the JobNotFound error to raise. The message says how long the job's queue keeps ended
        jobs."""
        store = await self._client.store()
        infos = [info for info in await store.queues() if self._queue in {None, info.name}]
        retentions = "; ".join(
            f"queue {info.name!r} keeps done jobs {info.settings.keep_done.described()}, failed ones "
            f"{info.settings.keep_failed.described()}"
            for info in infos[:MAX_QUEUES_NAMED]
        )
        why = "it ended and was pruned, or it was deleted"
        if self._queue is None:
            why = "the id is wrong, or the job ended and was pruned, or it was deleted"
        return JobNotFound(
            f"there is no job {self.id!r}: {why}. "
            f"{retentions[:1].upper()}{retentions[1:] or 'There is no queue yet'}. "
            f"To keep results longer: app.queue({self._queue or 'NAME'!r}, "
            "keep_done=Retention(age=SECONDS, count=JOBS))"
        )

    async def _ended(self, timeout: float | timedelta | None) -> Job:  # noqa: ASYNC109 - see `result`
        patience = None if timeout is None else parse_seconds("timeout", timeout, ConfigurationError)
        until = None if patience is None else asyncio.get_running_loop().time() + patience
        job = await self.status()
        if job.state not in FINAL:
            async with open_wait(WaitTarget("job", self.id), patience) as wait:
                job = await self._wait(until, wait)
        if job.state not in FINAL:
            raise ResultTimeout(
                f"job {self.id} did not end within {patience:g} s, it is {job.state}; it may still"
            )
        return job

    async def _wait(self, until: float | None, wait: OpenWait | None) -> Job:
        """Returns the job when it has ended, or at loop time `until`. If all listeners are in use, polls."""
        session = await self._client.session()
        for delay in poll_delays(until):
            if await acquire_within(session.listeners, delay):
                try:
                    return await self._listen(session.store, until, wait)
                finally:
                    session.listeners.release()
            job = await self.status()
            if job.state in FINAL:
                return job
            if wait is not None:
                await wait.check(session.store)
        return await self.status()

    async def _listen(self, store: Store, until: float | None, wait: OpenWait | None) -> Job:
        listener = store.listen([job_topic(self.id)])
        try:
            for number, delay in enumerate(poll_delays(until)):
                listener.arm()
                job = await self.status()
                if job.state in FINAL:
                    return job
                if number:
                    self._client.on_wait(job)
                if wait is not None:
                    await wait.check(store)
                await listener.wait(delay)
        finally:
            listener.close()
        return await self.status()

    def _outcome(self, job: Job) -> R_co:
        named = f"job {job.id} of task {job.task!r}"
        if job.state is State.CANCELLED:
            raise JobCancelled(f"{named} was cancelled: {job.reason or 'no reason was given'}")
        if job.state is State.FAILED:
            error = f"{job.error.type}: {job.error.message}" if job.error else job.reason
            raise JobFailed(f"{named} failed after {job.attempts} attempts: {error}")
        try:
            return cast("R_co", self._decoded(job))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ResultUnreadable(
                f"{named} is done, but its result does not fit what the task says it returns: {error}; "
                "correct the annotation, or read the stored JSON with `status()`"
            ) from None

    def _decoded(self, job: Job) -> Any:
        """Returns the result as the type that the job's task declares."""
        if task := self._client.tasks.get(job.task):
            return task.result.decode(job.result)
        return None if job.result is None else msgspec.json.decode(job.result)


def _is_missing(amended: AmendResult) -> bool:
    return not amended.changed and not amended.unchanged


def poll_delays(until: float | None) -> Iterator[float]:
    """Yields the seconds to wait before each poll, from 0.25 s up to 5 s. Ends at the loop time `until`; None
    means never."""
    loop, delay = asyncio.get_running_loop(), FIRST_POLL_SECONDS
    while until is None or loop.time() < until:
        yield delay if until is None else min(delay, until - loop.time())
        delay = min(delay * 2, MAX_POLL_SECONDS)


async def acquire_within(places: asyncio.Semaphore, patience: float) -> bool:
    try:
        async with asyncio.timeout(patience):
            return await places.acquire()
    except TimeoutError:
        return False
