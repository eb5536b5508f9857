"""The reconciler repairs the traces of dead processes, manual changes and other programs.

Nothing is lost, nothing stays in processing, and nothing is paid for twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update

from tests.apps.articles.service_kit import Bench, bench_in, until
from tidemill import Filter, QueueFull, State
from tidemill_apps.articles.chunks import CallPacker
from tidemill_apps.articles.embed_requests import BULK_PRIORITY, CHANGED_PRIORITY, EmbeddingRequests
from tidemill_apps.articles.embedding_state import EmbeddingState
from tidemill_apps.articles.status import parse_job_post_id
from tidemill_apps.articles.vectors import ArticleVectors
from tidemill_apps.common.database import DatabaseUnavailable


async def change_row(bench: Bench, post_id: int, **values: Any) -> None:
    table = bench.posts.table
    await bench.posts.prepare()
    async with bench.posts.database.transaction() as connection:
        await connection.execute(update(table).where(table.c.id == post_id).values(values))


async def run_jobs(bench: Bench, *ids: int) -> None:
    async with bench.run_worker():
        await bench.wait_until_settled(*ids)


async def test_a_row_without_a_job_gets_one(tmp_path: Path) -> None:
    """The process died between the row and the job, or another program wrote the row."""
    async with bench_in(tmp_path) as bench:
        written = await bench.posts.create("写了，没有发", "内容一")  # noqa: RUF001 - Chinese punctuation
        table = bench.posts.table
        async with bench.posts.database.transaction() as connection:
            foreign = {"title": "别的程序", "content": "内容二", "hide": "0", "rag_status": "pending"}
            made = await connection.execute(insert(table).values(foreign))
        [foreign_id] = made.inserted_primary_key or (0,)
        await run_jobs(bench, written.id, foreign_id)
        assert sorted(text for call in bench.calls for text in call) == ["内容一", "内容二"]
        assert {await first(bench, "内容一"), await first(bench, "内容二")} == {written.id, foreign_id}


async def first(bench: Bench, text: str) -> int:
    async with bench.run_worker():
        return (await bench.found(text))[0]


async def test_a_row_whose_job_is_about_to_be_enqueued_gets_one_job(tmp_path: Path) -> None:
    """The reconciler sees the row before its writer has enqueued the job, and the job runs at once."""
    async with bench_in(tmp_path) as bench:
        written = await bench.posts.create("正在发送", "内容")
        await run_jobs(bench, written.id)
        await bench.articles.requests.send([written], CHANGED_PRIORITY)
        page = await bench.app.inspect.find(Filter(queue=bench.articles.queue))
        assert [(job.id, job.state) for job in page.jobs] == [(written.rag_job, State.DONE)]


async def test_a_row_whose_job_was_deleted_is_embedded(tmp_path: Path) -> None:
    """The store remembers the id of a deleted job, so the row needs a job with a new id."""
    async with bench_in(tmp_path) as bench:
        post = await bench.articles.create("删了", "内容")
        await bench.app.inspect.delete(Filter(queue=bench.articles.queue))
        assert post.rag_job is not None
        await run_jobs(bench, post.id)
        assert (await bench.post(post.id)).rag_status == "completed"
        assert (await bench.post(post.id)).rag_job != post.rag_job


async def test_a_row_that_says_processing_without_a_job_is_embedded(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        post = await bench.posts.create("死了", "内容")
        await change_row(bench, post.id, rag_status="processing", rag_job=None)
        await run_jobs(bench, post.id)
        assert (await bench.post(post.id)).rag_status == "completed"


async def test_an_article_that_was_completed_since_the_look_gets_no_job(tmp_path: Path) -> None:
    """The check found it pending without a job; another run completed it before it was sent again."""
    async with bench_in(tmp_path) as bench:
        seen = await bench.posts.create("刚好完成", "内容")
        await change_row(bench, seen.id, rag_status="completed")
        assert await EmbeddingState(bench.posts).requeue([seen]) == []
        assert (await bench.post(seen.id)).rag_status == "completed"


async def test_an_article_shows_that_its_job_was_cancelled_and_why(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        post = await bench.articles.create("取消", "内容")
        await bench.app.inspect.cancel(Filter(queue=bench.articles.queue), reason="太贵")
        async with bench.run_worker():
            [cancelled] = await bench.wait_until_settled(post.id)
            assert (cancelled.rag_status, cancelled.rag_error) == ("failed", "cancelled: 太贵")
            assert bench.calls == []
            await bench.app.inspect.retry(cancelled.rag_job or "")
            await until(lambda: completed(bench, post.id))


async def completed(bench: Bench, post_id: int) -> bool:
    return (await bench.post(post_id)).rag_status == "completed"


STEPS: dict[str, tuple[type, str]] = {
    "before the vectors are written": (ArticleVectors, "write"),
    "before the row names them": (EmbeddingState, "finish"),
    "before the old ones are deleted": (ArticleVectors, "delete_version"),
}


@pytest.mark.parametrize("step", STEPS)
async def test_a_death_between_two_steps_leaves_one_version_to_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The attempt ends where the process would have died, and another process runs the next one. Points
    that are written and not yet visible to search survive a sweep."""
    old, new = "旧的内容是潮水", "新的内容是面粉"
    async with bench_in(tmp_path, retry_seconds=60.0, reconcile_seconds=60.0) as bench:
        post = await bench.articles.create("磨坊", old)
        async with bench.run_worker():
            await bench.app.job(post.rag_job or "").result(10)
            dying(monkeypatch, *STEPS[step])
            await bench.articles.change(post.id, content=new)
            job = (await bench.post(post.id)).rag_job or ""
            await until(lambda: waits_again(bench, job))
            expected, other = (new, old) if step == "before the old ones are deleted" else (old, new)
            assert [hit.chunkText for hit in await bench.articles.search(other)] == [expected]
            await bench.articles.reconciler.sweep()
            await bench.app.inspect.run(job)
            await bench.app.job(job).result(10)
            assert [hit.chunkText for hit in await bench.articles.search(old)] == [new]
        paid = bench.calls.count([new]) - (other == new)  # without the query
        assert paid == (2 if step == "before the vectors are written" else 1)
        assert await bench.articles.vectors.count() == 1


