"""Stale runs: their article was deleted and its id reused, or their lease was lost and another run was
faster.

Their late writes must not remain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, update

from tests.apps.articles.service_kit import Bench, bench_in, until
from tidemill_apps.articles import tasks
from tidemill_apps.articles.posts import Post
from tidemill_apps.articles.service import open_embeddings
from tidemill_apps.articles.tasks import BatchEmbedder
from tidemill_apps.articles.vectors import ArticleChunk, ArticleVectors
from tidemill_apps.common.database import Database

OLD, NEW = "旧的内容是潮水", "新的内容是面粉"
LONG = "".join(f"第{number}句说的是潮水与磨坊的故事。" for number in range(40))
IN_PIECES: dict[str, Any] = {"chunk_tokens": 50, "chunk_overlap": 0, "inputs_per_call": 1}


class Held:
    """A method whose first call waits until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, method: str) -> None:
        self.reached, self.let_go = asyncio.Event(), asyncio.Event()
        self._method, self._first = getattr(owner, method), True

        async def call(*given: Any, **named: Any) -> Any:
            if self._first:
                self._first = False
                self.reached.set()
                await self.let_go.wait()
            return await self._method(*given, **named)

        monkeypatch.setattr(owner, method, call)


class Run:
    """The context of a handler whose lease may be lost."""

    def __init__(self, job: str) -> None:
        self.job_id, self.batch = job, (job,)

    def used(self, *_: object, **__: object) -> None: ...


@asynccontextmanager
async def reusing(folder: Path, **options: Any) -> AsyncIterator[Bench]:
    """Uses a table of another program, where SQLite reuses the id of the last row after its deletion."""
    columns = (Column(name, Text) for name in ("title", "content", "hide", "rag_status", "rag_error"))
    table = Table("tb_post", MetaData(), Column("id", Integer, primary_key=True), *columns)
    database = Database(f"sqlite:///{folder / 'articles.db'}")
    await database.prepare(table.metadata)
    await database.close()
    async with bench_in(folder, **options) as bench:
        yield bench


async def embed(bench: Bench, post_id: int, job: str) -> None:
    """Runs an embedding outside of any worker."""
    its = bench.articles
    embedding = BatchEmbedder(
        its.posts, its.vectors, its.packer, its.metrics, pool=its.pool, counts_tokens=False
    )
    async with open_embeddings(its.settings, bench.app.clock) as embeddings:
        await embedding.run(Run(job), embeddings, [post_id])  # type: ignore[arg-type]


async def texts(bench: Bench) -> list[str]:
    if not await bench.articles.vectors.count():
        return []
    points, _ = await bench.articles.vectors._call("scroll", limit=50)
    return sorted(point.payload["chunkText"] for point in points)


@pytest.mark.parametrize("text", ["", NEW])
async def test_the_run_of_an_article_that_is_gone_leaves_nothing_to_the_next_one_of_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    async with reusing(tmp_path) as bench, bench.run_worker():
        old = Held(monkeypatch, bench.provider, "serve")
        gone = await bench.articles.create("秘密", OLD)
        await old.reached.wait()
        await bench.articles.delete(gone.id)
        new = Held(monkeypatch, bench.provider, "serve")
        made = await bench.articles.create("新", text)
        assert made.id == gone.id
        old.let_go.set()
        await bench.app.job(gone.rag_job or "").result(10)
        row = await bench.post(made.id)
        assert (row.rag_current, row.rag_status) == (0, made.rag_status)
        assert OLD not in await texts(bench)
        new.let_go.set()
        if text:
            [done] = await bench.wait_until_settled(made.id)
            assert done.rag_status == "completed"
            assert await texts(bench) == [NEW]


async def test_the_job_of_an_article_that_is_gone_embeds_the_next_one_of_its_id(tmp_path: Path) -> None:
    async with reusing(tmp_path) as bench:
        gone = await bench.articles.create("秘密", OLD)
        await bench.articles.delete(gone.id)
        made = await bench.articles.create("新", NEW)
        assert made.id == gone.id
        async with bench.run_worker():
            [done] = await bench.wait_until_settled(made.id)
        assert done.rag_status == "completed"
        assert (await texts(bench), bench.calls) == ([NEW], [[NEW]])


async def test_leftover_chunks_of_a_deleted_article_are_swept_when_its_id_is_reused(tmp_path: Path) -> None:
    async with reusing(tmp_path, sweep_seconds=0.1) as bench, bench.run_worker():
        gone = await bench.articles.create("秘密", "第一版")
        await bench.wait_until_settled(gone.id)
        await bench.articles.change(gone.id, content=OLD)
        await bench.wait_until_settled(gone.id)
        await bench.posts.delete(gone.id)  # by another program, without a request to delete its vectors
        made = await bench.posts.create("新")
        assert made.id == gone.id
        await until(lambda: is_left(bench, []))


async def is_left(bench: Bench, expected: list[str]) -> bool:
    return await texts(bench) == expected


