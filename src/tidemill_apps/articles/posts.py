"""Articles as rows: what people write, and where their embedding stands.

Who changes a text writes `pending` and the id of the job to come in the same transaction: if the process dies
before the job is sent, the row still says that it is wanted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import msgspec
from msgspec import UNSET, UnsetType
from sqlalchemy import (
    ColumnElement,
    RowMapping,
    String,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeEngine

from tidemill_apps.articles import hiding
from tidemill_apps.common.constraints import cannot_add, explained, unfilled
from tidemill_apps.common.database import Database

_log = logging.getLogger("tidemill_apps")
WHAT = "article"


class Status(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `hide` is '0' or '1'. An article without a text has never had a status."""

    id: int
    title: str
    content: str
    hide: str
    rag_status: str | None
    rag_error: str | None
    rag_version: int
    rag_current: int
    rag_chunks: int
    rag_label: int
    rag_labelled: int
    rag_job: str | None
    rag_run: str | None = None

    @property
    def hidden(self) -> bool:
        return self.hide != "0"

    @property
    def is_new(self) -> bool:
        """Whether its text is another than the one that is searched."""
        return self.rag_version > self.rag_current


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What a change changed: the `text`, which has to be embedded, or only its `label`. `job` is the one that
    the row named before."""

    post: Post
    text: bool
    label: bool
    job: str | None


class Posts:
    """`new_id` makes ids of jobs."""

    def __init__(self, database: Database, table: Table, new_id: Callable[[], str]) -> None:
        self.database, self.table, self.new_id = database, table, new_id
        self._hide_type: TypeEngine[str] = String()
        self._prepared = False

    async def prepare(self) -> None:
        """Create what is missing of the table, once."""
        if not self._prepared:
            await self.database.prepare(self.table.metadata)
            async with self.database.reading() as connection:
                self._hide_type = await connection.run_sync(hiding.type_there, self.table)
                missing = await connection.run_sync(unfilled, self.table)
            if missing and not self._prepared:
                _log.warning("%s", cannot_add(self.table, missing, WHAT))
            self._prepared = True

    async def get(self, post_id: int) -> Post | None:
        return next(iter(await self.many([post_id])), None)

    async def many(self, ids: Iterable[int]) -> list[Post]:
        """Those there are, in the order of their ids."""
        return await self.found(self.table.c.id.in_(list(ids)))

    async def found(self, where: ColumnElement[bool], limit: int | None = None) -> list[Post]:
        await self.prepare()
        async with self.database.reading() as connection:
            query = select(self.table).where(where).order_by(self.table.c.id).limit(limit)
            return [post_of(row) for row in (await connection.execute(query)).mappings()]

    async def recent(self, limit: int = 50) -> list[Post]:
        """The newest first."""
        await self.prepare()
        async with self.database.reading() as connection:
            query = select(self.table).order_by(self.table.c.id.desc()).limit(limit)
            return [post_of(row) for row in (await connection.execute(query)).mappings()]

    async def with_content(self, after: int = 0, limit: int = 500) -> list[int]:
        """Ids of the articles that have a text and are not hidden, from behind `after`."""
        columns = self.table.c
        await self.prepare()
        async with self.database.reading() as connection:
            query = select(columns.id).where(columns.id > after, self.has_text(), self.is_shown())
            return list((await connection.execute(query.order_by(columns.id).limit(limit))).scalars())

    async def counts(self) -> dict[str, int]:
        """Articles by status. Those without one are not counted, nor those that the source calls pending and
        that have never had a text."""
        columns = self.table.c
        meant = or_(self.has_text(), columns.rag_version > 0)
        await self.prepare()
        async with self.database.reading() as connection:
            query = select(columns.rag_status, func.count()).where(meant).group_by(columns.rag_status)
            found = {row[0]: int(row[1]) for row in await connection.execute(query)}
        return {status.value: found.get(status.value, 0) for status in Status}

    async def create(self, title: str, content: str = "", hide: str = "0") -> Post:
        await self.prepare()
        values: dict[str, object] = {"title": title, "content": content}
        values["hide"] = hiding.as_there(hide, self._hide_type)
        if content:
            values |= self._wanted()
        async with explained(self.database, self.table, WHAT), self.database.transaction() as connection:
            made = await connection.execute(
                insert(self.table).values(rag_version=int(bool(content)), **values)
            )
            [post_id] = made.inserted_primary_key or (0,)
            return await self._locked(connection, int(post_id))

    async def change(
        self,
        post_id: int,
        *,
        title: str | UnsetType = UNSET,
        content: str | UnsetType = UNSET,
        hide: str | UnsetType = UNSET,
    ) -> Changed | None:
        """None: there is no such article. What is as it was is not changed."""
        given = {"title": title, "content": content, "hide": hide}
        await self.prepare()
        async with explained(self.database, self.table, WHAT), self.database.transaction() as connection:
            before = await self._locked_or_none(connection, post_id)
            if before is None:
                return None
            new = {
                name: value
                for name, value in given.items()
                if value is not UNSET and value != getattr(before, name)
            }
            text, label = "content" in new, bool(new.keys() & {"title", "hide"})
            if not new:
                return Changed(post=before, text=False, label=False, job=before.rag_job)
            values: dict[str, object] = dict(new)
            if text:
                values |= {"rag_version": before.rag_version + 1, **self._wanted()}
            if "hide" in new:
                values["hide"] = hiding.as_there(new["hide"], self._hide_type)
            if label:
                values["rag_label"] = before.rag_label + 1
            await connection.execute(update(self.table).where(self.table.c.id == post_id).values(values))
            post = await self._locked(connection, post_id)
            return Changed(post=post, text=text, label=label, job=before.rag_job)

    async def delete(self, post_id: int) -> bool:
        await self.prepare()
        async with self.database.transaction() as connection:
            gone = await connection.execute(delete(self.table).where(self.table.c.id == post_id))
            return bool(gone.rowcount)

    async def want(self, ids: Sequence[int]) -> list[Post]:
        """They are pending from here on, for a job to come; those that are being embedded stay as they are.
        Answers all of them that have, or had, a text."""
        columns = self.table.c
        meant = and_(columns.id.in_(ids), or_(self.has_text(), columns.rag_current > 0))
        await self.prepare()
        async with self.database.transaction() as connection:
            query = select(columns.id, columns.rag_status).where(meant).order_by(columns.id)
            found = (await connection.execute(query.with_for_update())).all()
            wanted = [post_id for post_id, status in found if status != Status.PROCESSING]
            if wanted:
                changes = [{"the_id": post_id, **self._wanted()} for post_id in wanted]
                await connection.execute(update(self.table).where(columns.id == bindparam("the_id")), changes)
            rows = await connection.execute(select(self.table).where(meant).order_by(columns.id))
            return [post_of(row) for row in rows.mappings()]

    async def queued(self, jobs: dict[int, str]) -> None:
        """Another job than the row says will embed it: one that was waiting already."""
        columns = self.table.c
        known = and_(columns.id == bindparam("the_id"), columns.rag_status == Status.PENDING)
        changes = [{"the_id": post_id, "rag_job": job} for post_id, job in jobs.items()]
        async with self.database.transaction() as connection:
            await connection.execute(update(self.table).where(known), changes)

    def _wanted(self) -> dict[str, str | None]:
        return {"rag_status": Status.PENDING.value, "rag_error": None, "rag_job": self.new_id()}

    def has_text(self) -> ColumnElement[bool]:
        return func.coalesce(self.table.c.content, "") != ""

    def is_shown(self) -> ColumnElement[bool]:
        return hiding.is_shown(self.table.c.hide)

    async def _locked_or_none(self, connection: AsyncConnection, post_id: int) -> Post | None:
        query = select(self.table).where(self.table.c.id == post_id).with_for_update()
        row = (await connection.execute(query)).mappings().one_or_none()
        return None if row is None else post_of(row)

    async def _locked(self, connection: AsyncConnection, post_id: int) -> Post:
        post = await self._locked_or_none(connection, post_id)
        if post is None:
            raise LookupError(f"there is no article {post_id}")
        return post


def post_of(row: RowMapping) -> Post:
    """An existing table may have nothing where ours has an empty text."""
    values = {name: row[name] for name in Post.__struct_fields__}
    values |= {"title": row["title"] or "", "content": row["content"] or ""}
    values["hide"] = hiding.as_read(row["hide"])
    return Post(**values)