async def waits_again(bench: Bench, job: str) -> bool:
    return (await bench.app.job(job).status()).state is State.SCHEDULED


def dying(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, error: Exception | None = None) -> None:
    """Makes a method fail once; the next call works. Without an error, the attempt times out."""
    alive: Callable[..., Awaitable[Any]] = getattr(owner, method)

    async def die(*_: Any, **__: Any) -> None:
        monkeypatch.setattr(owner, method, alive)
        raise error or TimeoutError("died here")

    monkeypatch.setattr(owner, method, die)


async def test_a_request_that_died_before_it_was_sent_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench_in(tmp_path) as bench:
        dying(monkeypatch, EmbeddingRequests, "send")
        with pytest.raises(TimeoutError):
            await bench.articles.create("磨坊", "内容")
        [post] = await bench.posts.load_recent()
        await run_jobs(bench, post.id)
        assert bench.calls == [["内容"]]


async def test_a_full_queue_keeps_articles_waiting_until_there_is_room(tmp_path: Path) -> None:
    async with bench_in(tmp_path, queue_limit=2) as bench:
        ids = [(await bench.articles.create(f"第{n}篇", f"内容{n}")).id for n in range(5)]
        counts = (await bench.app.inspect.counts())[bench.articles.queue]
        assert counts[State.READY] == 2
        await run_jobs(bench, *ids)
        assert {post.rag_status for post in await bench.posts.load(ids)} == {"completed"}


