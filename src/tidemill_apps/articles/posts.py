"""The table of articles, called posts, and its rows. Creates, changes and deletes articles, and marks them
for embedding."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from sqlalchemy import (
    BigInteger,
    Cast,
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    MetaData,
    RowMapping,
    String,
    Table,
    Text,
    and_,
    bindparam,
    cast,
    delete,
    func,
    insert,
    inspect,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeEngine

from tidemill_apps.common.database import (
    Database,
    explain_refused_rows,
    find_unfillable_columns,
    format_cannot_add,
)

NOT_HIDDEN = "0"


def load_hide_type(connection: Connection, table: Table) -> TypeEngine[Any]:
    """Returns the type that the column `hide` has in the database. If another program created the table, the
    type may differ from the type that `create_posts_table` declares."""
    columns = inspect(connection).get_columns(table.name, table.schema)
    return next(column["type"] for column in columns if column["name"] == "hide")


def cast_hide(hide: str, kind: TypeEngine[Any]) -> Cast[Any]:
    """Returns an SQL expression that casts the value `hide` to the column's type `kind`, for writing."""
    return cast(literal(hide, String), kind)


def parse_hide(value: object) -> str:
    return str(int(value)) if isinstance(value, int) else str(value or NOT_HIDDEN)


def is_visible(column: Column[Any]) -> ColumnElement[bool]:
    return func.coalesce(func.nullif(cast(column, String), ""), NOT_HIDDEN).in_((NOT_HIDDEN, "false"))


def create_posts_table(name: str) -> Table:
    """Returns the SQLAlchemy description of the table `name`. It does not create the table in the database.
    Columns for embedding:

    - `rag_version`: a counter that grows with every new text and every repeated embedding.
    - `rag_current`: the version whose vectors search uses; 0 if there is none.
    - `rag_chunks`: the number of chunks of the version `rag_current`.
    - `rag_label`: a counter that grows with every change of title or visibility.
    - `rag_labelled`: the `rag_label` that the vectors carry.
    - `rag_job`: the id of the article's next or last job.
    - `rag_run`: the id of the last embedding run; writes of earlier runs are ignored.
    """
    return Table(
        name,
        MetaData(),
        Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
        Column("title", String, info={"always_set": True}),
        Column("content", Text, info={"always_set": True}),
        Column("hide", String, server_default="0", info={"any_type": True, "always_set": True}),
        Column("rag_status", String),
        Column("rag_error", Text, info={"writes_null": True}),
        Column("rag_version", Integer, nullable=False, server_default="0"),
        Column("rag_current", Integer, nullable=False, server_default="0"),
        Column("rag_chunks", Integer, nullable=False, server_default="0"),
        Column("rag_label", Integer, nullable=False, server_default="0"),
        Column("rag_labelled", Integer, nullable=False, server_default="0"),
        Column("rag_job", String),
        Column("rag_run", String),
        Index(f"{name}_by_rag_status", "rag_status"),
        Index(f"{name}_by_rag_job", "rag_job"),
        sqlite_autoincrement=True,  # else a new article could get the points of a deleted one
    )


_log = logging.getLogger("tidemill_apps")
ROW_NOUN = "article"


