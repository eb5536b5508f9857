"""Repairs differences between the article rows, their jobs and their stored vectors.

`reconcile` compares the rows with their jobs. `sweep` compares the stored vectors with the rows."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from sqlalchemy import select

from tidemill import ConfigurationError, Job, PeriodicFunction, QueueFull, State, StoreError, Tidemill
from tidemill.telemetry.events import JobFailed, JobReclaimed, JobReleased, JobRetrying
from tidemill_apps.articles.embed_requests import BULK_PRIORITY, CHANGED_PRIORITY, EmbeddingRequests
from tidemill_apps.articles.embedding_state import EmbeddingState
from tidemill_apps.articles.posts import Post, Posts, PostStatus
from tidemill_apps.articles.qdrant import UNAVAILABLE_RETRY_SECONDS
from tidemill_apps.articles.vectors import ArticleVectors, build_label
from tidemill_apps.common.database import slice_items
from tidemill_apps.common.status import load_jobs

MIN_SUSPICIOUS_ARTICLES = 10
SUSPICIOUS_SHARE = 0.2


class VectorSweep(msgspec.Struct, frozen=True):
    """The result of one comparison of stored vectors with article rows.

    - `deleted_points`: the number of deleted points (stored vectors).
    - `mislabelled`: ids of articles whose points carry an outdated title or visibility.
    - `completed`: the number of completed visible articles.
    - `without_vectors`: the completed articles that lack vectors.
    """

    deleted_points: int
    mislabelled: set[int]
    completed: int
    without_vectors: list[Post]

    @property
    def is_plausible(self) -> bool:
        """True if the articles that lack vectors may be embedded again without an operator. False if they are
        more than 10, and more than a fifth of the completed articles: the collection may be the wrong one."""
        return len(self.without_vectors) <= max(MIN_SUSPICIOUS_ARTICLES, SUSPICIOUS_SHARE * self.completed)


class _CompletedRow(msgspec.Struct, frozen=True):
    version: int
    chunks: int
    job: str | None


async def sweep_vectors(vectors: ArticleVectors, posts: Posts) -> VectorSweep:
    """Deletes stale points (stored vectors). Returns the articles that need a repair."""
    deleted, mislabelled = 0, set[int]()
    completed, points = await _load_completed_rows(posts), Counter[tuple[int, int]]()
    # Completed rows are read before the points, so a missing point is really missing. The rows of a page
    # are read after the page, so they include the changes of the run that wrote its points.
    async for page in vectors.load_pages():
        rows = {
            post.id: post for post in await posts.load({_point_payload(point)["postId"] for point in page})
        }
        stale = [point for point in page if _is_stale(_point_payload(point), rows)]
        await vectors.delete(str(point.id) for point in stale)
        deleted += len(stale)
        mislabelled |= {
            _point_payload(point)["postId"] for point in page if _is_mislabelled(_point_payload(point), rows)
        }
        points.update(
            (_point_payload(point)["postId"], _point_payload(point).get("version", 0)) for point in page
        )
    lacking = [
        id_ for id_, row in completed.items() if points[id_, row.version] < (row.chunks or not row.version)
    ]
    unchanged = [post for post in await posts.load(lacking) if completed[post.id] == _completed_row(post)]
    return VectorSweep(deleted, mislabelled, len(completed), unchanged)


async def _load_completed_rows(posts: Posts) -> dict[int, _CompletedRow]:
    """Returns a mapping from id to article, for completed visible articles, without their texts. Hidden
    articles are left out, because search never finds them."""
    columns = posts.table.c
    wanted = (columns.id, columns.rag_current, columns.rag_chunks, columns.rag_job)
    condition = (columns.rag_status == PostStatus.COMPLETED.value, posts.has_text(), posts.is_shown())
    query = select(*wanted).where(*condition)
    await posts.prepare()
    async with posts.database.reading() as connection:
        return {row[0]: _CompletedRow(*row[1:]) for row in await connection.execute(query)}


def _completed_row(post: Post) -> _CompletedRow | None:
    if post.rag_status != PostStatus.COMPLETED:
        return None
    return _CompletedRow(post.rag_current, post.rag_chunks, post.rag_job)


def _point_payload(point: Any) -> dict[str, Any]:
    return point.payload or {}


def _is_stale(payload: dict[str, Any], posts: dict[int, Post]) -> bool:
    """True if the point with this `payload` must be deleted. `posts` maps article ids to articles. A point
    with a newer version is kept while a run may still be writing it."""
    post, version = posts.get(payload["postId"]), payload.get("version", 0)
    if post is None or version < post.rag_current:
        return True
    if version > post.rag_current:
        return post.rag_status in (None, PostStatus.COMPLETED)
    return bool(version and payload["chunkIndex"] >= post.rag_chunks)


def _is_mislabelled(payload: dict[str, Any], posts: dict[int, Post]) -> bool:
    """True if the point with this `payload` carries an outdated title or visibility. False if the row already
    records that its points are outdated: `reconcile` then enqueues a job that corrects them."""
    post = posts.get(payload["postId"])
    if post is None or not post.rag_current or post.rag_label != post.rag_labelled:
        return False
    error = {name: payload.get(name) for name in build_label(post)}
    return payload.get("version", 0) == post.rag_current and error != build_label(post)


_log = logging.getLogger("tidemill_apps")

ROWS_PER_PAGE = 200
JobReturnEvent = JobRetrying | JobFailed | JobReleased | JobReclaimed


class PostReconciler:
    def __init__(
        self, app: Tidemill, posts: Posts, vectors: ArticleVectors, requests: EmbeddingRequests, task: str
    ) -> None:
        self._app, self._posts, self._vectors, self._requests = app, posts, vectors, requests
        self._state, self._task = EmbeddingState(posts), task
        self._returned_jobs: set[str] = set()
        self._sent: set[str] = set()
        """Ids of jobs that the last two passes enqueued because their rows had none."""
        self._without_vectors = 0
        self._sweep_error = ""
        self._check_returned: PeriodicFunction[None] | None = None
        app.on(JobRetrying, JobFailed, JobReleased, JobReclaimed)(self._job_returned)

    def declare_periodics(self, reconcile_seconds: float, sweep_seconds: float) -> None:
        """Declares the periodic functions. One worker compares all rows and all vectors. Each worker also
        checks single articles, as soon as it has retried, failed, released or reclaimed their job."""
        app = self._app
        app.periodic("articles reconcile", every=reconcile_seconds)(self.reconcile)
        self._check_returned = app.periodic(
            "articles returned jobs", every=reconcile_seconds, on_every_worker=True
        )(self.reconcile_returned_jobs)
        retry = min(sweep_seconds, UNAVAILABLE_RETRY_SECONDS)
        app.periodic("articles sweep", every=sweep_seconds, retry_in=retry)(self._sweep_and_log_error)

    async def _sweep_and_log_error(self) -> None:
        """Calls `sweep`. Each call also shows this process whether Qdrant is available."""
        try:
            await self.sweep()
        except (StoreError, ConfigurationError) as error:  # of the job store, the database or Qdrant
            if str(error) != self._sweep_error:
                _log.warning("%s; vectors are swept later", error)
            self._sweep_error = str(error)
            raise
        self._sweep_error = ""

    async def sweep(self) -> int:
        """Deletes stale points and returns their number. Also enqueues jobs that correct outdated titles and
        visibilities. Completed articles that lack vectors are embedded again."""
        swept = await sweep_vectors(self._vectors, self._posts)
        ids = sorted(swept.mislabelled)
        for some in slice_items(ids, ROWS_PER_PAGE):
            await self._requests.refresh_payloads(some)
        await self._embed_again(swept)
        return swept.deleted_points

    async def _embed_again(self, swept: VectorSweep) -> None:
        """Enqueues the embedding of completed articles that lack vectors. If suspiciously many articles lack
        vectors (see `VectorSweep.is_plausible`), it only logs a warning."""
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

    async def reconcile(self) -> None:
        """Compares every pending or processing article with its job, and corrects the article's status or
        enqueues a missing job. Also enqueues jobs that write new titles and visibilities to the vectors."""
        before, after = set(self._sent), 0
        while rows := await self._state.load_unfinished(after, ROWS_PER_PAGE):
            await self._compare_with_jobs(rows)
            after = rows[-1].id
        self._sent -= before
        after = 0
        while ids := await self._state.load_unlabelled_ids(after, ROWS_PER_PAGE):
            await self._requests.refresh_payloads(ids)
            after = ids[-1]

    async def reconcile_returned_jobs(self) -> None:
        """Finds the jobs that were retried, failed, released or reclaimed in this process since the last
        call. Compares each of these jobs with its article, and corrects the article's status."""
        returned, self._returned_jobs = list(self._returned_jobs), set()
        for some in slice_items(returned, ROWS_PER_PAGE):
            await self._compare_with_jobs(await self._state.load_by_jobs(some))

    async def _compare_with_jobs(self, rows: Sequence[Post]) -> None:
        jobs = await load_jobs(self._app, [row.rag_job for row in rows if row.rag_job])
        unsent, gone = [], []
        for row in rows:
            job = jobs.get(row.rag_job or "")
            if (
                job is None
                and row.rag_status == PostStatus.PENDING
                and row.rag_job not in (None, *self._sent)
            ):
                unsent.append(row)
            elif job is None or job.state is State.DONE:
                gone.append(row)
            else:
                await self._compare_with_job(row, job)
        await self._send_unsent(unsent)
        await self._send_again(gone)

    async def _compare_with_job(self, row: Post, job: Job) -> None:
        error = None if job.error is None else job.error.message
        match job.state:
            case State.RUNNING:
                pass
            case State.FAILED:
                await self._state.mark_failed(job.id, error or job.reason or "failed")
            case State.CANCELLED:
                await self._state.mark_failed(job.id, f"cancelled: {job.reason or 'no reason was given'}")
            case _ if row.rag_status == PostStatus.PROCESSING or (error and row.rag_error is None):
                await self._state.return_to_pending(job.id, error)
            case _:
                pass

    async def _send_unsent(self, rows: Sequence[Post]) -> None:
        """Enqueues the jobs whose ids are stored in these rows. Two processes may do so at the same time: the
        store keeps one job per id."""
        async for fitting, priority in self._rows_that_fit(rows):
            with suppress(QueueFull):  # another process was faster; the next pass tries again
                await self._requests.send(fitting, priority)
                self._sent.update(row.rag_job for row in fitting if row.rag_job)

    async def _send_again(self, rows: Sequence[Post]) -> None:
        """Gives each of these rows a new job id and enqueues the job."""
        async for fitting, priority in self._rows_that_fit(rows):
            if ids := await self._state.requeue(fitting):
                with suppress(QueueFull):
                    await self._requests.send(await self._posts.load(ids), priority)

    async def _rows_that_fit(self, rows: Sequence[Post]) -> AsyncIterator[tuple[list[Post], int]]:
        """Yields pairs (rows, priority): first the rows with a new text, then the rows to embed again. Each
        pair has at most as many rows as the queue still accepts."""
        new, again = [row for row in rows if row.is_new], [row for row in rows if not row.is_new]
        for priority, some in ((CHANGED_PRIORITY, new), (BULK_PRIORITY, again)):
            if some and (fitting := some[: await self._requests.room()]):
                yield fitting, priority

    def _job_returned(self, event: JobReturnEvent) -> None:
        if event.task == self._task and self._check_returned is not None:
            self._returned_jobs.add(event.job)
            self._check_returned.wake()
