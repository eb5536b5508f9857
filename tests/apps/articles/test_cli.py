"""Embeds every article again from the command line (E10)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.apps.articles.web_kit import Blog, blog_in
from tidemill_apps.articles.__main__ import ReembedRun, ReembedStatus, format_result
from tidemill_apps.articles.embed_requests import BULK_PRIORITY, CHANGED_PRIORITY


async def command(blog: Blog, folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Runs the command in a separate process, on the blog's files."""
    surroundings = {
        **os.environ,
        "TIDEMILL_URL": f"sqlite:///{blog.app.url.path}",
        "ARTICLES_DATABASE_URL": blog.articles.settings.database_url,
        "ARTICLES_QDRANT_PATH": str(folder / "unused"),
        **environment,
    }
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tidemill_apps.articles",
        *arguments,
        env=surroundings,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await running.communicate()
    assert running.returncode is not None
    return running.returncode, out.decode(), err.decode()


async def test_it_asks_for_all_that_are_shown_and_waits_until_they_are_done(tmp_path: Path) -> None:
    async with blog_in(tmp_path) as blog:
        numbers = [await blog.write("一"), await blog.write("Two"), await blog.write("三", hide="1")]
        await blog.write("空", "")
        async with blog.run_worker():
            await blog.wait_until_embedded(*numbers)
            code, out, err = await command(blog, tmp_path, "reembed", "--json")
            assert (code, err) == (0, "")
            ended = json.loads(out)
            assert (ended["requested"], ended["left"], ended["failed"]) == (2, 0, 0)
            assert await command(blog, tmp_path, "samples") == (0, "40 sample articles were added\n", "")
            code, out, _ = await command(blog, tmp_path, "reembed")
            assert (code, out) == (0, "42 articles embedded again\n")
        assert (await blog.articles.posts.count_by_status())["completed"] == 43


@pytest.mark.parametrize(
    ("requested", "left", "failed", "sentence"),
    [
        (41, 0, 0, "41 articles embedded again"),
        (1, 0, 0, "1 article embedded again"),
        (0, 0, 0, "there is no article with content that is not hidden"),
        (41, 0, 2, "39 articles embedded again, 2 not done: 2 failed"),
        (41, 3, 2, "36 articles embedded again, 5 not done: 2 failed, 3 wait"),
        (2, 2, 0, "0 articles embedded again, 2 not done: 2 wait"),
    ],
)
def test_the_result_line_counts_embedded_failed_and_waiting_articles(
    requested: int, left: int, failed: int, sentence: str
) -> None:
    status = ReembedStatus(requested=requested, left=left, failed=failed, rest=False, served=True)
    assert format_result(status, no_wait=False) == sentence


def test_no_wait_prints_the_number_of_requested_articles() -> None:
    status = ReembedStatus(requested=41, left=41, failed=2, rest=False, served=True)
    assert format_result(status, no_wait=True) == "requested 41 articles, to be embedded at low priority"


async def test_failures_of_articles_that_were_not_asked_for_are_none_of_it(tmp_path: Path) -> None:
    async with blog_in(tmp_path) as blog:
        await blog.write("藏", hide="1")
        shown = await blog.write("显")
        table = blog.articles.posts.table
        async with blog.articles.posts.database.transaction() as connection:
            await connection.execute(update(table).values(rag_status="failed"))
        work = ReembedRun(blog.articles)
        assert (await work.status()).failed == 1
        assert [line.id for line in await work.failures()] == [shown]


async def test_a_wrong_setting_or_a_missing_database_is_one_sentence(tmp_path: Path) -> None:
    async with blog_in(tmp_path) as blog:
        code, out, err = await command(blog, tmp_path, "reembed", "--no-wait", ARTICLES_TIMEOUT="soon")
        assert (code, out) == (2, "")
        assert "ARTICLES_TIMEOUT: must be a number" in err
        away = f"sqlite:///{tmp_path}/nowhere/a.db"
        code, out, err = await command(blog, tmp_path, "reembed", "--json", ARTICLES_DATABASE_URL=away)
        assert (code, out) == (1, "")
        assert "nowhere/a.db" in err
        assert len(err.splitlines()) == 1


async def test_waiting_for_a_reembed_ends_when_no_worker_serves_the_queue(tmp_path: Path) -> None:
    async with blog_in(tmp_path) as blog:
        await blog.write()
        ended = await ReembedRun(blog.articles, unserved=0.1).wait(lambda _: None)
        assert (ended.requested, ended.left, ended.served) == (1, 1, False)


async def test_in_a_queue_that_is_full_the_rest_is_asked_for_later(tmp_path: Path) -> None:
    async with blog_in(tmp_path, queue_limit=2) as blog:
        numbers = [(await blog.articles.posts.create(f"{n}", "text")).id for n in range(5)]
        seen: list[ReembedStatus] = []
        work = ReembedRun(blog.articles, unserved=30)
        assert (await work.request()).rest
        async with blog.run_worker(), asyncio.timeout(60):
            ended = await work.wait(seen.append)
        assert (ended.left, ended.failed, ended.rest) == (0, 0, False)
        posts = await blog.articles.posts.load(numbers)
        assert {post.rag_status for post in posts} == {"completed"}
        assert (await blog.app.inspect.queue(blog.articles.queue)).processed == len(numbers)


async def test_it_lets_what_is_more_urgent_go_first(tmp_path: Path) -> None:
    async with blog_in(tmp_path) as blog:
        old = (await blog.articles.posts.create("旧", "text")).id
        await ReembedRun(blog.articles).request()
        new = await blog.write("新")
        data = (await blog.call("GET", "/api/embedding/queue/status")).json["data"]
        assert [(task["postId"], task["priority"]) for task in data["queueTasks"]] == [
            (new, CHANGED_PRIORITY),
            (old, BULK_PRIORITY),
        ]
