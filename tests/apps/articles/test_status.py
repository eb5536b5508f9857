"""The progress of embedding, sent on every change by server-sent events and by WebSocket (E13)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.apps.articles.web_kit import ADMIN, VIEWER, Blog, blog_in
from tidemill_apps.articles.status import EmbeddingProgress

PATH = "/api/embedding/progress"
PROBLEM_EVENT = "problem"
"""The reason why it cannot be read now; empty if it can."""
Told = tuple[str, Any]


@pytest.fixture
async def blog(tmp_path: Path) -> AsyncIterator[Blog]:
    async with blog_in(tmp_path) as blog:
        yield blog


async def events(blog: Blog, query: str = "") -> AsyncGenerator[Told, None]:
    """Yields the status by server-sent events."""
    async with blog.serve() as address, httpx2.AsyncClient(base_url=address, timeout=30) as client:
        shown = {"authorization": f"Bearer {await blog.token(ADMIN)}"}
        async with client.stream("GET", f"{PATH}{query}", headers=shown) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream"), await answer.aread()
            name = ""
            async for line in answer.aiter_lines():
                key, _, value = line.partition(": ")
                name = value if key == "event" else name
                if key == "data" and name != PROBLEM_EVENT:
                    yield name, json.loads(value)


async def frames(blog: Blog, query: str = "") -> AsyncGenerator[Told, None]:
    """Yields the status by WebSocket."""
    shown = {"authorization": f"Bearer {await blog.token(ADMIN)}"}
    async with blog.serve() as address:
        place = address.replace("http:", "ws:", 1)
        async with connect(f"{place}{PATH}{query}", additional_headers=shown) as socket:
            async for text in socket:
                frame = json.loads(text)
                if frame["event"] != PROBLEM_EVENT:
                    yield frame["event"], json.loads(frame["data"])


@pytest.mark.parametrize("by", [events, frames])
async def test_the_counts_go_from_pending_to_completed(
    blog: Blog, by: Callable[[Blog], AsyncGenerator[Told, None]]
) -> None:
    numbers = [await blog.write(f"文章 {n}", f"第 {n} 篇") for n in range(3)]
    async with asyncio.timeout(60), aclosing(by(blog)) as stream:
        name, first = await anext(stream)
        assert (name, first["pending"], first["total"], first["fraction"]) == ("counts", 3, 3, 0.0)
        async with blog.run_worker():
            async for name, data in stream:
                if name == "counts" and data["completed"] == 3:
                    break
            assert data == {
                "pending": 0,
                "processing": 0,
                "completed": 3,
                "failed": 0,
                "total": 3,
                "fraction": 1.0,
                "blockedReason": None,
            }
            await blog.wait_until_embedded(*numbers)


@pytest.mark.parametrize("by", [events, frames])
async def test_one_article_is_followed(
    blog: Blog, by: Callable[[Blog, str], AsyncGenerator[Told, None]]
) -> None:
    number = await blog.write("磨坊")
    async with asyncio.timeout(60), aclosing(by(blog, f"?post={number}")) as stream:
        name, first = await anext(stream)
        assert name == "post"
        assert first == {
            "postId": number,
            "title": "磨坊",
            "rag_status": "pending",
            "rag_error": None,
            "fraction": None,
        }
        async with blog.run_worker():
            async for _, data in stream:
                if data["rag_status"] == "completed":
                    break
        assert data["fraction"] == 1.0


async def test_however_many_watch_it_is_read_once(blog: Blog, monkeypatch: pytest.MonkeyPatch) -> None:
    read, counts = 0, EmbeddingProgress.counts

    async def counted(progress: EmbeddingProgress) -> Any:
        nonlocal read
        read += 1
        return await counts(progress)

    monkeypatch.setattr(EmbeddingProgress, "counts", counted)
    await blog.write()
    shown = {"authorization": f"Bearer {await blog.token(ADMIN)}"}
    async with asyncio.timeout(30), blog.serve() as address:
        place = address.replace("http:", "ws:", 1)
        sockets = [await connect(f"{place}{PATH}", additional_headers=shown) for _ in range(20)]
        for socket in sockets:
            await socket.recv()
        assert read <= 3
        for socket in sockets:
            await socket.close()


async def test_a_viewer_is_refused_a_socket(blog: Blog) -> None:
    shown = {"authorization": f"Bearer {await blog.token(VIEWER)}"}
    async with blog.serve() as address:
        place = address.replace("http:", "ws:", 1)
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{place}{PATH}", additional_headers=shown)
    assert refused.value.response.status_code == 403
