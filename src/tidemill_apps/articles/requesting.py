"""Asking for embeddings: one job per article, whoever asks and however often.

A request for an article that waits keeps its place and takes the more urgent priority; one for an article
that is being embedded runs once more when that is done. The job carries the article's id only, and reads the
text when it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from tidemill import JobHandle, JobRequest, QueueFull, Task, Tidemill
from tidemill_apps.articles.hurrying import WAITS
from tidemill_apps.articles.packing import Packing
from tidemill_apps.articles.posts import Post, Posts, Status

MANUAL, CHANGED, BULK = 1, 5, 10
PAGE = 100
"""Of one transaction: whoever saves an article meanwhile waits for no longer than that takes."""

Progress = Callable[[int], Awaitable[None]]
"""Told how many articles have been requested."""


class Requests:
    def __init__(
        self,
        app: Tidemill,
        posts: Posts,
        packing: Packing,
        embed: Task[[int], int],
        refresh: Task[[int], bool],
        *,
        queue: str,
    ) -> None:
        self._app, self._posts, self._packing = app, posts, packing
        self._embed, self._refresh, self._queue = embed, refresh, queue

    async def request(self, post_id: int, priority: int) -> JobHandle[int] | None:
        """None: there is no such article, or it has never had a text. Raises QueueFull, and the row then
        waits for room."""
        return next(iter(await self._request([post_id], priority)), None)

    async def request_many(self, ids: Iterable[int], priority: int) -> int:
        """How many of them there are, all requested."""
        asked, wanted = 0, sorted(set(ids))
        for start in range(0, len(wanted), PAGE):
            asked += len(await self._request(wanted[start : start + PAGE], priority))
        return asked

    async def request_all(self, priority: int = BULK, progress: Progress | None = None) -> int:
        """Every article that has a text and is not hidden."""
        asked, after = 0, 0
        while ids := await self._posts.with_content(after, PAGE):
            asked += len(await self._request(ids, priority))
            after = ids[-1]
            if progress is not None:
                await progress(asked)
        return asked

    async def request_until_full(self, after: int, priority: int = BULK) -> tuple[int, int | None]:
        """As `request_all`, from behind `after`, as long as there is room in the queue. How many, and, unless
        that were all, behind which to go on."""
        asked = 0
        while ids := await self._posts.with_content(after, PAGE):
            after = ids[-1]
            try:
                asked += len(await self._request(ids, priority))
            except QueueFull:
                return asked + len(ids), after  # their rows say that they are wanted, and wait for room
        return asked, None

    async def refresh_payload(self, post_id: int) -> JobHandle[bool]:
        """The title and the hiding that its vectors carry, without a call to the provider."""
        return await self._refresh.enqueue(post_id)

    async def refresh_payloads(self, ids: Iterable[int]) -> None:
        await self._app.enqueue_many(self._refresh.job(post_id) for post_id in ids)

    async def send(self, posts: Sequence[Post], priority: int) -> list[JobHandle[int]]:
        """Jobs for articles whose rows say already that they are wanted."""
        jobs = await asyncio.to_thread(self._jobs, posts, priority)
        handles = await self._app.enqueue_many(jobs)
        others = {
            post.id: handle.id
            for post, job, handle in zip(posts, jobs, handles, strict=True)
            if handle.id != job.job.id
        }
        if others:
            await self._posts.queued(others)
        return handles

    async def waiting(self) -> tuple[int, int | None]:
        """How many wait, and how many may; None: as many as there are."""
        queue, inspect = self._queue, self._app.inspect
        limit = (await inspect.queue(queue, sparing=True)).settings.max_length
        counts = (await inspect.counts()).get(queue, {})
        return sum(counts.get(state, 0) for state in WAITS), limit

    async def room(self) -> int | None:
        waiting, limit = await self.waiting()
        return None if limit is None else max(0, limit - waiting)

    async def _request(self, ids: Sequence[int], priority: int) -> list[JobHandle[int]]:
        return await self.send(await self._posts.want(ids), priority)

    def _jobs(self, posts: Sequence[Post], priority: int) -> list[JobRequest[int]]:
        return [self._job(post, priority) for post in posts]

    def _job(self, post: Post, priority: int) -> JobRequest[int]:
        """A row that is pending has the id of the job to come; one that is processing that of the job it
        has."""
        id_ = post.rag_job if post.rag_status == Status.PENDING and post.rag_job else self._posts.new_id()
        return self._embed.using(priority=priority, cost=self._packing.cost(post.content), id=id_).job(
            post.id
        )
