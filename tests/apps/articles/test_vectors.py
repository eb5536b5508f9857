"""Qdrant in a folder and on a server: search results, outages, and one clear error for each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE, run

import pytest
from qdrant_client import models
from sqlalchemy import insert

from tests.apps.articles.fake_qdrant import StandIn, stand_in
from tests.apps.articles.service_kit import Bench, bench_in, until
from tidemill import ConfigurationError
from tidemill.telemetry.events import PoolClosed
from tidemill_apps.articles.embed_requests import MANUAL_PRIORITY
from tidemill_apps.articles.posts import Post
from tidemill_apps.articles.qdrant import VectorsUnavailable, open_qdrant
from tidemill_apps.articles.search import SearchUnavailable
from tidemill_apps.articles.vectors import ArticleChunk, ArticleVectors, build_point_id


def post(post_id: int, **changes: object) -> Post:
    values: dict[str, object] = {
        "id": post_id,
        "title": "磨坊",
        "content": "",
        "hide": "0",
        "rag_status": None,
        "rag_error": None,
        "rag_version": 1,
        "rag_current": 1,
        "rag_chunks": 1,
        "rag_label": 0,
        "rag_labelled": 0,
        "rag_job": None,
    }
    return Post(**values | changes)  # type: ignore[arg-type]


@asynccontextmanager
async def vectors_in(where: str, folder: Path, model: str = "m") -> AsyncIterator[ArticleVectors]:
    async with stand_in() as served:
        vectors = ArticleVectors(
            open_qdrant(served.url if where == "server" else "", str(folder / "v")), "blog_posts", model
        )
        yield vectors
        await vectors.close()


@pytest.mark.parametrize("where", ["folder", "server"])
async def test_written_vectors_are_found_labelled_and_deleted(tmp_path: Path, where: str) -> None:
    async with vectors_in(where, tmp_path) as vectors:
        assert await vectors.search([1.0, 0.0], 5) == []
        assert await vectors.count() == 0
        pieces = [ArticleChunk(post_id=n, version=1, index=0, text=f"第{n}段") for n in (1, 2, 3)]
        posts = {1: post(1), 2: post(2), 3: post(3, hide="1")}
        assert await vectors.find_written(pieces) == set()
        await vectors.write(pieces, [[1.0, 0.1], [0.1, 1.0], [1.0, 0.0]], posts)
        assert await vectors.find_written(pieces) == {piece.name for piece in pieces}
        assert [hit.postId for hit in await vectors.search([1.0, 0.0], 5)] == [1, 2]
        assert [hit.postId for hit in await vectors.search([1.0, 0.0], 1, 1)] == [2]
        await vectors.set_label(post(1, hide="1"))
        assert [hit.chunkText for hit in await vectors.search([1.0, 0.0], 5)] == ["第2段"]
        await vectors.delete_version(2, 1, 1)
        await vectors.delete_post(3)
        assert await vectors.count() == 1


async def test_another_text_or_another_model_is_not_what_was_paid_for(tmp_path: Path) -> None:
    async with vectors_in("folder", tmp_path) as vectors:
        piece = ArticleChunk(post_id=1, version=1, index=0, text="潮")
        await vectors.write([piece], [[1.0]], {1: post(1)})
        assert not await vectors.find_written([ArticleChunk(post_id=1, version=1, index=0, text="汐")])
        vectors._model = "another"
        assert not await vectors.find_written([piece])
        assert await vectors.search([1.0], 5) == []


async def test_vectors_of_another_size_are_refused(tmp_path: Path) -> None:
    async with vectors_in("folder", tmp_path) as vectors:
        piece = ArticleChunk(post_id=1, version=1, index=0, text="潮")
        await vectors.write([piece], [[1.0, 0.0]], {1: post(1)})
        with pytest.raises(
            ConfigurationError, match="blog_posts has vectors of 2 numbers, and the model m gives 3"
        ):
            await vectors.write([piece], [[1.0, 0.0, 0.0]], {1: post(1)})


async def test_points_of_the_program_before_us_are_found_until_they_are_replaced(tmp_path: Path) -> None:
    async with vectors_in("folder", tmp_path) as vectors:
        piece = ArticleChunk(post_id=1, version=0, index=0, text="潮")
        await vectors.write([piece], [[1.0]], {1: post(1)})
        await vectors._call("delete_payload", keys=["version", "model"], points=[piece.name])
        [hit] = await vectors.search([1.0], 5)
        assert hit.version == 0


COUNT_POINTS = """
import asyncio, sys
from tidemill_apps.articles.qdrant import VectorsUnavailable, open_qdrant
from tidemill_apps.articles.vectors import ArticleVectors


