"""A table of another program with more required columns than articles have (X8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, UniqueConstraint, func, insert, select, text

from tests.apps.articles.web_kit import Blog, blog_in
from tidemill_apps.common.database import Database

WANTS = "category must have a value and has no default"


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'articles.db'}"
    return str(request.getfixturevalue("postgres_url"))


def table_with(*more: Column[str] | UniqueConstraint) -> Table:
    ours = (Column(name, Text) for name in ("title", "content", "hide", "rag_status"))
    return Table("tb_post", MetaData(), Column("id", Integer, primary_key=True), *ours, *more)


async def make(place: str, table: Table, *rows: dict[str, str]) -> None:
    database = Database(place)
    async with database.transaction() as connection:
        await connection.run_sync(table.metadata.create_all)
        for row in rows:
            await connection.execute(insert(table).values(row))
    await database.close()


async def refused(blog: Blog, title: str = "新文") -> str:
    answer = await blog.call("POST", "/api/post", {"title": title, "content": "内容"})
    assert (answer.status, answer.json["status"]) == (409, False), answer.text
    message: str = answer.json["message"]
    return message


async def rows_of(blog: Blog) -> int:
    async with blog.articles.posts.database.reading() as connection:
        counted = await connection.execute(select(func.count()).select_from(blog.articles.posts.table))
        return int(counted.scalar_one())


async def test_a_foreign_not_null_column_is_reported_at_start_and_on_create(
    tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    category = Column("category", Text, nullable=False)
    row = {"title": "旧文", "content": "内容", "hide": "0", "rag_status": "pending", "category": "生活"}
    await make(place, table_with(category), row)
    async with blog_in(tmp_path, database_url=place) as blog:
        await blog.articles.posts.prepare()
        assert [message for message in caplog.messages if WANTS in message]
        refusal = await refused(blog)
        assert WANTS in refusal
        assert "give such a column a default" in refusal
        assert (await rows_of(blog), await waiting(blog)) == (1, 0)
        page = await blog.call("POST", "/articles/create", b"title=t", **FORM)
        assert page.status == 409
        async with blog.run_worker():  # articles of the other program are embedded as before
            await blog.articles.reconciler.reconcile()
            await blog.wait_until_embedded(1)


FORM = {"content_type": "application/x-www-form-urlencoded"}


async def waiting(blog: Blog) -> int:
    answer = await blog.call("GET", "/api/embedding/queue/status")
    length: int = answer.json["data"]["queueLength"]
    return length


async def test_columns_that_the_database_fills_are_in_nobodys_way(
    tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    await make(
        place,
        table_with(Column("category", Text, nullable=False, server_default="生活"), Column("tag", Text)),
    )
    async with blog_in(tmp_path, database_url=place) as blog:
        assert await blog.write() == 1
        assert not [message for message in caplog.messages if "has no default" in message]


async def test_a_default_that_is_given_later_needs_no_restart(tmp_path: Path, postgres_url: str) -> None:
    await make(postgres_url, table_with(Column("category", Text, nullable=False)))
    async with blog_in(tmp_path, database_url=postgres_url) as blog:
        await refused(blog)
        async with blog.articles.posts.database.transaction() as connection:
            await connection.execute(text("ALTER TABLE tb_post ALTER category SET DEFAULT '生活'"))
        await blog.write()


async def test_a_violated_constraint_is_409_and_changes_nothing(tmp_path: Path, place: str) -> None:
    await make(place, table_with(UniqueConstraint("title", name="one_title")))
    async with blog_in(tmp_path, database_url=place) as blog:
        await blog.write("同名")
        other = await blog.write("另一篇")
        message = await refused(blog, "同名")
        assert message.startswith("the table tb_post does not take this article: ")
        assert "title" in message
        answer = await blog.call("PATCH", f"/api/post/{other}", {"title": "同名", "content": "改了"})
        assert (answer.status, answer.json["status"]) == (409, False)
        kept = (await blog.call("GET", f"/api/post/{other}")).json["data"]
        assert (kept["title"], kept["content"]) == ("另一篇", "潮水带动石磨。")
        assert await rows_of(blog) == 2


async def test_the_error_of_an_update_does_not_mention_a_not_null_column(tmp_path: Path, place: str) -> None:
    rows = [{"title": title, "content": "内容", "category": "生活"} for title in ("一", "二")]
    category = Column("category", Text, nullable=False)
    await make(place, table_with(category, UniqueConstraint("title", name="one_title")), *rows)
    async with blog_in(tmp_path, database_url=place) as blog:
        answer = await blog.call("PATCH", "/api/post/2", {"title": "一"})
        assert answer.status == 409
        assert "category" not in answer.json["message"]
