"""Writes the embedding status of articles. Workers use it.

A run is one attempt to embed an article. Every write checks the version, the job or the run id in the row. So
an outdated run cannot change the status that a later run wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import BindParameter, and_, bindparam, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidemill_apps.articles.posts import Post, Posts, PostStatus, parse_post

UNFINISHED_STATUSES = (PostStatus.PENDING.value, PostStatus.PROCESSING.value)


class FinishedVersion(msgspec.Struct, frozen=True):
    """A version of an article whose vectors are all written.

    - `chunks`: the number of its vectors.
    - `label`: the `rag_label` of the title and visibility that are stored with the vectors.
    - `run`: the id of the run that wrote the vectors.
    """

    post_id: int
    version: int
    chunks: int
    label: int
    run: str | None


class EmbeddingState:
    def __init__(self, posts: Posts) -> None:
        self._posts, self._database, self._table = posts, posts.database, posts.table

    async def begin_run(self, jobs: Mapping[int, str]) -> dict[int, Post]:
        """Marks the articles as processing, with a new run id, and returns them by article id. `jobs` maps
        article ids to job ids. Each returned article has the version number for its new vectors. Completed
        articles are returned unchanged."""
        columns, run = self._table.c, self._posts.new_id()
        await self._posts.prepare()
        async with self._database.transaction() as connection:
            query = select(self._table).where(columns.id.in_(list(jobs))).order_by(columns.id)
            rows = await connection.execute(query.with_for_update())
            found = [parse_post(row) for row in rows.mappings()]
            begun = [
                {
                    "the_id": post.id,
                    "rag_job": jobs[post.id],
                    "rag_version": _version_to_embed(post),
                    "rag_run": run,
                }
                for post in found
                if post.rag_status != PostStatus.COMPLETED
            ]
            if begun:
                processing = update(self._table).where(columns.id == bindparam("the_id"))
                await connection.execute(processing.values(rag_status=PostStatus.PROCESSING.value), begun)
        return {
            post.id: msgspec.structs.replace(post, rag_version=_version_to_embed(post), rag_run=run)
            for post in found
        }

    async def finish(self, finished: Sequence[FinishedVersion]) -> set[int]:
        """Makes search use the new vectors. Marks an article as completed if its text has not changed during
        the run. Returns the ids of articles that were deleted or that another run has taken over."""
        async with self._database.transaction() as connection:
            runs = await self._runs(connection, [one.post_id for one in finished])
            ours = [one for one in finished if (one.post_id, one.run) in runs.items()]
            if ours:
                await self._finish(connection, ours)
        return {one.post_id for one in finished} - {one.post_id for one in ours}

    async def _runs(self, connection: AsyncConnection, ids: Sequence[int]) -> dict[int, str | None]:
        """Locks the rows and returns a mapping from article id to run id. Rows are locked in the order of
        their ids, so that two transactions cannot deadlock."""
        columns = self._table.c
        query = select(columns.id, columns.rag_run).where(columns.id.in_(ids)).order_by(columns.id)
        return {row.id: row.rag_run for row in await connection.execute(query.with_for_update())}

    async def _finish(self, connection: AsyncConnection, finished: Sequence[FinishedVersion]) -> None:
        columns = self._table.c
        this = columns.id == bindparam("the_id")
        newer = and_(this, columns.rag_current < bindparam("the_version"))
        same = and_(
            this,
            columns.rag_version == bindparam("the_version"),
            columns.rag_status == PostStatus.PROCESSING.value,
        )
        rows = [
            {
                "the_id": one.post_id,
                "the_version": one.version,
                "rag_current": one.version,
                "rag_chunks": one.chunks,
                "rag_labelled": one.label,
            }
            for one in finished
        ]
        keys = [{"the_id": one.post_id, "the_version": one.version} for one in finished]
        current: dict[str, BindParameter[Any]] = {
            name: bindparam(name) for name in ("rag_current", "rag_chunks", "rag_labelled")
        }
        await connection.execute(update(self._table).where(newer).values(current), rows)
        completed = (
            update(self._table).where(same).values(rag_status=PostStatus.COMPLETED.value, rag_error=None)
        )
        await connection.execute(completed, keys)

    async def check_overwritten(self, post: Post) -> bool:
        """True if a run that has lost its article to another run must delete its vectors. `post` is the
        article as the run read it. Sets the article to pending if both runs may have written the same
        points."""
        columns = self._table.c
        this = columns.id == post.id
        async with self._database.transaction() as connection:
            rows = await connection.execute(select(self._table).where(this).with_for_update())
            now = next((parse_post(row) for row in rows.mappings()), None)
            if now is not None and now.content == post.content:
                return False
            if now is not None and post.rag_version in (now.rag_version, now.rag_current):
                new = {"rag_status": PostStatus.PENDING.value, "rag_job": self._posts.new_id()}
                await connection.execute(update(self._table).where(this).values(new))
            return True

    async def return_to_pending(self, job: str, error: str | None) -> None:
        """Sets the article of this job back to pending and stores the attempt's error, `error`."""
        await self._settle(job, PostStatus.PENDING, error)

    async def mark_failed(self, job: str, error: str) -> None:
        """Marks the job's article as failed."""
        await self._settle(job, PostStatus.FAILED, error)

    async def requeue(self, posts: Sequence[Post]) -> list[int]:
        """Sets articles to pending, with new job ids, if no other process changed them. Returns their ids."""
        columns = self._table.c
        ids = []
        async with self._database.transaction() as connection:
            for post in posts:
                same = and_(
                    columns.id == post.id,
                    columns.rag_status == post.rag_status,
                    columns.rag_job.is_not_distinct_from(post.rag_job),
                )
                new = {"rag_status": PostStatus.PENDING.value, "rag_job": self._posts.new_id()}
                if (await connection.execute(update(self._table).where(same).values(new))).rowcount:
                    ids.append(post.id)
        return ids

    async def load_unfinished(self, after: int = 0, limit: int = 500) -> list[Post]:
        """Returns up to `limit` pending and processing articles with an id above `after`, ordered by id.
        Articles that never had a text are left out."""
        columns = self._table.c
        had_text = or_(self._posts.has_text(), columns.rag_version > 0)
        condition = and_(columns.id > after, columns.rag_status.in_(UNFINISHED_STATUSES), had_text)
        return await self._posts.load_where(condition, limit)

    async def load_by_jobs(self, jobs: Sequence[str]) -> list[Post]:
        columns = self._table.c
        return await self._posts.load_where(
            and_(columns.rag_job.in_(jobs), columns.rag_status.in_(UNFINISHED_STATUSES)), len(jobs)
        )

    async def load_unlabelled_ids(self, after: int = 0, limit: int = 500) -> list[int]:
        """Returns up to `limit` ids, above `after`, of articles whose vectors carry an outdated title or
        visibility."""
        columns = self._table.c
        condition = and_(
            columns.id > after, columns.rag_label != columns.rag_labelled, columns.rag_current > 0
        )
        return [post.id for post in await self._posts.load_where(condition, limit)]

    async def mark_labelled(self, post: Post) -> bool:
        """Records that the vectors carry the title and visibility of `post`. Returns False if the article has
        changed meanwhile; the caller must then write title and visibility again."""
        columns = self._table.c
        same = and_(
            columns.id == post.id,
            columns.rag_current == post.rag_current,
            columns.rag_label == post.rag_label,
        )
        async with self._database.transaction() as connection:
            done = await connection.execute(
                update(self._table).where(same).values(rag_labelled=post.rag_label)
            )
            return bool(done.rowcount)

    async def _settle(self, job: str, status: PostStatus, error: str | None) -> None:
        columns = self._table.c
        held = and_(columns.rag_job == job, columns.rag_status.in_(UNFINISHED_STATUSES))
        async with self._database.transaction() as connection:
            await connection.execute(
                update(self._table).where(held).values(rag_status=status.value, rag_error=error)
            )


def _version_to_embed(post: Post) -> int:
    """Returns the version number for the vectors of the article's text. A completed article keeps its
    version. For other articles the number is higher than the version that search uses."""
    if post.rag_status == PostStatus.COMPLETED:
        return post.rag_version
    return max(post.rag_version, post.rag_current + 1)
