"""While Qdrant is away nothing is paid for, and every place says what is wrong and where it is set."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from tests.apps.articles.bench import Bench, bench_in, until
from tests.apps.articles.blog import Blog, blog_in
from tests.apps.articles.qdrant_stand_in import StandIn, stand_in
from tests.apps.articles.test_pages import look
from tests.servers.program import free_port
from tidemill import Filter
from tidemill_apps.articles.articles import POOL
from tidemill_apps.articles.progress import Progress
from tidemill_apps.articles.qdrant import VectorsUnavailable

LIMITS: dict[str, Any] = {"requests_per_window": 100, "tokens_per_window": 100_000}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("embedding", "minding"):
        monkeypatch.setattr(f"tidemill_apps.articles.{place}.AWAY", 0.2)


async def used(bench: Bench) -> dict[str, float]:
    pool = await bench.app.inspect.pool(POOL)
    return {view.unit: view.used for view in pool.limits}


async def asked_often(served: StandIn) -> bool:
    return len(served.calls) >= 8


async def test_an_attempt_that_could_not_store_its_vectors_gives_back_what_was_taken_for_it(
    tmp_path: Path,
) -> None:
    async with stand_in() as served, bench_in(tmp_path, qdrant_url=served.url, **LIMITS) as bench:
        served.away = True
        posts = [await bench.articles.create(f"第{n}篇", "退潮时放水冲动水轮") for n in range(3)]
        async with bench.working():
            await until(lambda: asked_often(served))
        assert bench.calls == []
        assert await used(bench) == {"concurrent": 0, "requests": 0, "tokens": 0}
        served.away = False
        async with bench.working():
            await bench.settled(*(post.id for post in posts))
        assert len(bench.calls) == 1
        assert (await used(bench))["requests"] == 1


async def test_a_question_is_not_paid_for_while_nothing_can_be_found(tmp_path: Path) -> None:
    async with stand_in() as served, bench_in(tmp_path, qdrant_url=served.url) as bench, bench.working():
        served.away = True
        with pytest.raises(VectorsUnavailable, match="ARTICLES_QDRANT_URL"):
            await bench.found("水轮")
        assert bench.calls == []
        served.away = False
        assert await bench.found("水轮") == []
        assert len(bench.calls) == 1


async def test_every_place_says_what_is_wrong_and_which_setting_to_look_at(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    async with blog_in(tmp_path, qdrant_url=nobody) as blog:
        number = await blog.write()
        async with blog.working():
            await until(lambda: held(blog))
            told = await held(blog)
            assert told is not None
            assert told.startswith(f"Qdrant at {nobody} cannot be reached: ")
            assert told.endswith("; start it, or set ARTICLES_QDRANT_URL to where it is")
            for path in ("/articles", f"/articles/{number}"):
                shown = (await look(blog, path)).text
                assert f"nothing is embedded or found for now: Qdrant at {nobody} cannot be reached" in shown
                assert "ARTICLES_QDRANT_URL" in shown
            assert (await Progress(blog.articles).counts()).held == told
            assert "目前无法向量化和搜索" in (await look(blog, "/articles", "zh")).text


async def test_another_process_knows_it_from_jobs_that_were_put_off_and_articles_that_are_tried_again(
    tmp_path: Path,
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    async with blog_in(tmp_path, qdrant_url=nobody) as blog:
        await blog.write()
        async with blog.working():
            await until(lambda: held(blog))
    async with blog_in(tmp_path, qdrant_url=nobody) as web:
        told = await held(web)
        assert told is not None
        assert "ARTICLES_QDRANT_URL" in told
        await web.app.inspect.cancel(Filter(queue=web.articles.queue))
        assert await held(web) is None
        table = web.articles.posts.table
        async with web.articles.posts.database.transaction() as connection:
            await connection.execute(update(table).values(rag_status="processing"))
        assert await held(web) == told


async def test_it_is_known_with_nothing_to_embed_told_once_in_the_log_and_over_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tidemill_apps")
    async with stand_in() as served, blog_in(tmp_path, qdrant_url=served.url) as blog:
        served.away = True
        async with blog.working():
            await until(lambda: held(blog))
            await until(lambda: asked_often(served))
            served.away = False
            await until(lambda: free(blog))
        told = [record.getMessage() for record in caplog.records if "Qdrant" in record.getMessage()]
        assert len(told) == 1
        assert told[0].startswith(f"Qdrant at {served.url} answered 503")
        assert "ARTICLES_QDRANT_URL" in told[0]


async def held(blog: Blog) -> str | None:
    data: dict[str, Any] = (await blog.call("GET", "/api/embedding/queue/status")).json["data"]
    found: str | None = data["held"]
    return found


async def free(blog: Blog) -> bool:
    return await held(blog) is None
