"""While Qdrant is unavailable nothing is paid for, and every error names the problem and its setting."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from tests.apps.articles.fake_qdrant import StandIn, stand_in
from tests.apps.articles.service_kit import Bench, bench_in, until
from tests.apps.articles.test_pages import get_page
from tests.apps.articles.web_kit import Blog, blog_in
from tests.servers.program import free_port
from tidemill import Filter
from tidemill_apps.articles.qdrant import VectorsUnavailable
from tidemill_apps.articles.service import EMBEDDINGS_POOL
from tidemill_apps.articles.status import EmbeddingProgress

LIMITS: dict[str, Any] = {"requests_per_window": 100, "tokens_per_window": 100_000}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("qdrant", "reconciler"):
        monkeypatch.setattr(f"tidemill_apps.articles.{module}.UNAVAILABLE_RETRY_SECONDS", 0.2)


async def used(bench: Bench) -> dict[str, float]:
    pool = await bench.app.inspect.pool(EMBEDDINGS_POOL)
    return {view.unit: view.used for view in pool.limits}


async def has_many_calls(served: StandIn) -> bool:
    return len(served.calls) >= 8


async def test_an_attempt_that_could_not_store_its_vectors_gives_back_what_was_taken_for_it(
    tmp_path: Path,
) -> None:
    async with stand_in() as served, bench_in(tmp_path, qdrant_url=served.url, **LIMITS) as bench:
        served.away = True
        posts = [await bench.articles.create(f"第{n}篇", "退潮时放水冲动水轮") for n in range(3)]
        async with bench.run_worker():
            await until(lambda: has_many_calls(served))
        assert bench.calls == []
        assert await used(bench) == {"concurrent": 0, "requests": 0, "tokens": 0}
        served.away = False
        async with bench.run_worker():
            await bench.wait_until_settled(*(post.id for post in posts))
        assert len(bench.calls) == 1
        assert (await used(bench))["requests"] == 1


async def test_a_question_is_not_paid_for_while_nothing_can_be_found(tmp_path: Path) -> None:
    async with stand_in() as served, bench_in(tmp_path, qdrant_url=served.url) as bench, bench.run_worker():
        served.away = True
        with pytest.raises(VectorsUnavailable, match="ARTICLES_QDRANT_URL"):
            await bench.found("水轮")
        assert bench.calls == []
        served.away = False
        assert await bench.found("水轮") == []
        assert len(bench.calls) == 1


async def test_every_place_says_what_is_wrong_and_which_setting_to_look_at(tmp_path: Path) -> None:
    unreachable_url = f"http://127.0.0.1:{free_port()}"
    async with blog_in(tmp_path, qdrant_url=unreachable_url) as blog:
        number = await blog.write()
        async with blog.run_worker():
            await until(lambda: blocked_reason(blog))
            reason = await blocked_reason(blog)
            assert reason is not None
            assert reason.startswith(f"Qdrant at {unreachable_url} cannot be reached: ")
            assert reason.endswith("; start it, or set ARTICLES_QDRANT_URL to where it is")
            for path in ("/articles", f"/articles/{number}"):
                shown = (await get_page(blog, path)).text
                assert (
                    f"Embedding and search are unavailable: Qdrant at {unreachable_url} cannot be reached"
                    in shown
                )
                assert "ARTICLES_QDRANT_URL" in shown
            assert (await EmbeddingProgress(blog.articles).counts()).blocked_reason == reason
            assert "目前无法向量化和搜索" in (await get_page(blog, "/articles", "zh")).text


async def test_another_process_knows_it_from_jobs_that_were_put_off_and_articles_that_are_tried_again(
    tmp_path: Path,
) -> None:
    unreachable_url = f"http://127.0.0.1:{free_port()}"
    async with blog_in(tmp_path, qdrant_url=unreachable_url) as blog:
        await blog.write()
        async with blog.run_worker():
            await until(lambda: blocked_reason(blog))
    async with blog_in(tmp_path, qdrant_url=unreachable_url) as web:
        reason = await blocked_reason(web)
        assert reason is not None
        assert "ARTICLES_QDRANT_URL" in reason
        await web.app.inspect.cancel(Filter(queue=web.articles.queue))
        assert await blocked_reason(web) is None
        table = web.articles.posts.table
        async with web.articles.posts.database.transaction() as connection:
            await connection.execute(update(table).values(rag_status="processing"))
        assert await blocked_reason(web) == reason


async def test_an_unreachable_qdrant_is_detected_while_idle_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tidemill_apps")
    async with stand_in() as served, blog_in(tmp_path, qdrant_url=served.url) as blog:
        served.away = True
        async with blog.run_worker():
            await until(lambda: blocked_reason(blog))
            await until(lambda: has_many_calls(served))
            served.away = False
            await until(lambda: free(blog))
        messages = [record.getMessage() for record in caplog.records if "Qdrant" in record.getMessage()]
        assert len(messages) == 1
        assert messages[0].startswith(f"Qdrant at {served.url} answered 503")
        assert "ARTICLES_QDRANT_URL" in messages[0]


async def blocked_reason(blog: Blog) -> str | None:
    data: dict[str, Any] = (await blog.call("GET", "/api/embedding/queue/status")).json["data"]
    found: str | None = data["blockedReason"]
    return found


async def free(blog: Blog) -> bool:
    return await blocked_reason(blog) is None
