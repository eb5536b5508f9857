"""Sets right what a dead process, a lost message or a person left: the row is held against its job.

A row that waits or runs names its job. If that job failed or was cancelled, so has the article; if it waits
for another attempt, the article is pending; if it is gone, the article gets another one. Workers look at
start, when one of their jobs has come back, and every half minute."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from tidemill import ConfigurationError, Filter, Job, QueueFull, State, StoreError, Tidemill
from tidemill.telemetry.events import JobFailed, JobReclaimed, JobReleased, JobRetrying
from tidemill_apps.articles.embedding import AWAY
from tidemill_apps.articles.posts import Post, Posts, Status
from tidemill_apps.articles.requesting import BULK, CHANGED, Requests
from tidemill_apps.articles.standing import Standing
from tidemill_apps.articles.sweeping import Swept, sweep
from tidemill_apps.articles.vectors import Vectors

_log = logging.getLogger("tidemill_apps")

PAGE = 200
ComesBack = JobRetrying | JobFailed | JobReleased | JobReclaimed


class Minding:
    def __init__(self, app: Tidemill, posts: Posts, vectors: Vectors, requests: Requests, task: str) -> None:
        self._app, self._posts, self._vectors, self._requests = app, posts, vectors, requests
        self._standing, self._task = Standing(posts), task
        self._told: set[str] = set()
        self._without_vectors = 0
        self._awake: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        app.on(JobRetrying, JobFailed, JobReleased, JobReclaimed)(self._came_back)

    async def keep(self, seconds: float) -> None:
        """Until it is cancelled."""
        event = asyncio.Event()
        self._awake = (asyncio.get_running_loop(), event)
        while True:
            await _told_if_not("articles are set right", self.set_right)
            loop = asyncio.get_running_loop()
            until = loop.time() + seconds
            while loop.time() < until and await _set_within(event, until - loop.time()):
                event.clear()
                await _told_if_not("articles are set right", self.set_right_told)

    async def keep_swept(self, seconds: float) -> None:
        """Sooner while that cannot be: it is also how this process knows whether Qdrant is there."""
        before = None
        while True:
            before = await _told_if_not("vectors are swept", self.sweep, before)
            await asyncio.sleep(seconds if before is None else min(seconds, AWAY))

    async def sweep(self) -> int:
        """Points that nobody finds any more go; how many those were."""
        swept = await sweep(self._vectors, self._posts)
        ids = sorted(swept.mislabelled)
        for start in range(0, len(ids), PAGE):
            await self._requests.refresh_payloads(ids[start : start + PAGE])
        await self._embed_again(swept)
        return swept.gone

    async def _embed_again(self, swept: Swept) -> None:
        """Completed rows without vectors, as after a crash of Qdrant or by another program."""
        number = len(swept.without_vectors)
        if swept.is_plausible:
            await self._send_again(swept.without_vectors)
        elif number != self._without_vectors:
            _log.warning(
                "%d of %d completed articles have no vectors in the collection; "
                "if it is the right one, embed them again: POST /api/post/embed/batch",
                number,
                swept.completed,
            )
        self._without_vectors = number

    async def set_right(self) -> None:
        """Every row that is not settled."""
        after = 0
        while rows := await self._standing.unfinished(after, PAGE):
            await self._hold_against_jobs(rows)
            after = rows[-1].id
        after = 0
        while ids := await self._standing.unlabelled(after, PAGE):
            await self._requests.refresh_payloads(ids)
            after = ids[-1]

    async def set_right_told(self) -> None:
        """The rows of jobs that came back to this process."""
        told, self._told = list(self._told), set()
        for start in range(0, len(told), PAGE):
            await self._hold_against_jobs(await self._standing.of_jobs(told[start : start + PAGE]))

    async def _hold_against_jobs(self, rows: Sequence[Post]) -> None:
        ids = tuple(row.rag_job for row in rows if row.rag_job)
        jobs = {job.id: job async for job in self._app.inspect.each(Filter(ids=ids))} if ids else {}
        gone = []
        for row in rows:
            job = jobs.get(row.rag_job or "")
            if job is None or job.state is State.DONE:
                gone.append(row)
            else:
                await self._hold_against(row, job)
        await self._send_again(gone)

    async def _hold_against(self, row: Post, job: Job) -> None:
        said = None if job.error is None else job.error.message
        match job.state:
            case State.RUNNING:
                pass
            case State.FAILED:
                await self._standing.fail(job.id, said or job.reason or "failed")
            case State.CANCELLED:
                await self._standing.fail(job.id, f"cancelled: {job.reason or 'no reason was given'}")
            case _ if row.rag_status == Status.PROCESSING or (said and row.rag_error is None):
                await self._standing.wait(job.id, said)
            case _:
                pass

    async def _send_again(self, rows: Sequence[Post]) -> None:
        """As many as there is room for. Of those that are only to be embedded again, none goes before a text
        that is new."""
        new, again = [row for row in rows if row.is_new], [row for row in rows if not row.is_new]
        for priority, meant in ((CHANGED, new), (BULK, again)):
            fitting = meant[: await self._requests.room()] if meant else []
            if fitting and (ids := await self._standing.again(fitting)):
                with suppress(QueueFull):  # others were quicker; there is another look
                    await self._requests.send(await self._posts.many(ids), priority)

    def _came_back(self, event: ComesBack) -> None:
        if event.task == self._task and self._awake is not None:
            loop, awake = self._awake
            self._told.add(event.job)
            if not loop.is_closed():
                loop.call_soon_threadsafe(awake.set)


async def _told_if_not(
    what: str, work: Callable[[], Coroutine[Any, Any, object]], before: str | None = None
) -> str | None:
    """What cannot be done now is done in a while; whoever keeps it from being done is named, unless that was
    said `before`. None: it is done."""
    try:
        await work()
    except (StoreError, ConfigurationError) as error:  # of jobs, rows or vectors
        if str(error) != before:
            _log.warning("%s; %s later", error, what)
        return str(error)
    except Exception as error:  # noqa: BLE001 - a loop that ended would set nothing right any more
        _log.exception("%s later", what)
        return str(error)
    return None


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