async def count_points():
    vectors = ArticleVectors(open_qdrant("", sys.argv[1]), "blog_posts", "m")
    try:
        await vectors.count()
    except VectorsUnavailable as error:
        print(error)
        print(vectors.last_check())


asyncio.run(count_points())
"""


async def test_a_folder_that_another_process_has_is_one_sentence(tmp_path: Path) -> None:
    """And no status of Qdrant: the process that has locked the folder may be embedding."""
    async with vectors_in("folder", tmp_path) as vectors:
        assert await vectors.count() == 0
        other = await asyncio.to_thread(
            run, [sys.executable, "-c", COUNT_POINTS, str(tmp_path / "v")], stdout=PIPE
        )
    output = other.stdout.decode().splitlines()
    assert len(output) == 2
    assert "in use by another process" in output[0]
    assert output[1] == "None"
    assert "ARTICLES_QDRANT_URL" in output[0]


async def test_a_server_that_is_away_costs_no_call_and_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill_apps.articles.qdrant.UNAVAILABLE_RETRY_SECONDS", 0.2)
    async with stand_in() as served, bench_in(tmp_path, qdrant_url=served.url) as bench, bench.run_worker():
        closed: list[PoolClosed] = []
        bench.app.on(PoolClosed)(closed.append)
        served.away = True
        made = await bench.articles.create("磨坊", "退潮时放水冲动水轮")
        error = await until(lambda: error_of(bench, made.id))
        assert error.startswith(f"Qdrant at {served.url} answered 503")
        calls_before = len(served.calls)
        await until(lambda: has_been_asked(served, calls_before + 4))
        assert bench.calls == []
        served.away = False
        [done] = await bench.wait_until_settled(made.id)
        assert (done.rag_status, done.rag_error) == ("completed", None)
        job = bench.app.job(done.rag_job or "")
        assert await job.result(10) == 1
        assert (await job.status()).attempts == 1
        served.away = True
        await bench.articles.change(made.id, title="新标题")
        served.away = False
        await until(lambda: titled(served, "新标题"))
        assert len(bench.calls) == 1
        assert closed == []  # the provider is not involved


async def test_a_model_of_another_size_fails_once_and_is_not_paid_for_again(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench, bench.run_worker():
        piece = ArticleChunk(post_id=404, version=1, index=0, text="潮")
        await bench.articles.vectors.write([piece], [[1.0, 0.0]], {404: post(404)})
        made = await bench.articles.create("磨坊", "内容")
        [failed] = await bench.wait_until_settled(made.id)
        assert failed.rag_status == "failed"
        assert "has vectors of 2 numbers" in (failed.rag_error or "")
        assert len(bench.calls) == 1


async def has_been_asked(served: StandIn, times: int) -> bool:
    return len(served.calls) >= times


async def error_of(bench: Bench, post_id: int) -> str | None:
    return (await bench.post(post_id)).rag_error


async def titled(served: StandIn, title: str) -> bool:
    points, _ = served.client.scroll("blog_posts")
    return [point.payload["title"] for point in points if point.payload] == [title]


async def test_an_unreachable_qdrant_is_reported_in_one_sentence() -> None:
    vectors = ArticleVectors(open_qdrant("http://127.0.0.1:9", ""), "blog_posts", "m")
    with pytest.raises(VectorsUnavailable, match=r"Qdrant at http://127\.0\.0\.1:9 cannot be reached"):
        await vectors.count()
    await vectors.close()


async def test_vectors_that_are_paid_for_and_cannot_be_written_cost_an_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server can be read but refuses writes: its disk is full. Without a charged attempt, every retry
    would pay again."""
    monkeypatch.setattr("tidemill_apps.articles.qdrant.UNAVAILABLE_RETRY_SECONDS", 0.01)
    async with stand_in() as served, bench_in(tmp_path, qdrant_url=served.url) as bench, bench.run_worker():
        closed: list[PoolClosed] = []
        bench.app.on(PoolClosed)(closed.append)
        served.read_only = True
        made = await bench.articles.create("磨坊", "退潮时放水冲动水轮")
        [failed] = await bench.wait_until_settled(made.id)
        assert failed.rag_status == "failed"
        assert "answered 503 to upsert" in (failed.rag_error or "")
        assert len(bench.calls) == 3
        assert closed == []
        served.read_only = False
        await bench.articles.requests.request(made.id, MANUAL_PRIORITY)
        assert [post.rag_status for post in await bench.wait_until_settled(made.id)] == ["completed"]