async def test_points_that_go_late_take_none_of_the_next_article_of_their_id_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reusing(tmp_path) as bench:
        gone = await bench.posts.create("秘密", OLD)
        await bench.posts.delete(gone.id)
        late = Held(monkeypatch, ArticleVectors, "delete_post")
        running = asyncio.create_task(tasks.refresh_payload(bench.posts, bench.articles.vectors, gone.id))
        await late.reached.wait()
        made = await bench.articles.create("新", NEW)
        assert made.id == gone.id
        async with bench.run_worker():
            await bench.wait_until_settled(made.id)
            late.let_go.set()
            await running
            await until(lambda: is_left(bench, [NEW]))


async def test_an_old_text_that_is_written_last_is_not_what_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program changes the text without a new version: both runs write points with the same names."""
    async with bench_in(tmp_path, reconcile_seconds=0.1) as bench:
        post = await bench.posts.create("磨坊", OLD)
        late = Held(monkeypatch, ArticleVectors, "write")
        stale = asyncio.create_task(embed(bench, post.id, "a"))
        await late.reached.wait()
        await change_row(bench, post, content=NEW, rag_status="pending")
        await embed(bench, post.id, "a")
        assert (await bench.post(post.id)).rag_status == "completed"
        late.let_go.set()
        await stale
        assert OLD not in await texts(bench)
        async with bench.run_worker():
            await until(lambda: is_left(bench, [NEW]))
            await bench.wait_until_settled(post.id)
            assert [found.chunkText for found in await bench.articles.search(OLD)] == [NEW]


async def change_row(bench: Bench, post: Post, **values: Any) -> None:
    table = bench.posts.table
    async with bench.posts.database.transaction() as connection:
        await connection.execute(update(table).where(table.c.id == post.id).values(values))


async def test_a_run_that_was_overtaken_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer came after the other run had finished."""
    async with bench_in(tmp_path) as bench:
        post = await bench.posts.create("磨坊", OLD)
        slow = Held(monkeypatch, bench.provider, "serve")
        stale = asyncio.create_task(embed(bench, post.id, "a"))
        await slow.reached.wait()
        await bench.posts.change(post.id, content=NEW)
        await embed(bench, post.id, "b")
        done = await bench.post(post.id)
        written: list[ArticleChunk] = []
        noted(monkeypatch, written)
        slow.let_go.set()
        await stale
        assert (await bench.post(post.id), await texts(bench)) == (done, [NEW])
        assert written == []


def noted(monkeypatch: pytest.MonkeyPatch, written: list[ArticleChunk]) -> None:
    write = ArticleVectors.write

    async def note(self: ArticleVectors, pieces: Sequence[ArticleChunk], *given: Any) -> None:
        written.extend(pieces)
        await write(self, pieces, *given)

    monkeypatch.setattr(ArticleVectors, "write", note)


@pytest.mark.parametrize("writer", ["an embedding", "a refresh that then died"])
async def test_an_article_that_a_stale_run_hid_again_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    async with bench_in(tmp_path) as bench:
        made = await bench.posts.create("磨坊", OLD, "1")
        if writer == "an embedding":
            late = Held(monkeypatch, ArticleVectors, "write")
            stale = asyncio.create_task(embed(bench, made.id, "a"))
            await late.reached.wait()
        await embed(bench, made.id, "a")
        hidden = await bench.post(made.id)
        await bench.posts.change(made.id, hide="0")
        await tasks.refresh_payload(bench.posts, bench.articles.vectors, made.id)
        if writer == "an embedding":
            late.let_go.set()
            await stale
        else:
            await bench.articles.vectors.set_label(hidden)
        shown = await bench.post(made.id)
        assert (shown.rag_label, shown.rag_status) == (shown.rag_labelled, "completed")
        async with bench.run_worker():
            await until(lambda: finds(bench, made.id))


async def finds(bench: Bench, post_id: int) -> bool:
    return await bench.found(OLD) == [post_id]


async def test_points_of_another_program_do_not_become_those_of_the_next_article_of_their_id(
    tmp_path: Path,
) -> None:
    """They have no version, like an article that was never embedded, so search would find them for it."""
    async with reusing(tmp_path) as bench:
        gone = await bench.posts.create("秘密", OLD)
        piece = ArticleChunk(post_id=gone.id, version=0, index=0, text=OLD)
        await bench.articles.vectors.write([piece], [[1.0] * 256], {gone.id: gone})
        await bench.articles.vectors._call("delete_payload", keys=["version", "model"], points=[piece.name])
        await bench.articles.delete(gone.id)
        made = await bench.articles.create("新")
        assert made.id == gone.id
        async with bench.run_worker():
            await until(lambda: is_left(bench, []), 5.0)


async def test_nothing_more_is_paid_for_an_article_that_is_gone_while_it_is_embedded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench_in(tmp_path, **IN_PIECES) as bench, bench.run_worker():
        first = Held(monkeypatch, bench.provider, "serve")
        gone = await bench.articles.create("长", LONG)
        await first.reached.wait()
        await bench.articles.delete(gone.id)
        first.let_go.set()
        await bench.app.job(gone.rag_job or "").result(10)
        assert len(bench.calls) == 1
        assert await texts(bench) == []
