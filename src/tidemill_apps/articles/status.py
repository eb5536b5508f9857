"""The status and progress of embedding, as JSON and as an event stream. Also says why nothing is embedded
now."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tidemill import Filter, Job, State
from tidemill.web import EventStream, HTTPError, RouteRequest
from tidemill_apps.articles.embedding_triggers import MAX_POST_ID
from tidemill_apps.articles.post_summaries import PostSummaries, PostSummary
from tidemill_apps.articles.qdrant import QDRANT, SETTING_PREFIX
from tidemill_apps.articles.service import MESSAGES, Articles
from tidemill_apps.common.status import (
    LIVE_STATES,
    WAITING_STATES,
    ProviderCallBlock,
    count_jobs,
    find_call_block,
)


class EmbeddingAvailability:
    def __init__(self, articles: Articles) -> None:
        self._articles, self._summaries = articles, PostSummaries(articles.posts)

    async def call_block(self) -> ProviderCallBlock | None:
        return await find_call_block(self._articles.app, self._articles.pool.name)

    async def qdrant_problem(self) -> str | None:
        """Returns a text that says what is wrong with Qdrant; None if no problem is known. It uses the last
        call of this process, if that is less than 60 s old. Otherwise it uses jobs and articles that wait
        because of Qdrant."""
        check = self._articles.vectors.last_check()
        if check is not None:
            return check.problem
        app = self._articles.app
        if await count_jobs(app, self._articles.queue, LIVE_STATES):
            for dependency in await app.inspect.dependencies():
                if dependency.name == QDRANT and dependency.is_away:
                    return dependency.problem
        return await self._summaries.find_retry_error(SETTING_PREFIX)

    async def reason(self) -> str | None:
        closed = await self.call_block()
        return await self.qdrant_problem() if closed is None else closed.reason


MAX_TASKS_LISTED = 100
"""Maximum length of each list."""
MAX_JOBS_SORTED = 10_000
"""Maximum number of waiting jobs to sort; beyond that, the newest."""
SLOW_READ_SECONDS, CACHE_TIME_FACTOR = 0.05, 20
"""A query slower than SLOW_READ_SECONDS is cached for CACHE_TIME_FACTOR times its duration."""


class QueuedPost(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An article that waits for embedding. `add_time` is the job's creation time in milliseconds, as in the
    API that this application replaces."""

    post_id: int
    title: str
    hide: str
    priority: int
    add_time: int


class RunningPost(QueuedPost, frozen=True, kw_only=True, rename="camel"):
    """An article that is being embedded. `fraction` is the progress from 0 to 1. `note` says what the job
    does now."""

    fraction: float | None
    note: str | None


class EmbeddingQueueStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of the embedding queue.

    - `queue_length`, `processing_count`: the number of waiting jobs, and of running jobs.
    - `queue_tasks`, `processing_tasks`: at most 100 of the waiting jobs, and of the running jobs.
    - `queue_shown`, `processing_shown`: the lengths of these two lists.
    - `blocked_reason`: why nothing is embedded now; None if nothing blocks.
    """

    queue_length: int
    processing_count: int
    queue_tasks: tuple[QueuedPost, ...]
    processing_tasks: tuple[RunningPost, ...]
    queue_shown: int
    processing_shown: int
    blocked_reason: str | None


class EmbeddingQueue:
    def __init__(self, articles: Articles) -> None:
        self._app, self._queue = articles.app, articles.queue
        self._summaries, self._availability = PostSummaries(articles.posts), EmbeddingAvailability(articles)
        self._lock = asyncio.Lock()
        self._next_jobs: tuple[Job, ...] = ()
        self._cached_until = 0.0

    async def status(self) -> EmbeddingQueueStatus:
        counts = (await self._app.inspect.counts()).get(self._queue, {})
        waiting = sum(counts.get(state, 0) for state in WAITING_STATES)
        running = await self.running()
        begun = {job.id for job in running}
        first = [job for job in await self.load_next() if job.id not in begun] if waiting else []
        shown = await self._summaries.load({parse_job_post_id(job) for job in (*first, *running)})
        tasks = tuple(
            QueuedPost(**_task_fields(job, shown)) for job in first if parse_job_post_id(job) in shown
        )
        runs = tuple(
            RunningPost(**_task_fields(job, shown), fraction=job.progress, note=job.note)
            for job in running
            if parse_job_post_id(job) in shown
        )
        return EmbeddingQueueStatus(
            queue_length=waiting,
            processing_count=counts.get(State.RUNNING, 0),
            queue_tasks=tasks,
            processing_tasks=runs,
            queue_shown=len(tasks),
            processing_shown=len(runs),
            blocked_reason=await self._availability.reason(),
        )

    async def running(self) -> tuple[Job, ...]:
        """Returns the running jobs, the oldest start first."""
        wanted = Filter(queue=self._queue, states=(State.RUNNING,))
        page = await self._app.inspect.find(wanted, limit=MAX_TASKS_LISTED)
        return tuple(sorted(page.jobs, key=lambda job: (job.started or 0.0, job.seq)))

    async def load_next(self) -> tuple[Job, ...]:
        """Returns the next waiting jobs, at most 100, in the order of their claims. Only the newest 10,000
        jobs are sorted. The result of a slow query is reused for some time."""
        async with self._lock:
            began = self._app.clock.boot()
            if began >= self._cached_until:
                wanted = Filter(queue=self._queue, states=WAITING_STATES)
                page = await self._app.inspect.find(wanted, limit=MAX_JOBS_SORTED, scan_limit=MAX_JOBS_SORTED)
                self._next_jobs = tuple(sorted(page.jobs, key=_claim_order)[:MAX_TASKS_LISTED])
                took = self._app.clock.boot() - began
                self._cached_until = began + CACHE_TIME_FACTOR * took if took > SLOW_READ_SECONDS else 0.0
            return self._next_jobs


def parse_job_post_id(job: Job) -> int:
    """Returns the article id in the payload of an embedding job."""
    return msgspec.json.decode(job.payload, type=_EmbedPayload).item


class _EmbedPayload(msgspec.Struct, frozen=True):
    item: int


def _claim_order(job: Job) -> tuple[bool, int, float, int]:
    """Returns a sort key that puts jobs in the order of their claims: ready jobs before scheduled jobs, then
    by priority, due time and age."""
    return (
        job.state is not State.READY,
        job.priority,
        job.due if job.state is State.SCHEDULED else 0.0,
        job.seq,
    )


def _task_fields(job: Job, shown: Mapping[int, PostSummary]) -> dict[str, Any]:
    line = shown[parse_job_post_id(job)]
    return {
        "post_id": line.id,
        "title": line.title,
        "hide": line.hide,
        "priority": job.priority,
        "add_time": int(job.created * 1000),
    }


class EmbeddingProgressQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query of the progress stream. `post` is the id of one article; without it the stream reports all
    articles."""

    post: Annotated[int, Meta(ge=1, le=MAX_POST_ID)] | None = None


class EmbeddingCounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of articles per `rag_status`. `fraction` is the share of articles that have completed or
    failed, from 0 to 1. `blocked_reason` says why nothing is embedded now, or is None."""

    pending: int
    processing: int
    completed: int
    failed: int
    total: int
    fraction: float
    blocked_reason: str | None


class PostProgress(msgspec.Struct, frozen=True, kw_only=True, rename={"post_id": "postId"}):
    post_id: int
    title: str
    rag_status: str | None
    rag_error: str | None
    fraction: float | None


class EmbeddingProgress:
    def __init__(self, articles: Articles) -> None:
        self._posts, self._availability = articles.posts, EmbeddingAvailability(articles)
        self._summaries, self._queue = PostSummaries(articles.posts), EmbeddingQueue(articles)

    async def follow(self, request: RouteRequest) -> EventStream:
        """Returns an event stream of the progress of all articles, or of the one article in the query. Raises
        HTTPError 404 if that article does not exist."""
        watched: int | None = request.query.post
        last = request.headers.get("last-event-id")
        if watched is None:
            return EventStream(request.live_views.watch(("articles", "progress"), self._all, last))
        if not await self._summaries.load([watched]):
            raise HTTPError(404, MESSAGES.translate(request.language, "unknown", post=watched), field="post")

        async def make() -> dict[str, str]:
            return {"post": _encode_json(await self.load_post(watched))}

        return EventStream(request.live_views.watch(("articles", "progress", watched), make, last))

    async def counts(self) -> EmbeddingCounts:
        found = await self._posts.count_by_status()
        total = sum(found.values())
        ended = found["completed"] + found["failed"]
        return EmbeddingCounts(
            **found,
            total=total,
            fraction=round(ended / total, 4) if total else 1.0,
            blocked_reason=await self._availability.reason(),
        )

    async def processing(self) -> tuple[RunningPost, ...]:
        return (await self._queue.status()).processing_tasks

    async def load_post(self, post_id: int) -> PostProgress:
        line = (await self._summaries.load([post_id])).get(post_id)
        job = next((job for job in await self._queue.running() if parse_job_post_id(job) == post_id), None)
        return _build_post_progress(post_id, line, job)

    async def _all(self) -> dict[str, str]:
        return {
            "counts": _encode_json(await self.counts()),
            "processing": _encode_json(await self.processing()),
        }


def _build_post_progress(post_id: int, line: PostSummary | None, job: Job | None) -> PostProgress:
    """Returns the progress of one article. `line` is the article's row, or None if the article was deleted.
    `job` is the article's running job, or None."""
    done = line is not None and line.rag_status == "completed"
    return PostProgress(
        post_id=post_id,
        title=line.title if line else "",
        rag_status=line.rag_status if line else None,
        rag_error=line.rag_error if line else None,
        fraction=job.progress if job else (1.0 if done else None),
    )


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