async def test_a_question_of_another_size_is_one_sentence(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench, bench.run_worker():
        piece = ArticleChunk(post_id=1, version=1, index=0, text="潮")
        await bench.articles.vectors.write([piece], [[1.0, 0.0]], {1: post(1)})
        with pytest.raises(SearchUnavailable, match="blog_posts has vectors of 2 numbers"):
            await bench.articles.search("潮")


async def test_a_collection_with_named_vectors_is_not_paid_for(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        named = {"text": models.VectorParams(size=2, distance=models.Distance.COSINE)}
        await bench.articles.vectors._call("create_collection", vectors_config=named)
        made = await bench.articles.create("磨坊", "内容")
        async with bench.run_worker():
            [failed] = await bench.wait_until_settled(made.id)
        assert failed.rag_status == "failed"
        assert "blog_posts has vectors with names" in (failed.rag_error or "")
        assert bench.calls == []


async def test_points_of_others_in_the_collection_are_neither_found_nor_swept(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        vectors = bench.articles.vectors
        await vectors.write(
            [ArticleChunk(post_id=n, version=1, index=0, text="潮") for n in (1, 2)],
            [[1.0, 0.0], [1.0, 0.0]],
            {1: post(1), 2: post(2)},
        )
        foreign = build_point_id(1, 1, 0)
        await vectors._call("delete_payload", keys=["postId"], points=[foreign])
        assert [hit.postId for hit in await vectors.search([1.0, 0.0], 5)] == [2]
        assert await bench.articles.reconciler.sweep() == 1
        [kept], _ = await vectors._call("scroll", limit=5)
        assert kept.id == foreign


async def test_chunks_of_an_article_that_is_gone_are_not_those_of_the_next_one(tmp_path: Path) -> None:
    """In an existing table on SQLite, the next article gets the id of the last deleted one."""
    secret = "潮" * 45
    async with bench_in(tmp_path, chunk_tokens=10, chunk_overlap=0) as bench, bench.run_worker():
        gone = await bench.articles.create("秘密", secret)
        await bench.wait_until_settled(gone.id)
        await bench.posts.delete(gone.id)  # by another program, and the next one has its id
        async with bench.posts.database.transaction() as connection:
            row = {"id": gone.id, "title": "新", "content": "汐" * 10, "rag_status": "pending"}
            await connection.execute(insert(bench.posts.table).values(row))
        await bench.wait_until_settled(gone.id)
        assert [hit.chunkText for hit in await bench.articles.search(secret)] == ["汐" * 10]
        assert await bench.articles.reconciler.sweep() == 4
        assert await bench.articles.vectors.count() == 1
        await bench.articles.delete(gone.id)
        assert (await bench.articles.create("再")).id != gone.id  # in a table of this application
