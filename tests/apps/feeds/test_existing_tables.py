"""Tables of another program are used as they are, with its column names and types (X8, S11)."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text

from tests.apps.feeds.feed_server import answer_rss
from tests.apps.feeds.service_kit import FeedBench, bench_in
from tidemill_apps.common.database import Database
from tidemill_apps.feeds.feed_store import NewFeed
from tidemill_apps.feeds.service import check_url

pytestmark = pytest.mark.timeout(60)
FEEDS = """CREATE TABLE feeds (id {id} PRIMARY KEY, user_id {id}, title TEXT, url TEXT NOT NULL,
    refresh_interval INTEGER NOT NULL DEFAULT 60, last_fetched {time}, last_fetch_status TEXT,
    last_fetch_error TEXT, folder TEXT)"""
ARTICLES = """CREATE TABLE articles (id {id} PRIMARY KEY, feed_id {id} NOT NULL, title TEXT, url TEXT,
    content TEXT, published_at {time})"""
DIALECTS = {
    "sqlite": {"id": "TEXT", "time": "TEXT"},
    "postgresql-uuid": {"id": "UUID", "time": "TIMESTAMPTZ"},
    "postgresql-text": {"id": "TEXT", "time": "TIMESTAMP"},
}


@pytest.fixture(params=list(DIALECTS))
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The database of another program, with one feed and one article."""
    dialect = str(request.param)
    url = f"sqlite:///{tmp_path / 'other.db'}"
    if dialect != "sqlite":
        url = str(request.getfixturevalue("postgres_url"))
    database = Database(url)
    async with database.transaction() as connection:
        for statement in (FEEDS, ARTICLES):
            await connection.execute(text(statement.format(**DIALECTS[dialect])))
    await database.close()
    return url


async def insert_rows(bench: FeedBench, feed: str, article: str) -> None:
    """Inserts with the other program's statements, which know nothing of our types."""
    rows = {
        "feeds": {"id": feed, "title": "潮汐", "url": bench.server.url("/feed"), "folder": "新闻"},
        "articles": {"id": article, "feed_id": feed, "title": "旧文", "url": "http://example.org/一"},
    }
    rows["feeds"]["last_fetched"] = "2025-11-26T08:00:00"
    async with bench.feeds.store.database.transaction() as connection:
        for table, row in rows.items():
            values = ", ".join(f"'{value}'" for value in row.values())
            statement = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})"  # noqa: S608 - a test's own
            await connection.execute(text(statement.replace(":", "\\:")))


async def test_rows_of_another_program_are_refreshed_x8(place: str, tmp_path: Path) -> None:
    feed_id, article = str(uuid4()), str(uuid4())
    async with bench_in(tmp_path, database_url=place) as bench:
        bench.server.answers["/feed"] = lambda _: answer_rss("潮汐", "一", "二")
        await insert_rows(bench, feed_id, article)
        feed = await bench.feeds.store.get(feed_id)
        assert feed is not None
        assert feed.last_fetched == pytest.approx(1764144000)
        async with bench.run_worker():
            done = await bench.wait_for_status(feed, "success")
            assert await bench.feeds.articles.count(feed_id) == 2  # the old article is one of them
            await bench.feeds.refresh(done)
            await bench.wait_for_runs(feed, 2)
        assert ((await bench.get(feed)).last_fetched or 0) == pytest.approx(time.time(), abs=30)
        assert {one.id for one in await bench.feeds.articles.find(feed_id, 9)} >= {article}
        async with bench.feeds.store.database.reading() as connection:
            row = (await connection.execute(text("SELECT folder, last_fetch_status FROM feeds"))).one()
        assert tuple(row) == ("新闻", "success")


async def test_new_feeds_go_into_the_table_of_another_program_x8(place: str, tmp_path: Path) -> None:
    async with bench_in(tmp_path, database_url=place) as bench:
        url = check_url(bench.server.url("/new"))
        [feed] = await bench.feeds.add([NewFeed(url=url, refresh_interval=5, user_id=str(uuid4()))])
        assert await bench.feeds.add([NewFeed(url=url, refresh_interval=5)]) == []
        async with bench.run_worker():
            await bench.wait_for_status(feed, "success")
        hours = await bench.feeds.history.hours(time.time(), feed.id)
        assert [(hour.successes, hour.articles) for hour in hours] == [(1, 1)]
        assert await bench.feeds.store.delete(feed.id)
        assert not await bench.feeds.store.delete(feed.id)