class PostStatus(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """One article row. `hide` is '1' for a hidden article, otherwise '0'. `rag_status` is None if the article
    never had a text. The other `rag_` fields are explained at `create_posts_table`."""

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
        """True if the article's version is newer than the version that search uses."""
        return self.rag_version > self.rag_current


class PostUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a change to an article.

    - `text`: True if the text has changed and must be embedded.
    - `label`: True if the title or the visibility has changed.
    - `job`: the job id that the row held before the change.
    """

    post: Post
    text: bool
    label: bool
    job: str | None


class Posts:
    """Reads and writes article rows. `new_id` returns a new job id."""

    def __init__(self, database: Database, table: Table, new_id: Callable[[], str]) -> None:
        self.database, self.table, self.new_id = database, table, new_id
        self._hide_type: TypeEngine[str] = String()
        self._prepared = False

    async def prepare(self) -> None:
        """Creates the tables and columns that are missing in the database. Only the first call does this."""
        if not self._prepared:
            await self.database.prepare(self.table.metadata)
            async with self.database.reading() as connection:
                self._hide_type = await connection.run_sync(load_hide_type, self.table)
                missing = await connection.run_sync(find_unfillable_columns, self.table)
            if missing and not self._prepared:
                _log.warning("%s", format_cannot_add(self.table, missing, ROW_NOUN))
            self._prepared = True

    async def get(self, post_id: int) -> Post | None:
        return next(iter(await self.load([post_id])), None)

    async def load(self, ids: Iterable[int]) -> list[Post]:
        """Returns the articles `ids`, ordered by id. Articles that do not exist are left out."""
        return await self.load_where(self.table.c.id.in_(list(ids)))

    async def load_where(self, where: ColumnElement[bool], limit: int | None = None) -> list[Post]:
        await self.prepare()
        async with self.database.reading() as connection:
            query = select(self.table).where(where).order_by(self.table.c.id).limit(limit)
            return [parse_post(row) for row in (await connection.execute(query)).mappings()]

    async def load_recent(self, limit: int = 50) -> list[Post]:
        """Returns up to `limit` articles, the newest first."""
        await self.prepare()
        async with self.database.reading() as connection:
            query = select(self.table).order_by(self.table.c.id.desc()).limit(limit)
            return [parse_post(row) for row in (await connection.execute(query)).mappings()]

    async def load_ids_with_content(self, after: int = 0, limit: int = 500) -> list[int]:
        """Returns up to `limit` ids, above `after`, of visible articles that have a text."""
        columns = self.table.c
        await self.prepare()
        async with self.database.reading() as connection:
            query = select(columns.id).where(columns.id > after, self.has_text(), self.is_shown())
            return list((await connection.execute(query.order_by(columns.id).limit(limit))).scalars())

    async def count_by_status(self) -> dict[str, int]:
        """Returns the number of articles per status. Articles that never had a text are not counted."""
        columns = self.table.c
        condition = or_(self.has_text(), columns.rag_version > 0)
        await self.prepare()
        found = await self.database.count_by(columns.rag_status, condition)
        return {status.value: found.get(status.value, 0) for status in PostStatus}

    async def create(self, title: str, content: str = "", hide: str = "0") -> Post:
        await self.prepare()
        values: dict[str, object] = {"title": title, "content": content}
        values["hide"] = cast_hide(hide, self._hide_type)
        if content:
            values |= self._pending_columns()
        async with (
            explain_refused_rows(self.database, self.table, ROW_NOUN),
            self.database.transaction() as connection,
        ):
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
    ) -> PostUpdate | None:
        """Writes the given fields and returns what has changed, or None if the article does not exist. A new
        text sets the article to pending, with a new version and job id."""
        given = {"title": title, "content": content, "hide": hide}
        await self.prepare()
        async with (
            explain_refused_rows(self.database, self.table, ROW_NOUN),
            self.database.transaction() as connection,
        ):
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
                return PostUpdate(post=before, text=False, label=False, job=before.rag_job)
            values: dict[str, object] = dict(new)
            if text:
                values |= {"rag_version": before.rag_version + 1, **self._pending_columns()}
            if "hide" in new:
                values["hide"] = cast_hide(new["hide"], self._hide_type)
            if label:
                values["rag_label"] = before.rag_label + 1
            await connection.execute(update(self.table).where(self.table.c.id == post_id).values(values))
            post = await self._locked(connection, post_id)
            return PostUpdate(post=post, text=text, label=label, job=before.rag_job)

    async def delete(self, post_id: int) -> bool:
        await self.prepare()
        async with self.database.transaction() as connection:
            gone = await connection.execute(delete(self.table).where(self.table.c.id == post_id))
            return bool(gone.rowcount)

    async def request_embedding(self, ids: Sequence[int]) -> list[Post]:
        """Sets the articles `ids` to pending, each with a new job id, and returns them. Articles in
        processing are returned unchanged. Articles with neither a text nor vectors are left out."""
        columns = self.table.c
        condition = and_(columns.id.in_(ids), or_(self.has_text(), columns.rag_current > 0))
        await self.prepare()
        async with self.database.transaction() as connection:
            query = select(columns.id, columns.rag_status).where(condition).order_by(columns.id)
            found = (await connection.execute(query.with_for_update())).all()
            wanted = [post_id for post_id, status in found if status != PostStatus.PROCESSING]
            if wanted:
                changes = [{"the_id": post_id, **self._pending_columns()} for post_id in wanted]
                await connection.execute(update(self.table).where(columns.id == bindparam("the_id")), changes)
            rows = await connection.execute(select(self.table).where(condition).order_by(columns.id))
            return [parse_post(row) for row in rows.mappings()]

    async def set_jobs(self, jobs: dict[int, str]) -> None:
        """Stores job ids in the rows of pending articles. `jobs` maps article ids to jobs that already wait
        and will embed these articles."""
        columns = self.table.c
        known = and_(columns.id == bindparam("the_id"), columns.rag_status == PostStatus.PENDING)
        changes = [{"the_id": post_id, "rag_job": job} for post_id, job in jobs.items()]
        async with self.database.transaction() as connection:
            await connection.execute(update(self.table).where(known), changes)

    def _pending_columns(self) -> dict[str, str | None]:
        return {"rag_status": PostStatus.PENDING.value, "rag_error": None, "rag_job": self.new_id()}

    def has_text(self) -> ColumnElement[bool]:
        return func.coalesce(self.table.c.content, "") != ""

    def is_shown(self) -> ColumnElement[bool]:
        return is_visible(self.table.c.hide)

    async def _locked_or_none(self, connection: AsyncConnection, post_id: int) -> Post | None:
        query = select(self.table).where(self.table.c.id == post_id).with_for_update()
        row = (await connection.execute(query)).mappings().one_or_none()
        return None if row is None else parse_post(row)

    async def _locked(self, connection: AsyncConnection, post_id: int) -> Post:
        post = await self._locked_or_none(connection, post_id)
        if post is None:
            raise LookupError(f"there is no article {post_id}")
        return post


def parse_post(row: RowMapping) -> Post:
    """Returns the database row as a `Post`. A NULL title or text becomes an empty text."""
    values = {name: row[name] for name in Post.__struct_fields__}
    values |= {"title": row["title"] or "", "content": row["content"] or ""}
    values["hide"] = parse_hide(row["hide"])
    return Post(**values)
