"""Rows: an existing table is used unchanged (X8), and versions are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Boolean,
    Column,
    Integer,
    MetaData,
    Table,
    Text,
    func,
    insert,
    inspect,
    literal_column,
    select,
    table,
    update,
)

from tests.apps.articles.service_kit import bench_in, until
from tidemill import ConfigurationError, Tidemill
from tidemill_apps.articles.embedding_state import EmbeddingState, FinishedVersion
from tidemill_apps.articles.post_summaries import PostSummaries
from tidemill_apps.articles.posts import Posts, create_posts_table
from tidemill_apps.articles.service import Articles
from tidemill_apps.articles.settings import ArticlesSettings, load_settings
from tidemill_apps.common.database import Database


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'articles.db'}"
    return str(request.getfixturevalue("postgres_url"))


def posts_at(place: str) -> Posts:
    ids = iter(f"job-{number}" for number in range(1_000))
    return Posts(Database(place), create_posts_table("tb_post"), lambda: next(ids))


async def test_a_table_of_the_source_gets_what_it_lacks_and_keeps_what_it_has(
    tmp_path: Path, place: str
) -> None:
    source = Table(
        "my_posts",
        MetaData(),
        Column("id", Integer, primary_key=True),
        *(Column(name, Text) for name in ("title", "content", "hide", "rag_status", "rag_error", "category")),
    )
    database = Database(place)
    rows: list[dict[str, Any]] = [
        {
            "id": 7,
            "title": "旧文",
            "content": "内容",
            "hide": "0",
            "rag_status": "pending",
            "category": "生活",
        },
        {"id": 8, "title": None, "content": None, "hide": None, "rag_status": "pending", "category": None},
        {"id": 9, "title": "藏", "content": "秘密", "hide": "1", "rag_status": "completed", "category": None},
    ]
    async with database.transaction() as connection:
        await connection.run_sync(source.metadata.create_all)
        await connection.execute(insert(source), rows)
    async with bench_in(tmp_path, table="my_posts", database_url=place) as bench:
        async with bench.run_worker():
            [done] = await bench.wait_until_settled(7)
            assert (done.rag_status, done.rag_current) == ("completed", 1)
            assert await bench.found("内容") == [7]
        assert bench.calls[0] == ["内容"]
        nothing, hidden = await bench.post(8), await bench.post(9)
        assert (nothing.title, nothing.content, nothing.hide) == ("", "", "0")
        assert (hidden.rag_status, hidden.rag_current) == ("completed", 0)
        assert await bench.posts.load_ids_with_content() == [7]
    async with database.reading() as connection:
        kept = (await connection.execute(select(source.c.category).order_by(source.c.id))).scalars().all()
        names = await connection.run_sync(
            lambda sync: [c["name"] for c in inspect(sync).get_columns("my_posts")]
        )
    assert kept == ["生活", None, None]
    assert names[:7] == [column.name for column in source.columns]
    await database.close()


async def test_a_run_of_the_old_text_does_not_complete_the_new_one(place: str) -> None:
    posts = posts_at(place)
    embedding_state = EmbeddingState(posts)
    post = await posts.create("磨坊", "第一版")
    begun = (await embedding_state.begin_run({post.id: "a"}))[post.id]
    await posts.change(post.id, content="第二版")
    await embedding_state.finish([FinishedVersion(post.id, begun.rag_version, 1, 0, begun.rag_run)])
    now = await posts.get(post.id)
    assert now is not None
    assert (now.rag_status, now.rag_version, now.rag_current) == ("pending", 2, 1)
    await embedding_state.mark_failed("a", "the old run failed")
    assert (await posts.get(post.id)) == now
    await embedding_state.begin_run({post.id: "b"})
    thought_dead = FinishedVersion(post.id, begun.rag_version, 1, 0, begun.rag_run)
    assert await embedding_state.finish([thought_dead]) == {post.id}
    assert [one.rag_status for one in await posts.load([post.id])] == ["processing"]
    await posts.database.close()


async def test_a_row_that_another_program_sets_to_pending_gets_a_version(place: str) -> None:
    posts = posts_at(place)
    embedding_state = EmbeddingState(posts)
    post = await posts.create("磨坊", "第一版")
    begun = (await embedding_state.begin_run({post.id: "a"}))[post.id]
    await embedding_state.finish([FinishedVersion(post.id, begun.rag_version, 1, 0, begun.rag_run)])
    assert (await embedding_state.begin_run({post.id: "b"}))[post.id].rag_status == "completed"
    [wanted] = await posts.request_embedding([post.id])
    assert (wanted.rag_status, wanted.rag_version) == ("pending", 1)
    assert (await embedding_state.begin_run({post.id: "c"}))[post.id].rag_version == 2
    await posts.database.close()


async def test_rows_are_written_found_counted_and_deleted(place: str) -> None:
    posts = posts_at(place)
    one = await posts.create("一", "内容")
    two = await posts.create("二")
    assert (one.rag_status, one.rag_job, two.rag_status) == ("pending", "job-0", None)
    assert [post.id for post in await posts.load_recent()] == [two.id, one.id]
    assert await posts.count_by_status() == {"pending": 1, "processing": 0, "completed": 0, "failed": 0}
    changed = await posts.change(two.id, title="贰", content="新的", hide="1")
    assert changed is not None
    assert (changed.text, changed.label, changed.post.hidden) == (True, True, True)
    assert changed.post.rag_label > changed.post.rag_labelled
    assert await posts.load_ids_with_content() == [one.id]
    again = await EmbeddingState(posts).requeue([one])
    assert again == [one.id]
    assert await EmbeddingState(posts).requeue([one]) == []  # the row has changed
    assert await posts.delete(one.id)
    assert await posts.get(one.id) is None
    await posts.database.close()


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ARTICLES_CHUNK_OVERLAP", "250", "less than half of ARTICLES_CHUNK_TOKENS, 500, is 250"),
        ("ARTICLES_TOKENS_PER_CALL", "400", "ARTICLES_TOKENS_PER_CALL: must be 500 or more"),
        ("ARTICLES_TOKENS_PER_WINDOW", "1000", "ARTICLES_TOKENS_PER_CALL: must be at most"),
        ("ARTICLES_TABLE", "a; drop", "ARTICLES_TABLE: must be the name of a table"),
        ("ARTICLES_INPUTS_PER_CALL", "0", "ARTICLES_INPUTS_PER_CALL: must be a whole number of 1 or more"),
        ("ARTICLES_QDRANT_URL", "localhost:6333", "ARTICLES_QDRANT_URL: must be an address that begins with"),
        ("ARTICLES_NIGHTLY_ZONE", "Mars", "ARTICLES_NIGHTLY_ZONE: 'Mars' is not in the time zone database"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(variable: str, value: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message.replace(".", r"\.")):
        load_settings({variable: value})


def test_a_night_that_is_none_names_its_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"^ARTICLES_NIGHTLY: '0 3 \* \*' is not a cron expression"):
        Articles(Tidemill("memory://"), ArticlesSettings(nightly="0 3 * *"))


def test_settings_come_from_the_environment_and_hide_secrets() -> None:
    settings = load_settings(
        {"ARTICLES_TABLE": "posts", "ARTICLES_QDRANT_KEY": "hush", "OPENAI_API_KEY": "no"}
    )
    assert (settings.table, settings.qdrant_key, settings.embeddings.key) == ("posts", "hush", "")
    assert "hush" not in repr(settings)
    assert ArticlesSettings() == load_settings({})


KINDS: dict[str, tuple[type, list[Any]]] = {
    "numbers": (Integer, [0, 1, None]),
    "truth values": (Boolean, [False, True, None]),
    "texts": (Text, ["0", "1", ""]),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_hiding_is_read_and_written_as_an_existing_table_has_it(place: str, kind: str) -> None:
    column, values = KINDS[kind]
    there = Table(
        "tb_post",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("title", Text),
        Column("content", Text),
        Column("hide", column),
    )
    database = Database(place)
    async with database.transaction() as connection:
        await connection.run_sync(there.metadata.create_all)
        rows = [{"title": "磨坊", "content": "内容", "hide": hide} for hide in values]
        await connection.execute(insert(there), rows)
    posts = posts_at(place)
    assert await posts.load_ids_with_content() == [1, 3]
    assert await PostSummaries(posts).count_visible() == 2
    assert [post.hide for post in await posts.load([1, 2, 3])] == ["0", "1", "0"]
    assert [line.hide for line in await PostSummaries(posts).load_recent(3)] == ["0", "1", "0"]
    assert (await posts.create("四", "内容", "1")).hidden
    changed = await posts.change(1, hide="1")
    assert changed is not None
    assert changed.post.hidden
    assert await posts.load_ids_with_content() == [3]
    async with database.reading() as connection:
        kept = (await connection.execute(select(there.c.hide).order_by(there.c.id))).scalars().all()
    assert kept == [values[1], values[1], values[2], values[1]]
    await posts.database.close()
    await database.close()


async def test_a_pending_article_without_text_is_not_counted_as_pending(place: str) -> None:
    posts = posts_at(place)
    empty = await posts.create("空")
    async with posts.database.transaction() as connection:
        await connection.execute(update(posts.table).values(rag_status="pending"))
    assert (await posts.count_by_status())["pending"] == 0
    assert await EmbeddingState(posts).load_unfinished() == []
    await posts.change(empty.id, content="内容")
    assert (await posts.count_by_status())["pending"] == 1
    await posts.database.close()


@pytest.mark.parametrize("verb", ["begin_run", "finish", "request_embedding"])
async def test_rows_are_locked_in_id_order(postgres_url: str, verb: str) -> None:
    """Another transaction has locked the first row and wants the second; this must not end in a deadlock."""
    posts = posts_at(postgres_url)
    one, two = await posts.create("一", "内容"), await posts.create("二", "内容")
    await posts.change(one.id, content="又")  # from here on it is behind the other row
    embedding_state, columns = EmbeddingState(posts), posts.table.c
    verbs: dict[str, Callable[[], Awaitable[object]]] = {
        "begin_run": lambda: embedding_state.begin_run({two.id: "b", one.id: "a"}),
        "finish": lambda: embedding_state.finish(
            [FinishedVersion(two.id, 1, 1, 0, None), FinishedVersion(one.id, 1, 1, 0, None)]
        ),
        "request_embedding": lambda: posts.request_embedding([two.id, one.id]),
    }
    async with posts.database.transaction() as connection:
        await connection.execute(select(columns.id).where(columns.id == one.id).with_for_update())
        other = asyncio.ensure_future(verbs[verb]())
        await until(lambda: is_kept_waiting(posts))
        await connection.execute(select(columns.id).where(columns.id == two.id).with_for_update(nowait=True))
    await other
    await posts.database.close()


async def is_kept_waiting(posts: Posts) -> bool:
    async with posts.database.reading() as connection:
        query = select(func.count()).select_from(table("pg_locks")).where(~literal_column("granted"))
        return bool((await connection.execute(query)).scalar())
