"""What an enqueue hands back: a job's id, and the way to its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from tidemill.client.portal import refuse_on_a_loop
from tidemill.contract.wakeups import job_topic
from tidemill.core.changes import Amended, Cancel, Change, RetryNow
from tidemill.core.filters import Filter
from tidemill.core.job import Job
from tidemill.core.states import FINAL, State
from tidemill.core.waits import WaitTarget
from tidemill.errors import (
    ConfigurationError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultTimeout,
    ResultUnreadable,
)
from tidemill.tasks.waits import OpenWait, waiting
from tidemill.times import read_seconds

if TYPE_CHECKING:
    from tidemill.client.client import Client
    from tidemill.contract.store import Store

MOST_QUEUES_NAMED = 5

R_co = TypeVar("R_co", covariant=True)

FIRST_LOOK, LONGEST_LOOK = 0.25, 5.0
"""Wake-ups make a result arrive at once; looking now and then makes it arrive when they are lost."""


class JobHandle(Generic[R_co]):
    """A job that was sent: `await job.result(timeout=60)`.

    `id` can be kept, and `app.job(id)` makes a handle of it again. `existing` is true when a job
    with the same unique key was there before: this is that one.
    """

    __slots__ = ("_owner", "_place", "_queue", "existing", "id")

    def __init__(
        self,
        client: Client,
        id: str,  # noqa: A002 - the word for it
        *,
        existing: bool = False,
        queue: str | None = None,
    ) -> None:
        self._owner, self._place = client, client.place
        self._queue = queue
        self.id = id
        self.existing = existing

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}{' existing' if self.existing else ''}>"

    @property
    def _client(self) -> Client:
        """A test kit takes the client to another store and back; its jobs are not in the real one."""
        if self._owner.place is not self._place:
            raise JobNotFound(
                f"job {self.id!r} is in another store than the application works on now: a job of a test "
                "kit is gone with its block, and inside the block there is no other"
            )
        return self._owner

    async def result(self, timeout: float | timedelta | None = None) -> R_co:  # noqa: ASYNC109 - ends in our own error
        """Wait for the job to end, at most `timeout` seconds; answers what the handler returned. Raises
        JobFailed, JobCancelled, JobNotFound, ResultTimeout or ResultUnreadable. An async handler that waits
        lends its slot; where a handler must not wait it raises WaitRefused."""
        return self._outcome(await self._ended(timeout))

    def result_sync(self, timeout: float | timedelta | None = None) -> R_co:
        """`result` for programs without an event loop."""
        refuse_on_a_loop("result")
        return self._client.run_sync(lambda: self.result(timeout))

    async def status(self) -> Job:
        """The record as the store has it now."""
        store = await self._client.store()
        if (job := (await store.get([self.id]))[0]) is None:
            raise await self._missing()
        return job

    def status_sync(self) -> Job:
        """`status` for programs without an event loop."""
        refuse_on_a_loop("status")
        blocking = self._client.blocking()
        if blocking is not None and (job := blocking.get([self.id])[0]) is not None:
            return job
        return self._client.run_sync(self.status)

    async def cancel(self, reason: str = "cancelled by hand") -> bool:
        """After this returned nothing new of the job starts. False: it had already ended."""
        return await self._amend(Cancel(reason))

    def cancel_sync(self, reason: str = "cancelled by hand") -> bool:
        """`cancel` for programs without an event loop."""
        refuse_on_a_loop("cancel")
        return self._amend_sync(Cancel(reason))

    async def retry(self) -> bool:
        """Run an ended job again as a new generation. False: it has not ended yet."""
        return await self._amend(RetryNow())

    def retry_sync(self) -> bool:
        """`retry` for programs without an event loop."""
        refuse_on_a_loop("retry")
        return self._amend_sync(RetryNow())

    async def _amend(self, change: Change) -> bool:
        store = await self._client.store()
        amended = await store.amend(Filter(ids=(self.id,)), change)
        if _is_missing(amended):
            raise await self._missing()
        return bool(amended.changed)

    def _amend_sync(self, change: Change) -> bool:
        if blocking := self._client.blocking():
            amended = blocking.amend(Filter(ids=(self.id,)), change)
            if not _is_missing(amended):
                return bool(amended.changed)
        return self._client.run_sync(lambda: self._amend(change))

    async def _missing(self) -> JobNotFound:
        """Names how long the job's queue keeps results; without a known queue, how long all queues do."""
        store = await self._client.store()
        infos = [info for info in await store.queues() if self._queue in {None, info.name}]
        kept = "; ".join(
            f"queue {info.name!r} keeps done jobs {info.settings.keep_done.described()}, failed ones "
            f"{info.settings.keep_failed.described()}"
            for info in infos[:MOST_QUEUES_NAMED]
        )
        why = "it ended and was pruned, or somebody deleted it"
        if self._queue is None:
            why = "the id is wrong, or the job ended and was pruned, or somebody deleted it"
        return JobNotFound(
            f"there is no job {self.id!r}: {why}. {kept[:1].upper()}{kept[1:] or 'There is no queue yet'}. "
            f"To keep results longer: app.queue({self._queue or 'NAME'!r}, "
            "keep_done=Retention(age=SECONDS, count=JOBS))"
        )

    async def _ended(self, timeout: float | timedelta | None) -> Job:  # noqa: ASYNC109 - see `result`
        patience = None if timeout is None else read_seconds("timeout", timeout, ConfigurationError)
        until = None if patience is None else asyncio.get_running_loop().time() + patience
        job = await self.status()
        if job.state not in FINAL:
            async with waiting(WaitTarget("job", self.id), patience) as wait:
                job = await self._wait(until, wait)
        if job.state not in FINAL:
            raise ResultTimeout(
                f"job {self.id} did not end within {patience:g} s, it is {job.state}; it may still"
            )
        return job

    async def _wait(self, until: float | None, wait: OpenWait | None) -> Job:
        """Listen, or, while too many others do, look now and then until one of them is done."""
        session = await self._client.session()
        for look in looks(until):
            if await acquired(session.listeners, look):
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
            for number, look in enumerate(looks(until)):
                listener.arm()
                job = await self.status()
                if job.state in FINAL:
                    return job
                if number:
                    self._client.mind_waiting(job)
                if wait is not None:
                    await wait.check(store)
                await listener.wait(look)
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
        """By the task that ran: a handle found by id or by unique key may be of any task."""
        if task := self._client.tasks.get(job.task):
            return task.result.decode(job.result)
        return None if job.result is None else msgspec.json.decode(job.result)


def _is_missing(amended: Amended) -> bool:
    return not amended.changed and not amended.unchanged


def looks(until: float | None) -> Iterator[float]:
    """How long to wait before each look, until there is no time left."""
    loop, look = asyncio.get_running_loop(), FIRST_LOOK
    while until is None or loop.time() < until:
        yield look if until is None else min(look, until - loop.time())
        look = min(look * 2, LONGEST_LOOK)


async def acquired(places: asyncio.Semaphore, patience: float) -> bool:
    try:
        async with asyncio.timeout(patience):
            return await places.acquire()
    except TimeoutError:
        return False
