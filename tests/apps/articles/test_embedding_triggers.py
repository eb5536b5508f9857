"""Limits per article, per user and per queue (E11); a refused request changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.apps.articles.web_kit import ADMIN, Blog, blog_in
from tests.web.signed_in_client import create_token
from tidemill.web import Role


async def test_a_text_that_is_too_long_is_413_and_nothing_is_written(tmp_path: Path) -> None:
    async with blog_in(tmp_path, content_limit=10) as blog:
        number = await blog.write("够短", "一二三四五六七八九十")
        for method, path in (
            ("POST", "/api/post"),
            ("PUT", f"/api/post/{number}"),
            ("PATCH", f"/api/post/{number}"),
        ):
            answer = await blog.call(method, path, {"title": "太长", "content": "一" * 11})
            assert (answer.status, answer.json["status"]) == (413, False)
            assert "11 characters" in answer.json["message"]
            assert "ARTICLES_CONTENT_LIMIT" in answer.json["message"]
        answer = await blog.call(
            "POST", "/api/post", {"title": "t", "content": "x" * 11}, accept_language="zh"
        )
        assert "11 个字符" in answer.json["message"]
        assert (await blog.call("GET", f"/api/post/{number}")).json["data"]["title"] == "够短"
        assert sum((await blog.articles.posts.count_by_status()).values()) == 1


async def test_a_text_of_another_program_that_is_too_long_is_not_triggered(tmp_path: Path) -> None:
    async with blog_in(tmp_path, content_limit=10) as blog:
        long = (await blog.articles.posts.create("长", "x" * 11)).id
        for path, body in ((f"/api/post/{long}/embed", None), ("/api/post/embed/batch", {"ids": [long]})):
            answer = await blog.call("POST", path, body)
            assert (answer.status, answer.json["status"]) == (413, False), path
        assert (await blog.call("GET", "/api/embedding/queue/status")).json["data"]["queueLength"] == 0


async def test_the_trigger_limit_of_a_user_is_429(tmp_path: Path) -> None:
    async with blog_in(tmp_path, triggers_per_minute=3) as blog:
        number = await blog.write()
        assert (await blog.call("POST", "/api/post/404/embed")).status == 404
        for _ in range(2):
            assert (await blog.call("POST", f"/api/post/{number}/embed")).status == 200
        assert (await blog.call("POST", "/api/post/embed/batch", {"ids": [number]})).status == 200
        answer = await blog.call("POST", f"/api/post/{number}/embed")
        assert (answer.status, answer.json["status"]) == (429, False)
        assert 50 <= int(answer.headers["retry-after"]) <= 60
        assert (await blog.call("POST", "/api/post/embed/batch", {})).status == 429
        blog.tokens["another"] = await create_token(blog.app, Role.ADMIN, "another")
        assert (await blog.call("POST", f"/api/post/{number}/embed", who="another")).status == 200


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'articles.db'}"
    return str(request.getfixturevalue("postgres_url"))


async def test_the_limit_of_a_user_holds_over_processes_and_over_many_at_once(
    tmp_path: Path, database: str
) -> None:
    same = {"triggers_per_minute": 3, "database_url": database}
    async with blog_in(tmp_path, **same) as one, blog_in(tmp_path, **same) as two:
        number = await one.write()
        two.tokens = one.tokens
        answers = await asyncio.gather(
            *(blog.call("POST", f"/api/post/{number}/embed") for blog in (one, two) for _ in range(5))
        )
        assert sorted(answer.status for answer in answers) == [200] * 3 + [429] * 7


async def test_after_a_minute_there_is_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with blog_in(tmp_path, triggers_per_minute=1) as blog:
        number = await blog.write()
        wall = blog.app.clock.wall
        assert (await blog.call("POST", f"/api/post/{number}/embed")).status == 200
        for ahead, expected in ((59.0, 429), (61.0, 200), (-3600.0, 200)):
            monkeypatch.setattr(type(blog.app.clock), "wall", lambda _, ahead=ahead: wall() + ahead)
            assert (await blog.call("POST", f"/api/post/{number}/embed")).status == expected, ahead


async def test_a_full_queue_is_503_and_takes_nothing_of_it(tmp_path: Path) -> None:
    async with blog_in(tmp_path, queue_limit=2) as blog:
        waiting = [await blog.write("一"), await blog.write("二")]
        written = await blog.write("三")
        before = (await blog.call("GET", f"/api/post/{written}")).json["data"]
        assert before["rag_status"] == "pending"
        settled = (await blog.articles.posts.create("四", "")).id
        await blog.articles.posts.change(settled, content="text")
        await _settle(blog, settled)
        for path, body in (
            (f"/api/post/{settled}/embed", None),
            ("/api/post/embed/batch", {"ids": [settled]}),
            ("/api/post/embed/batch", {"ids": [waiting[1], settled]}),
            ("/api/post/embed/batch", {}),
        ):
            answer = await blog.call("POST", path, body, who=ADMIN)
            assert (answer.status, answer.json["status"]) == (503, False), path
            assert int(answer.headers["retry-after"]) > 0
            assert "ARTICLES_QUEUE_LIMIT" in answer.json["message"]
        assert (await blog.call("GET", f"/api/post/{settled}")).json["data"]["rag_status"] == "completed"
        data = (await blog.call("GET", "/api/embedding/queue/status")).json["data"]
        assert [task["postId"] for task in data["queueTasks"]] == waiting
        assert [task["priority"] for task in data["queueTasks"]] == [5, 5]


async def test_a_full_queue_takes_a_request_for_an_article_that_waits(tmp_path: Path) -> None:
    """The article keeps its place and takes the more urgent priority (E6), so the queue does not grow."""
    async with blog_in(tmp_path, queue_limit=2) as blog:
        first, second = await blog.write("一"), await blog.write("二")
        rows = await blog.articles.posts.load([first, second])
        assert (await blog.call("POST", f"/api/post/{second}/embed")).status == 200
        answer = await blog.call("POST", "/api/post/embed/batch", {"ids": [first, second]})
        assert (answer.status, answer.json["data"]) == (200, {"queued": 2})
        assert await _tasks(blog) == [(second, 1), (first, 5)]
        assert await blog.articles.posts.load([first, second]) == rows
        async with blog.run_worker():
            await blog.wait_until_embedded(first, second)


async def test_an_edit_of_an_article_that_waits_in_a_full_queue_takes_the_more_urgent_priority(
    tmp_path: Path,
) -> None:
    async with blog_in(tmp_path, queue_limit=2) as blog:
        ids = [(await blog.articles.posts.create(title, "内容")).id for title in ("一", "二")]
        await blog.articles.requests.request_all()
        assert await _tasks(blog) == [(ids[0], 10), (ids[1], 10)]
        changed = await blog.call("PATCH", f"/api/post/{ids[1]}", {"content": "改了"})
        assert changed.status == 200
        assert await _tasks(blog) == [(ids[1], 5), (ids[0], 10)]
        async with blog.run_worker():
            await blog.wait_until_embedded(*ids)
        assert {post.rag_status for post in await blog.articles.posts.load(ids)} == {"completed"}


async def _tasks(blog: Blog) -> list[tuple[int, int]]:
    data = (await blog.call("GET", "/api/embedding/queue/status")).json["data"]
    return [(task["postId"], task["priority"]) for task in data["queueTasks"]]


async def _settle(blog: Blog, number: int) -> None:
    posts = blog.articles.posts
    async with posts.database.transaction() as connection:
        row = posts.table.update().where(posts.table.c.id == number)
        await connection.execute(row.values(rag_status="completed"))
