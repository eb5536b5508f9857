"""Where the embedding of an article stands, as workers write it.

Every write names the version, the job or the run it is about: an edit that came meanwhile is not marked
completed by the run of the old text, a run that was given up does not fail the next one, and one that was
overtaken, or whose article is gone and its id another one's, changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import BindParameter, and_, bindparam, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidemill_apps.articles.posts import Post, Posts, Status, post_of

UNFINISHED = (Status.PENDING.value, Status.PROCESSING.value)


class Finished(msgspec.Struct, frozen=True):
    """A version whose vectors are all written: in so many chunks, with this label, by this run."""

    post_id: int
    version: int
    chunks: int
    label: int
    run: str | None


class Standing:
    def __init__(self, posts: Posts) -> None:
        self._posts, self._database, self._table = posts, posts.database, posts.table

    async def begin(self, jobs: Mapping[int, str]) -> dict[int, Post]:
        """Articles that these jobs are for, as they are now. Those that are not completed are this run's from
        here on, and of a version above the one that is searched, whoever it was that wanted them."""
        columns, run = self._table.c, self._posts.new_id()
        await self._posts.prepare()
        async with self._database.transaction() as connection:
            query = select(self._table).where(columns.id.in_(list(jobs))).order_by(columns.id)
            rows = await connection.execute(query.with_for_update())
            found = [post_of(row) for row in rows.mappings()]
            begun = [
                {"the_id": post.id, "rag_job": jobs[post.id], "rag_version": _version(post), "rag_run": run}
                for post in found
                if post.rag_status != Status.COMPLETED
            ]
            if begun:
                processing = update(self._table).where(columns.id == bindparam("the_id"))
                await connection.execute(processing.values(rag_status=Status.PROCESSING.value), begun)
        return {
            post.id: msgspec.structs.replace(post, rag_version=_version(post), rag_run=run) for post in found
        }

    async def finish(self, finished: Sequence[Finished]) -> set[int]:
        """Their vectors are the ones that are searched from here on; completed are those whose text is still
        the one that was embedded. Answers those that are this run's no longer: nothing is said of them."""
        async with self._database.transaction() as connection:
            runs = await self._runs(connection, [one.post_id for one in finished])
            ours = [one for one in finished if (one.post_id, one.run) in runs.items()]
            if ours:
                await self._finish(connection, ours)
        return {one.post_id for one in finished} - {one.post_id for one in ours}

    async def _runs(self, connection: AsyncConnection, ids: Sequence[int]) -> dict[int, str | None]:
        """In the order of their ids, as all who take many rows: else two could wait for each other."""
        columns = self._table.c
        query = select(columns.id, columns.rag_run).where(columns.id.in_(ids)).order_by(columns.id)
        return {row.id: row.rag_run for row in await connection.execute(query.with_for_update())}

    async def _finish(self, connection: AsyncConnection, finished: Sequence[Finished]) -> None:
        columns = self._table.c
        this = columns.id == bindparam("the_id")
        newer = and_(this, columns.rag_current < bindparam("the_version"))
        same = and_(
            this,
            columns.rag_version == bindparam("the_version"),
            columns.rag_status == Status.PROCESSING.value,
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
        completed = update(self._table).where(same).values(rag_status=Status.COMPLETED.value, rag_error=None)
        await connection.execute(completed, keys)

    async def doubt(self, post: Post) -> bool:
        """A run that had taken it up, as it was then, has written vectors though it is that run's no longer.
        Whether they have to go; if they may have taken the place of others, it is embedded once more."""
        columns = self._table.c
        this = columns.id == post.id
        async with self._database.transaction() as connection:
            rows = await connection.execute(select(self._table).where(this).with_for_update())
            now = next((post_of(row) for row in rows.mappings()), None)
            if now is not None and now.content == post.content:
                return False
            if now is not None and post.rag_version in (now.rag_version, now.rag_current):
                new = {"rag_status": Status.PENDING.value, "rag_job": self._posts.new_id()}
                await connection.execute(update(self._table).where(this).values(new))
            return True

    async def wait(self, job: str, error: str | None) -> None:
        """The job comes back: its article is pending, with what went wrong."""
        await self._settle(job, Status.PENDING, error)

    async def fail(self, job: str, error: str) -> None:
        """The job has ended without success, and no other one is to come."""
        await self._settle(job, Status.FAILED, error)

    async def again(self, posts: Sequence[Post]) -> list[int]:
        """Those whose job is gone, and that are as they were when that was found, get a new one."""
        columns = self._table.c
        ids = []
        async with self._database.transaction() as connection:
            for post in posts:
                same = and_(
                    columns.id == post.id,
                    columns.rag_status == post.rag_status,
                    columns.rag_job.is_not_distinct_from(post.rag_job),
                )
                new = {"rag_status": Status.PENDING.value, "rag_job": self._posts.new_id()}
                if (await connection.execute(update(self._table).where(same).values(new))).rowcount:
                    ids.append(post.id)
        return ids

    async def unfinished(self, after: int = 0, limit: int = 500) -> list[Post]:
        """Pending or processing, with a text that is or was there, from behind `after`."""
        columns = self._table.c
        had_text = or_(self._posts.has_text(), columns.rag_version > 0)
        meant = and_(columns.id > after, columns.rag_status.in_(UNFINISHED), had_text)
        return await self._posts.found(meant, limit)

    async def of_jobs(self, jobs: Sequence[str]) -> list[Post]:
        columns = self._table.c
        return await self._posts.found(
            and_(columns.rag_job.in_(jobs), columns.rag_status.in_(UNFINISHED)), len(jobs)
        )

    async def unlabelled(self, after: int = 0, limit: int = 500) -> list[int]:
        """Ids of articles whose vectors carry a title or a hiding that is no longer true."""
        columns = self._table.c
        meant = and_(columns.id > after, columns.rag_label != columns.rag_labelled, columns.rag_current > 0)
        return [post.id for post in await self._posts.found(meant, limit)]

    async def labelled(self, post: Post) -> bool:
        """The vectors of the version the article had carry the label it had. False: one of them is another by
        now, and it has to be done again."""
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

    async def _settle(self, job: str, status: Status, error: str | None) -> None:
        columns = self._table.c
        held = and_(columns.rag_job == job, columns.rag_status.in_(UNFINISHED))
        async with self._database.transaction() as connection:
            await connection.execute(
                update(self._table).where(held).values(rag_status=status.value, rag_error=error)
            )


def _version(post: Post) -> int:
    """What a run embeds. Whoever sets a row to pending without counting, such as another program that writes
    to the table, gets a version all the same."""
    if post.rag_status == Status.COMPLETED:
        return post.rag_version
    return max(post.rag_version, post.rag_current + 1)
