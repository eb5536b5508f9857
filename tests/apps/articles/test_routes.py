"""The API of articles as existing clients call it (E8), and its permissions (E11)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.articles.web_kit import ANONYMOUS, VIEWER, Blog, blog_in
from tidemill_apps.articles.embed_requests import BULK_PRIORITY, CHANGED_PRIORITY, MANUAL_PRIORITY


@pytest.fixture
async def blog(tmp_path: Path) -> AsyncIterator[Blog]:
    async with blog_in(tmp_path) as blog:
        yield blog


async def status(blog: Blog) -> Any:
    answer = await blog.call("GET", "/api/embedding/queue/status")
    assert answer.json["status"] is True
    return answer.json["data"]


async def test_the_status_has_the_form_of_the_source(blog: Blog) -> None:
    before = int(blog.app.clock.wall() * 1000)
    number = await blog.write("茶", "水温八十度。", hide="1")
    assert await status(blog) == {
        "queueLength": 1,
        "processingCount": 0,
        "queueTasks": [
            {
                "postId": number,
                "title": "茶",
                "hide": "1",
                "priority": CHANGED_PRIORITY,
                "addTime": pytest.approx(before, abs=60_000),
            }
        ],
        "processingTasks": [],
        "queueShown": 1,
        "processingShown": 0,
        "blockedReason": None,
    }


async def test_the_most_urgent_is_listed_first_and_a_long_queue_is_cut(
    blog: Blog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill_apps.articles.status.MAX_TASKS_LISTED", 10)
    numbers = [(await blog.articles.posts.create(f"{n}", "text")).id for n in range(12)]
    await blog.articles.requests.request_many(numbers, BULK_PRIORITY)
    assert (await blog.call("POST", f"/api/post/{numbers[7]}/embed")).json["status"] is True
    found = await status(blog)
    assert (found["queueLength"], len(found["queueTasks"]), found["queueShown"]) == (12, 10, 10)
    listed = [(task["postId"], task["priority"]) for task in found["queueTasks"]]
    assert listed[:2] == [(numbers[7], MANUAL_PRIORITY), (numbers[0], BULK_PRIORITY)]
    assert [number for number, _ in listed[1:]] == [n for n in numbers if n != numbers[7]][:9]


async def test_five_quick_triggers_make_one_job(blog: Blog) -> None:
    number = await blog.write()
    for _ in range(5):
        answer = await blog.call("POST", f"/api/post/{number}/embed")
        assert (answer.status, answer.json) == (
            200,
            {"status": True, "message": "added to the embedding queue"},
        )
    found = await status(blog)
    assert (found["queueLength"], found["queueTasks"][0]["priority"]) == (1, MANUAL_PRIORITY)


async def test_a_batch_embeds_the_given_ids_or_all_visible_articles(blog: Blog) -> None:
    shown, hidden = await blog.write("一"), await blog.write("二", hide="1")
    await blog.write("三", "")
    async with blog.run_worker():
        await blog.wait_until_embedded(shown, hidden)
    answer = await blog.call("POST", "/api/post/embed/batch", {})
    assert answer.json["data"] == {"queued": 1}
    found = await status(blog)
    assert [(task["postId"], task["priority"]) for task in found["queueTasks"]] == [(shown, BULK_PRIORITY)]
    answer = await blog.call("POST", "/api/post/embed/batch", {"ids": [hidden, shown, hidden]})
    assert answer.json["data"] == {"queued": 2}
    assert (await status(blog))["queueLength"] == 2


async def test_an_article_is_written_changed_found_and_deleted(blog: Blog) -> None:
    number = await blog.write("How a tide mill works", "The rising tide fills a pond behind the dam.")
    other = await blog.write("绿茶怎样泡", "把水晾到八十度。一分钟就出汤。")
    async with blog.run_worker():
        await blog.wait_until_embedded(number, other)
        answer = await blog.call("GET", "/api/post/search?text=tide+and+pond&limit=1", who=VIEWER)
        assert [found["postId"] for found in answer.json["data"]] == [number]
        assert answer.json["data"][0]["title"] == "How a tide mill works"
        assert "pond" in answer.json["data"][0]["chunkText"]
        await blog.call("PATCH", f"/api/post/{number}", {"hide": "1"})
        answer = await blog.call("GET", "/api/post/search?text=tide+and+pond", who=VIEWER)
        assert [found["postId"] for found in answer.json["data"]] == [other]
    assert (await blog.call("GET", f"/api/post/{number}", who=VIEWER)).status == 404
    assert (await blog.call("GET", f"/api/post/{number}")).json["data"]["hide"] == "1"
    assert (await blog.call("DELETE", f"/api/post/{number}")).json["status"] is True
    assert (await blog.call("GET", f"/api/post/{number}")).status == 404


async def test_put_and_patch_change_what_is_given(blog: Blog) -> None:
    number = await blog.write("旧", "旧文")
    for method, change in (("PUT", {"title": "新"}), ("PATCH", {"content": "新文"})):
        assert (await blog.call(method, f"/api/post/{number}", change)).status == 200
    assert (await blog.call("GET", f"/api/post/{number}")).json["data"] == {
        "id": number,
        "title": "新",
        "content": "新文",
        "hide": "0",
        "rag_status": "pending",
        "rag_error": None,
    }


WRITES: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/api/embedding/queue/status", None),
    ("GET", "/api/embedding/progress", None),
    ("POST", "/api/post/{id}/embed", None),
    ("POST", "/api/post/embed/batch", {}),
    ("POST", "/api/post", {"title": "题"}),
    ("PUT", "/api/post/{id}", {"title": "题"}),
    ("PATCH", "/api/post/{id}", {"title": "题"}),
    ("DELETE", "/api/post/{id}", None),
)
READS: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/api/post/{id}", None),
    ("GET", "/api/post/search?text=x", None),
)


async def test_no_token_is_401_and_a_viewer_s_write_is_403(blog: Blog) -> None:
    number = await blog.write()
    for method, path, body in (*WRITES, *READS):
        answer = await blog.call(method, path.format(id=number), body, who=ANONYMOUS)
        assert (answer.status, answer.json["status"]) == (401, False), path
        assert "authorization" in answer.json["message"]
    for method, path, body in WRITES:
        answer = await blog.call(method, path.format(id=number), body, who=VIEWER)
        assert (answer.status, answer.json["status"]) == (403, False), path
    assert (await status(blog))["queueTasks"][0]["priority"] == CHANGED_PRIORITY


@pytest.mark.parametrize(
    "named", ["404", "0", "-1", "x", "1.5", "99999999999999999999", "%E4%B8%80", "\u0661"]
)
async def test_an_unknown_article_is_404(blog: Blog, named: str) -> None:
    for method, path, body in (*WRITES, *READS):
        if "{id}" in path:
            answer = await blog.call(method, path.format(id=named), body)
            assert (answer.status, answer.json["status"]) == (404, False), (method, path)
    answer = await blog.call("POST", f"/api/post/{named}/embed", accept_language="zh-CN")
    assert answer.json == {"status": False, "message": "文章不存在"}


async def test_a_batch_with_an_unknown_article_requests_none(blog: Blog) -> None:
    number = await blog.write()
    answer = await blog.call("POST", "/api/post/embed/batch", {"ids": [number, 404, 2**70]})
    assert answer.status in (404, 422)
    answer = await blog.call("POST", "/api/post/embed/batch", {"ids": [number, 404, -3]})
    assert (answer.status, answer.json["status"]) == (404, False)
    assert "404, -3" in answer.json["message"]
    assert (await status(blog))["queueTasks"][0]["priority"] == CHANGED_PRIORITY


@pytest.mark.parametrize(
    ("asks", "body", "refused"),
    [
        ("POST /api/post", b"{", (400, "body")),
        ("POST /api/post", b"[]", (422, "body")),
        ("POST /api/post", {}, (422, "title: must be given")),
        ("POST /api/post", {"title": 1}, (422, "title")),
        ("POST /api/post", {"title": "t", "hide": "yes"}, (422, "hide")),
        ("POST /api/post", {"title": "t", "text": "x"}, (422, "text")),
        ("PATCH /api/post/1", {"content": None}, (422, "content")),
        ("POST /api/post/embed/batch", {"ids": []}, (422, "ids")),
        ("POST /api/post/embed/batch", {"ids": ["1"]}, (422, "ids[0]")),
        ("GET /api/post/search", None, (422, "text")),
        ("GET /api/post/search?text=x&limit=0", None, (422, "limit")),
        ("GET /api/embedding/progress?post=x", None, (422, "post")),
        ("GET /api/embedding/progress?post=404", None, (404, "article 404 does not exist")),
    ],
)
async def test_bad_input_names_the_field(blog: Blog, asks: str, body: Any, refused: tuple[int, str]) -> None:
    method, path = asks.split(" ")
    answer = await blog.call(method, path, body)
    assert (answer.status, answer.json["status"]) == (refused[0], False)
    assert refused[1] in answer.json["message"]


async def test_an_article_without_a_text_is_not_embedded(blog: Blog) -> None:
    number = await blog.write("空", "")
    answer = await blog.call("POST", f"/api/post/{number}/embed")
    assert (answer.status, answer.json["status"]) == (422, False)
    assert "no content" in answer.json["message"]
    assert (await status(blog))["queueLength"] == 0


async def test_a_search_without_a_worker_is_503(blog: Blog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill_apps.articles.search.SEARCH_DEADLINE_SECONDS", 0.1)
    answer = await blog.call("GET", "/api/post/search?text=x")
    assert (answer.status, answer.json["status"]) == (503, False)
    assert "worker" in answer.json["message"]


async def test_the_openapi_document_has_the_routes(blog: Blog) -> None:
    document = (await blog.call("GET", "/api/v1/openapi.json")).json
    for _, path, _ in (*WRITES, *READS):
        assert path.partition("?")[0] in document["paths"]
