"""Enqueues embedding jobs, one per article, and raises the priority of waiting jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from tidemill import Filter, Job, JobHandle, JobRequest, QueueFull, State, Task, Tidemill
from tidemill_apps.articles.chunks import CallPacker
from tidemill_apps.articles.posts import Post, Posts, PostStatus
from tidemill_apps.common.database import slice_items
from tidemill_apps.common.status import WAITING_STATES, count_jobs, load_jobs

POSTS_PER_QUERY = 100


async def load_waiting_jobs(app: Tidemill, posts: Posts, ids: Iterable[int]) -> dict[int, Job]:
    """Returns a mapping from article id to the waiting job of that article. Articles without a waiting job
    are left out."""
    found: dict[int, Job] = {}
    for some in slice_items(list(ids), POSTS_PER_QUERY):
        rows = await posts.load(some)
        named = {row.id: row.rag_job for row in rows if row.rag_status == PostStatus.PENDING and row.rag_job}
        found |= await filter_waiting_jobs(app, named)
    return found


async def filter_waiting_jobs(app: Tidemill, named: Mapping[int, str]) -> dict[int, Job]:
    """Returns a mapping from article id to job, with only the jobs that still wait. `named` maps article ids
    to job ids."""
    jobs = await load_jobs(app, named.values(), WAITING_STATES)
    return {post_id: jobs[job] for post_id, job in named.items() if job in jobs}


async def reprioritise_jobs(app: Tidemill, jobs: Iterable[Job], priority: int) -> None:
    """Sets the priority of waiting jobs to `priority`, so that they run sooner. Jobs that already have a
    smaller priority keep it. Scheduled jobs become due now."""
    meant = list(jobs)
    if later := tuple(job.id for job in meant if job.priority > priority):
        await app.inspect.reprioritise(Filter(ids=later, states=WAITING_STATES), priority)
    if due := tuple(job.id for job in meant if job.state is State.SCHEDULED):
        await app.inspect.run(Filter(ids=due, states=(State.SCHEDULED,)))


MANUAL_PRIORITY, CHANGED_PRIORITY, BULK_PRIORITY = 1, 5, 10
POSTS_PER_TRANSACTION = 100
"""Rows per transaction. It bounds how long a save of another article waits for the lock."""

RequestProgress = Callable[[int], Awaitable[None]]
"""Called with the number of articles requested so far."""


class EmbeddingRequests:
    def __init__(
        self,
        app: Tidemill,
        posts: Posts,
        packer: CallPacker,
        embed: Task[[int], int],
        refresh: Task[[int], bool],
        *,
        queue: str,
    ) -> None:
        self._app, self._posts, self._packer = app, posts, packer
        self._embed, self._refresh, self._queue = embed, refresh, queue

    async def request(self, post_id: int, priority: int) -> JobHandle[int] | None:
        """Marks the article as pending, enqueues its embedding job and returns the job's handle. Returns None
        if the article does not exist, or has neither a text nor vectors. Raises QueueFull; the reconciler
        then enqueues the job later."""
        return next(iter(await self._request([post_id], priority)), None)

    async def request_many(self, ids: Iterable[int], priority: int) -> int:
        """Requests embeddings of the articles `ids`. Returns the number of requested articles. Articles that
        do not exist, or have neither a text nor vectors, are left out."""
        asked = 0
        for some in slice_items(sorted(set(ids)), POSTS_PER_TRANSACTION):
            asked += len(await self._request(some, priority))
        return asked

    async def request_all(
        self, priority: int = BULK_PRIORITY, progress: RequestProgress | None = None
    ) -> int:
        """Requests an embedding of every visible article that has a text. Returns the number of articles.
        `progress` is called with the number requested so far."""
        asked, after = 0, 0
        while ids := await self._posts.load_ids_with_content(after, POSTS_PER_TRANSACTION):
            asked += len(await self._request(ids, priority))
            after = ids[-1]
            if progress is not None:
                await progress(asked)
        return asked

    async def request_until_full(self, after: int, priority: int = BULK_PRIORITY) -> tuple[int, int | None]:
        """Requests embeddings of visible articles with an id above `after`, until the queue is full. Returns
        the number of requested articles, and the next `after`; None if no articles remain."""
        asked = 0
        while ids := await self._posts.load_ids_with_content(after, POSTS_PER_TRANSACTION):
            after = ids[-1]
            try:
                asked += len(await self._request(ids, priority))
            except QueueFull:
                return asked + len(ids), after  # their rows are pending already and wait for room
        return asked, None

    async def refresh_payload(self, post_id: int) -> JobHandle[bool]:
        """Enqueues a job that writes the article's title and visibility to its stored vectors. For a deleted
        article the job deletes the vectors. The job makes no provider call."""
        return await self._refresh.enqueue(post_id)

    async def refresh_payloads(self, ids: Iterable[int]) -> None:
        await self._app.enqueue_many(self._refresh.job(post_id) for post_id in ids)

    async def send(self, posts: Sequence[Post], priority: int) -> list[JobHandle[int]]:
        """Enqueues one embedding job per article. The rows of `posts` must already be pending or processing.
        If a job for the article waits already, the row gets the id of that job."""
        jobs = await asyncio.to_thread(self._jobs, posts, priority)
        handles = await self._app.enqueue_many(jobs)
        others = {
            post.id: handle.id
            for post, job, handle in zip(posts, jobs, handles, strict=True)
            if handle.id != job.job.id
        }
        if others:
            await self._posts.set_jobs(others)
        return handles

    async def waiting(self) -> tuple[int, int | None]:
        """Returns the number of waiting jobs and the maximum length of the queue. The second value is None if
        the queue has no maximum."""
        queue, inspect = self._queue, self._app.inspect
        limit = (await inspect.queue(queue, cached=True)).settings.max_length
        return await count_jobs(self._app, queue, WAITING_STATES), limit

    async def room(self) -> int | None:
        waiting, limit = await self.waiting()
        return None if limit is None else max(0, limit - waiting)

    async def _request(self, ids: Sequence[int], priority: int) -> list[JobHandle[int]]:
        return await self.send(await self._posts.request_embedding(ids), priority)

    def _jobs(self, posts: Sequence[Post], priority: int) -> list[JobRequest[int]]:
        return [self._job(post, priority) for post in posts]

    def _job(self, post: Post, priority: int) -> JobRequest[int]:
        """Builds the embedding job of an article. A pending article's row holds the id of its next job, and
        the job gets this id. Otherwise the job gets a new id."""
        id_ = post.rag_job if post.rag_status == PostStatus.PENDING and post.rag_job else self._posts.new_id()
        return self._embed.using(priority=priority, cost=self._packer.cost(post.content), id=id_).job(post.id)
