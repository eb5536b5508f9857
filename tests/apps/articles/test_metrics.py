"""The metrics of articles (E12), and the notifications of failures (E13)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.apps.articles.web_kit import Blog, blog_in
from tidemill_apps.articles import metrics as metrics_module
from tidemill_apps.articles.settings import ArticlesSettings
from tidemill_apps.common.model_clients import ProviderAccount


async def metrics(blog: Blog) -> dict[str, float]:
    answer = await blog.call("GET", "/metrics", who="viewer")
    return {
        name: float(value) for name, value in re.findall(r"^(articles_\w+) (\S+)$", answer.text, re.MULTILINE)
    }


async def test_embedded_articles_are_counted(tmp_path: Path) -> None:
    async with blog_in(tmp_path) as blog:
        numbers = [await blog.write("一"), await blog.write("Two")]
        before = await metrics(blog)
        assert (before["articles_queue_length"], before["articles_in_progress"]) == (2, 0)
        async with blog.run_worker():
            await blog.wait_until_embedded(*numbers)
        after = await metrics(blog)
        assert (after["articles_queue_length"], after["articles_in_progress"]) == (0, 0)
        assert after["articles_embedded_total"] == after["articles_embedding_duration_seconds_count"] == 2
        assert 0 < after["articles_embedding_duration_seconds_sum"] < 60
        assert 1 <= after["articles_embedding_calls_total"] <= 2
        assert after["articles_embedding_texts_total"] == 2
        assert "articles_failed_total" not in after or after["articles_failed_total"] == 0


async def test_a_failed_embedding_is_counted_and_reported(tmp_path: Path) -> None:
    """The provider is unreachable: no server listens on that port."""
    away = ProviderAccount(provider="openai", base_url="http://127.0.0.1:9/v1", model="m")
    async with blog_in(tmp_path, embeddings=away) as blog:
        number = await blog.write("错")
        post = await blog.articles.posts.get(number)
        assert post is not None
        async with blog.run_worker():
            with pytest.raises(Exception, match=r"127\.0\.0\.1:9|connect"):
                await blog.app.job(post.rag_job or "").result(30)
        after = await metrics(blog)
        assert (after["articles_failed_total"], after["articles_retried_total"]) == (1, 2)
        assert blog.app.alerts.rules["articles failed"].queue == blog.articles.queue
        assert {"embeddings refused", "worker gone", "store lost"} <= set(blog.app.alerts.rules)


def test_every_setting_is_in_the_readme() -> None:
    readme = Path(metrics_module.__file__).with_name("README.md").read_text(encoding="utf-8")
    wanted = {
        f"ARTICLES_{name}".upper() for name in ArticlesSettings.__struct_fields__ if name != "embeddings"
    }
    wanted |= {f"ARTICLES_EMBEDDINGS_{name}".upper() for name in ProviderAccount.__struct_fields__}
    assert set(re.findall(r"\bARTICLES_[A-Z_]+\b", readme)) == wanted


def test_every_route_and_every_number_is_in_the_readme(tmp_path: Path) -> None:
    readme = Path(metrics_module.__file__).with_name("README.md").read_text(encoding="utf-8")
    source = Path(metrics_module.__file__).read_text(encoding="utf-8")
    assert all(f"`{name}`" in readme for name in re.findall(r'"(articles_\w+)"', source))
    app = Blog(tmp_path).app
    paths = {route.path for route in app.web.routes if route.path.startswith("/api/")}
    assert {path for path in paths if path not in readme} == set()
