"""The life cycle of an article: written, embedded, found, changed, hidden, deleted (E4 to E6, E9)."""

from __future__ import annotations

# ruff: noqa: RUF001 - Chinese punctuation
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from sqlalchemy import update

from tests.apps.articles.service_kit import Bench, bench_in, until
from tidemill import State
from tidemill.testing.simulator import ReplyFaults
from tidemill_apps.articles.embed_requests import BULK_PRIORITY, MANUAL_PRIORITY
from tidemill_apps.articles.posts import Post

TIDE = "# 潮汐磨坊\n\n涨潮时水冲开闸门，灌满水池；退潮时放水冲动水轮，带动石磨。"
BREAD = "# Sourdough\n\nFeed the starter flour and water once a day at room temperature."


async def test_a_text_is_embedded_and_found_and_another_text_takes_its_place(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench, bench.run_worker():
        articles = bench.articles
        tide, bread = await articles.create("磨坊", TIDE), await articles.create("Bread", BREAD)
        assert (tide.rag_status, tide.rag_error) == ("pending", None)
        assert [post.rag_status for post in await bench.wait_until_settled(tide.id, bread.id)] == [
            "completed"
        ] * 2
        assert (await bench.found("退潮时放水冲动水轮"))[0] == tide.id
        assert (await bench.found("feed the starter flour"))[0] == bread.id
        changed = await articles.change(tide.id, content="# 猫\n\n猫喜欢睡觉，白天常常睡在窗台上。")
        assert changed is not None
        assert (changed.text, changed.label, changed.post.rag_status) == (True, False, "pending")
        await bench.wait_until_settled(tide.id)
        assert (await bench.found("猫常常睡在窗台上"))[0] == tide.id
        assert await articles.vectors.count() == 2  # the old version is gone
        assert await articles.change(tide.id, content="# 猫\n\n猫喜欢睡觉，白天常常睡在窗台上。") is not None
        assert (await bench.post(tide.id)).rag_status == "completed"  # nothing changed
        assert await articles.change(404, title="x") is None


async def test_titles_and_hiding_reach_the_vectors_without_a_call(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench, bench.run_worker():
        post = await bench.articles.create("磨坊", TIDE)
        await bench.wait_until_settled(post.id)
        assert await bench.found("水轮") == [post.id]
        calls = len(bench.calls)
        await bench.articles.change(post.id, title="新标题", hide="1")
        assert await bench.found("水轮") == []
        await until(lambda: labelled(bench, post.id, {"title": "新标题", "hide": "1"}))
        await bench.articles.change(post.id, hide="0")
        await until(lambda: labelled(bench, post.id, {"title": "新标题", "hide": "0"}))
        [found] = await bench.articles.search("水轮")
        assert found.title == "新标题"
        assert len(bench.calls) == calls


async def test_a_title_changed_during_embedding_is_kept(
    tmp_path: Path,
) -> None:
    async with bench_in(tmp_path, options={"latency": (0.3, 0.3)}) as bench, bench.run_worker():
        post = await bench.articles.create("旧", TIDE)
        await until(lambda: is_processing(bench, post.id))
        await bench.articles.change(post.id, title="新", hide="1")
        await bench.wait_until_settled(post.id)
        await until(lambda: labelled(bench, post.id, {"title": "新", "hide": "1"}))


async def test_an_empty_text_takes_the_vectors_away_and_costs_nothing(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench, bench.run_worker():
        post = await bench.articles.create("磨坊", TIDE)
        await bench.wait_until_settled(post.id)
        await bench.articles.change(post.id, content="")
        await bench.wait_until_settled(post.id)
        await until(lambda: is_empty(bench))
        assert len(bench.calls) == 1
        assert (await bench.articles.create("no text")).rag_status is None


async def test_vectors_of_a_deleted_article_go(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench, bench.run_worker():
        post = await bench.articles.create("磨坊", TIDE)
        await bench.wait_until_settled(post.id)
        assert await bench.articles.delete(post.id)
        assert await bench.found("水轮") == []
        await until(lambda: is_empty(bench))
        assert not await bench.articles.delete(post.id)


async def test_three_attempts_then_failed_and_the_old_vectors_stay(tmp_path: Path) -> None:
    """The reconciler runs rarely here: a row that is just being sent would get a second job."""
    faults = ReplyFaults(null_vector=frozenset({2, 3, 4}))
    rare: dict[str, Any] = {"retry_seconds": 0.3, "reconcile_seconds": 60.0}
    async with bench_in(tmp_path, options={"faults": faults}, **rare) as bench, AsyncExitStack() as stack:
        post = await bench.articles.create("磨坊", TIDE)
        await stack.enter_async_context(bench.run_worker())
        await bench.wait_until_settled(post.id)
        await bench.articles.change(post.id, content=BREAD)
        waiting = await until(lambda: waits_with_error(bench, post.id))
        assert waiting.rag_status == "pending"
        assert "chunk 1 of 1" in (waiting.rag_error or "")
        [failed] = await bench.wait_until_settled(post.id)
        assert failed.rag_status == "failed"
        assert "chunk 1 of 1" in (failed.rag_error or "")
        job = await bench.app.job(failed.rag_job or "").status()
        assert (job.state, job.attempts, job.priority) == (State.FAILED, 3, 5 + 2)
        assert await bench.found("退潮时放水冲动水轮") == [post.id]
        assert await bench.articles.requests.request(post.id, MANUAL_PRIORITY) is not None
        [again] = await bench.wait_until_settled(post.id)
        assert (again.rag_status, again.rag_error) == ("completed", None)


async def test_a_vector_that_is_left_out_fails_its_own_article_only(tmp_path: Path) -> None:
    faults = ReplyFaults(missing_vector=frozenset({1}), reordered=frozenset({2}))
    async with bench_in(tmp_path, options={"faults": faults}) as bench:
        one, two = await bench.articles.create("磨坊", TIDE), await bench.articles.create("Bread", BREAD)
        async with bench.run_worker():
            assert {post.rag_status for post in await bench.wait_until_settled(one.id, two.id)} == {
                "completed"
            }
            assert [len(call) for call in bench.calls] == [2, 1]
            assert (await bench.found("退潮时放水冲动水轮"))[0] == one.id


async def test_an_edit_while_it_waits_is_one_run_and_an_edit_while_it_runs_one_more(tmp_path: Path) -> None:
    async with bench_in(tmp_path, options={"latency": (0.3, 0.3)}, reconcile_seconds=60.0) as bench:
        post = await bench.articles.create("磨坊", "第一版")
        for text in ("第二版", "第三版"):
            await bench.articles.change(post.id, content=text)
        async with bench.run_worker():
            await until(lambda: is_processing(bench, post.id))
            for text in ("第四版", "第五版"):
                await bench.articles.change(post.id, content=text)
            assert (await bench.post(post.id)).rag_status == "pending"
            await bench.wait_until_settled(post.id)
            assert bench.calls == [["第三版"], ["第五版"]]
            [hit] = await bench.articles.search("第五版")
            assert hit.chunkText == "第五版"


async def test_five_quick_triggers_are_one_job_and_one_call(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        post = await bench.articles.create("磨坊", TIDE)
        jobs = [await bench.articles.requests.request(post.id, MANUAL_PRIORITY) for _ in range(5)]
        assert len({job.id for job in jobs if job is not None}) == 1
        counts = (await bench.app.inspect.counts())[bench.articles.queue]
        assert counts[State.READY] == 1
        assert (await bench.post(post.id)).rag_job == jobs[0].id  # type: ignore[union-attr]
        async with bench.run_worker():
            await bench.wait_until_settled(post.id)
        assert len(bench.calls) == 1


async def test_a_trigger_goes_before_the_bulk_and_an_embedded_article_is_embedded_again(
    tmp_path: Path,
) -> None:
    async with bench_in(tmp_path, inputs_per_call=1, concurrency=1) as bench:
        ids = [(await bench.articles.create(f"第{n}篇", f"文章{n}")).id for n in range(4)]
        async with bench.run_worker():
            await bench.wait_until_settled(*ids)
        before = len(bench.calls)
        assert await bench.articles.requests.request_all() == 4
        assert await bench.articles.requests.request(ids[-1], MANUAL_PRIORITY) is not None
        assert await bench.articles.requests.request(404, MANUAL_PRIORITY) is None
        assert await bench.articles.requests.request_many([*ids, 404], BULK_PRIORITY) == 4
        async with bench.run_worker():
            await bench.wait_until_settled(*ids)
        again = bench.calls[before:]
        assert again == [["文章3"], ["文章0"], ["文章1"], ["文章2"]]


async def test_an_article_larger_than_a_call_shares_its_last_one(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"inputs_per_call": 4, "chunk_tokens": 10, "chunk_overlap": 0, "concurrency": 1}
    async with bench_in(tmp_path, **sizes) as bench:
        large = await bench.articles.create("长文", "潮" * 10 * 9)
        small = await bench.articles.create("短文", "汐" * 10 * 3)
        async with bench.run_worker():
            assert {post.rag_status for post in await bench.wait_until_settled(large.id, small.id)} == {
                "completed"
            }
        assert [len(call) for call in bench.calls] == [4, 4, 4]  # 12 chunks, three calls
        assert ((await bench.post(large.id)).rag_chunks, (await bench.post(small.id)).rag_chunks) == (9, 3)


async def test_a_text_that_grew_since_it_was_requested_makes_more_calls(tmp_path: Path) -> None:
    """Another program changed the text in the table, and the count was not updated."""
    sizes: dict[str, Any] = {"inputs_per_call": 2, "chunk_tokens": 10, "chunk_overlap": 0}
    async with bench_in(tmp_path, **sizes) as bench:
        post = await bench.articles.create("短", "潮" * 10)
        async with bench.posts.database.transaction() as connection:
            table = bench.posts.table
            await connection.execute(update(table).where(table.c.id == post.id).values(content="汐" * 50))
        async with bench.run_worker():
            [done] = await bench.wait_until_settled(post.id)
        assert (done.rag_status, done.rag_chunks) == ("completed", 5)
        assert [len(call) for call in bench.calls] == [2, 2, 1]


async def test_every_night_what_is_shown_is_embedded_again(tmp_path: Path) -> None:
    """With a night of one second."""
    async with bench_in(tmp_path, nightly="* * * * * *", nightly_zone="Asia/Shanghai") as bench:
        shown = await bench.articles.create("磨坊", TIDE)
        await bench.articles.create("藏", "秘密", hide="1")
        async with bench.run_worker():
            await until(lambda: has_version(bench, shown.id, 2))
        texts = [text for call in bench.calls for text in call]
        assert texts.count("秘密") == 1


async def has_version(bench: Bench, post_id: int, version: int) -> bool:
    return (await bench.post(post_id)).rag_current >= version


async def waits_with_error(bench: Bench, post_id: int) -> Post | None:
    post = await bench.post(post_id)
    return post if post.rag_status == "pending" and post.rag_error else None


async def is_processing(bench: Bench, post_id: int) -> bool:
    return (await bench.post(post_id)).rag_status == "processing"


async def is_empty(bench: Bench) -> bool:
    return await bench.articles.vectors.count() == 0


async def labelled(bench: Bench, post_id: int, label: dict[str, str]) -> bool:
    """Checks the payload in Qdrant, as other programs read it."""
    points, _ = await bench.articles.vectors._call("scroll", limit=100)
    payloads = [point.payload for point in points if point.payload["postId"] == post_id]
    return bool(payloads) and all(label.items() <= payload.items() for payload in payloads)