async def test_articles_waiting_for_a_full_queue_keep_their_priority_and_are_not_chunked_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new text comes before texts that are only embedded again, and a full queue costs no work."""
    async with bench_in(tmp_path, queue_limit=4) as bench:
        old = [(await bench.posts.create(f"旧{n}", f"旧的{n}")).id for n in range(2)]
        await run_jobs(bench, *old)
        full = [(await bench.articles.create(f"{n}", "内容")).id for n in range(4)]
        with pytest.raises(QueueFull):
            await bench.articles.requests.request_all()
        new = (await bench.articles.create("新", "新的内容")).id
        with monkeypatch.context() as patched:
            patched.delattr(CallPacker, "cost")
            await bench.articles.reconciler.reconcile()
        await bench.app.inspect.cancel(Filter(queue=bench.articles.queue, states=(State.READY,)))
        await change_row(bench, full[0], rag_status=None)
        await change_row(bench, full[1], rag_status=None)
        await bench.articles.reconciler.reconcile()
        page = await bench.app.inspect.find(Filter(queue=bench.articles.queue, states=(State.READY,)))
        waiting = {parse_job_post_id(job): job.priority for job in page.jobs}
        assert waiting == {
            full[2]: CHANGED_PRIORITY,
            full[3]: CHANGED_PRIORITY,
            new: CHANGED_PRIORITY,
            old[0]: BULK_PRIORITY,
        }


async def test_a_database_that_is_away_costs_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill_apps.common.database.UNAVAILABLE_RETRY_SECONDS", 0.2)
    async with bench_in(tmp_path) as bench, bench.run_worker():
        dying(monkeypatch, EmbeddingState, "finish", DatabaseUnavailable("the database is away"))
        post = await bench.articles.create("磨坊", "内容")
        [done] = await bench.wait_until_settled(post.id)
        assert (done.rag_status, done.rag_error) == ("completed", None)
        job = bench.app.job(done.rag_job or "")
        assert await job.result(10) == 1
        assert (await job.status()).attempts == 1
        assert len(bench.calls) == 1


async def test_points_of_other_versions_and_of_articles_that_are_gone_are_swept(tmp_path: Path) -> None:
    async with bench_in(tmp_path, sweep_seconds=0.2) as bench:
        one, two = await bench.articles.create("一", "内容一"), await bench.articles.create("二", "内容二")
        await run_jobs(bench, one.id, two.id)
        await bench.posts.delete(one.id)  # by another program, without a request to delete its vectors
        async with bench.run_worker():
            await until(lambda: has_points(bench, 1))
            assert await bench.found("内容") == [two.id]


async def has_points(bench: Bench, count: int) -> bool:
    return await bench.articles.vectors.count() == count


async def test_a_completed_article_without_vectors_is_embedded_again(tmp_path: Path) -> None:
    async with bench_in(tmp_path, reconcile_seconds=60.0) as bench:
        posts = [await bench.articles.create(f"磨坊{n}", f"内容{n}") for n in range(3)]
        async with bench.run_worker():
            await bench.wait_until_settled(*(post.id for post in posts))
            bench.calls.clear()
            foreign = await bench.posts.create("别的程序", "没有向量")
            await change_row(bench, foreign.id, rag_status="completed", rag_job=None, rag_version=0)
            await bench.articles.vectors.delete_version(posts[1].id, 1, 1)
            await bench.articles.reconciler.sweep()
            await until(lambda: embedded_at(bench, posts[1].id, 2))
            await until(lambda: embedded_at(bench, foreign.id, 1))
            assert sorted(text for call in bench.calls for text in call) == ["内容1", "没有向量"]
            await bench.articles.reconciler.sweep()
            assert (await bench.post(posts[1].id)).rag_status == "completed"


async def embedded_at(bench: Bench, post_id: int, version: int) -> bool:
    post = await bench.post(post_id)
    return (post.rag_status, post.rag_current) == ("completed", version)


async def test_many_articles_without_vectors_are_logged_once_and_not_embedded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench_in(tmp_path) as bench:
        posts = [await bench.posts.create(f"磨坊{n}", f"内容{n}") for n in range(11)]
        for post in posts:
            await change_row(bench, post.id, rag_status="completed", rag_current=1, rag_chunks=1)
        for _ in range(2):
            await bench.articles.reconciler.sweep()
        messages = [message for message in caplog.messages if "have no vectors" in message]
        assert len(messages) == 1
        assert messages[0].startswith("11 of 11 completed articles have no vectors in the collection; ")
        assert (await bench.posts.count_by_status())["completed"] == 11
