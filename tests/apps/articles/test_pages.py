"""The pages of articles: their content, their buttons, and their layout in a browser."""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import pytest
from jinja2 import Environment

from tests.apps.articles.web_kit import ADMIN, VIEWER, Blog, blog_in
from tests.web.asgi_client import ClientResponse
from tests.web.signed_in_client import FORM
from tidemill_apps.articles import service
from tidemill_apps.articles.samples import load_samples
from tidemill_apps.articles.service import EMBEDDINGS_POOL
from tidemill_apps.articles.status import EmbeddingProgress
from tidemill_apps.common.model_clients import ProviderAccount

FOLDER = Path(service.__file__).parent


@pytest.fixture
async def blog(tmp_path: Path) -> AsyncIterator[Blog]:
    async with blog_in(tmp_path) as blog:
        yield blog


async def get_page(blog: Blog, path: str, language: str = "en") -> ClientResponse:
    return await blog.call("GET", path, accept="text/html", accept_language=language)


async def press(blog: Blog, path: str, form: str = "") -> ClientResponse:
    """Submits the form of a button."""
    return await blog.call("POST", path, form.encode(), content_type=FORM, accept="text/html")


async def test_an_empty_blog_offers_samples_half_of_which_are_chinese(blog: Blog) -> None:
    assert "Add sample articles" in (await get_page(blog, "/articles")).text
    assert (await press(blog, "/articles/samples")).status == 303
    assert sum((await blog.articles.posts.count_by_status()).values()) == len(load_samples()) == 40
    assert sum(bool(re.search("[\u4e00-\u9fff]", one.title)) for one in load_samples()) == 20
    assert len({one.question for one in load_samples()}) == 40
    shown = await get_page(blog, "/articles")
    assert "冰川怎样塑造山谷" in shown.text
    await press(blog, "/articles/samples")
    assert sum((await blog.articles.posts.count_by_status()).values()) == 40


async def test_the_page_says_that_it_runs_on_a_simulator_and_only_then(blog: Blog, tmp_path: Path) -> None:
    for path in ("/articles", "/articles/1"):
        await blog.write()
        assert "simulator" in (await get_page(blog, path)).text
        assert "模拟器" in (await get_page(blog, path, "zh")).text
    real = ProviderAccount(provider="openai", base_url="http://127.0.0.1:9/v1", model="m")
    (tmp_path / "real").mkdir()
    async with blog_in(tmp_path / "real", embeddings=real) as other:
        assert "simulator" not in (await get_page(other, "/articles")).text


async def test_a_failed_article_shows_why_and_is_tried_again(tmp_path: Path) -> None:
    away = ProviderAccount(provider="openai", base_url="http://127.0.0.1:9/v1", model="m")
    async with blog_in(tmp_path, embeddings=away) as blog:
        number = await blog.write("<错误>")
        await _failed(blog, number, "the <provider> is away")
        shown = (await get_page(blog, "/articles")).text
        assert "the &lt;provider&gt; is away" in shown
        assert "&lt;错误&gt;" in shown
        assert f'action="/articles/{number}/embed"' in shown
        assert (await press(blog, "/articles/retry")).status == 303
        post = await blog.articles.posts.get(number)
        assert post is not None
        assert (post.rag_status, post.rag_error) == ("pending", None)


async def test_an_article_is_written_and_changed_by_forms(blog: Blog) -> None:
    made = await press(blog, "/articles/create", "title=%E8%8C%B6&content=%E6%B0%B4&hide=1")
    assert (made.status, made.headers["location"]) == (303, "/articles/1")
    shown = (await get_page(blog, "/articles/1")).text
    assert 'value="茶"' in shown
    assert ">\n水</textarea>" in shown  # a browser drops the first line break
    assert (await press(blog, "/articles/1/save", "title=t&content=new&hide=0")).status == 303
    post = await blog.articles.posts.get(1)
    assert post is not None
    assert (post.title, post.content, post.hide) == ("t", "new", "0")
    assert (await press(blog, "/articles/1/embed")).status == 303
    assert (await press(blog, "/articles/embed")).status == 303
    assert (await press(blog, "/articles/1/delete")).status == 303
    for path in ("/articles/1", "/articles/x"):
        assert (await get_page(blog, path)).status == 404
    for path in ("/articles/1/save", "/articles/1/delete", "/articles/1/embed"):
        assert (await press(blog, path, "title=t")).status == 404


@pytest.mark.parametrize(
    "content", ["\n# 茶\n\n水要烧开。\n", "# Tea\r\n\r\nBoil the water.\r\n", "水\r要\r烧开"]
)
async def test_a_saved_form_without_changes_is_not_embedded_again(blog: Blog, content: str) -> None:
    number = await blog.write("茶", content)
    async with blog.run_worker():
        await blog.wait_until_embedded(number)
        for hide in ("0", "1"):
            lines = re.sub("\r\n?|\n", "\r\n", content)
            form = urlencode({"title": "茶", "content": lines, "hide": hide})
            assert (await press(blog, f"/articles/{number}/save", form)).status == 303
            post = await blog.articles.posts.get(number)
            assert post is not None
            assert (post.content, post.hide, post.rag_status, post.rag_version) == (
                content,
                hide,
                "completed",
                1,
            )


async def test_an_article_that_is_too_long_by_now_is_hidden_all_the_same(tmp_path: Path) -> None:
    async with blog_in(tmp_path, content_limit=3) as blog:
        post = await blog.articles.create("长", "太长的内容")
        form = urlencode({"title": "长", "content": "太长的内容", "hide": "1"})
        assert (await press(blog, f"/articles/{post.id}/save", form)).status == 303
        form = urlencode({"title": "长", "content": "另外的内容", "hide": "1"})
        assert (await press(blog, f"/articles/{post.id}/save", form)).status == 413


async def test_search_shows_what_is_near(blog: Blog) -> None:
    number = await blog.write("How a tide mill works", "The rising tide fills a <pond> behind the dam.")
    async with blog.run_worker():
        await blog.wait_until_embedded(number)
        shown = await get_page(blog, "/articles/search?text=the+rising+tide")
    assert shown.status == 200, shown.text
    assert "How a tide mill works" in shown.text
    assert "<pond>" not in shown.text


async def test_while_no_call_is_made_every_place_says_why(blog: Blog) -> None:
    number = await blog.write("磨坊")
    hour = blog.app.clock.wall() + 3600
    for until, how in ((None, "tidemill pools open embeddings"), (hour, "try later")):
        await blog.app.inspect.close_pool(EMBEDDINGS_POOL, by="ann", reason="密钥<无效>", until=until)
        for path in ("/articles", f"/articles/{number}"):
            shown = (await get_page(blog, path)).text
            assert "Provider calls are paused: 密钥&lt;无效&gt;" in shown
            assert ('href="/pools/embeddings"' in shown) == (until is None)
        assert (await EmbeddingProgress(blog.articles).counts()).blocked_reason == "密钥<无效>"
        answer = await blog.call("GET", "/api/post/search?text=x")
        assert (answer.status, answer.json["status"]) == (503, False)
        assert f"密钥<无效>; {how}" in answer.json["message"].replace(
            "after you fix the cause, open the pool: ", ""
        )
    answer = await blog.call("GET", "/api/post/search?text=x", accept_language="zh")
    assert re.fullmatch("目前不会调用服务商.密钥<无效>; 请稍后再试", answer.json["message"])
    await blog.app.inspect.open_pool(EMBEDDINGS_POOL)
    assert "Provider calls are paused" not in (await get_page(blog, "/articles")).text


async def test_the_page_is_the_same_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    async with blog_in(tmp_path, database_url=postgres_url) as blog:
        number = await blog.write("磨坊")
        await _failed(blog, number, "away")
        assert (await press(blog, "/articles/samples")).status == 303
        shown = (await get_page(blog, "/articles")).text
        assert ("磨坊" in shown, "away" in shown, "冰川怎样塑造山谷" in shown) == (True, True, True)
        assert (await press(blog, "/articles/retry")).status == 303
        assert (await press(blog, "/articles/embed")).status == 303
        assert (await blog.call("GET", "/api/embedding/queue/status")).json["data"]["queueLength"] == 41


async def test_a_viewer_reads_and_searches_visible_articles(blog: Blog) -> None:
    async def seen(path: str) -> ClientResponse:
        return await blog.call("GET", path, who=VIEWER, accept="text/html")

    assert "No articles yet" in (await seen("/articles")).text
    shown = await blog.write("潮汐磨坊", "涨潮时水灌满水池。")
    hidden = await blog.write("草稿", "涨潮以后。", hide="1")
    async with blog.run_worker():
        await blog.wait_until_embedded(shown, hidden)
        found = await seen(f"/articles/search?{urlencode({'text': '涨潮'})}")
    overview, one = await seen("/articles"), await seen(f"/articles/{shown}")
    for answer in (overview, found):
        assert answer.status == 200, answer.text
        assert ("潮汐磨坊" in answer.text, "草稿" in answer.text) == (True, False)
    assert ("涨潮时水灌满水池。" in one.text, (await seen(f"/articles/{hidden}")).status) == (True, 404)
    for answer in (overview, found, one):
        assert not re.search(r'action="/articles/(?!search)', answer.text)
    assert (
        await blog.call("POST", f"/articles/{shown}/delete", who=VIEWER, accept="text/html")
    ).status == 403
    assert 'href="/articles"' in (await seen("/queues")).text


@pytest.mark.parametrize(
    ("page", "parts"),
    [("/articles", {"figures", "failures", "queue", "newest"}), ("/articles/1", {"progress"})],
)
async def test_an_open_page_receives_its_parts_as_server_sent_events(
    blog: Blog, page: str, parts: set[str]
) -> None:
    await blog.write("活的")
    shown = {"authorization": f"Bearer {await blog.token(ADMIN)}"}
    received: dict[str, str] = {}
    async with (
        asyncio.timeout(30),
        blog.serve() as address,
        httpx2.AsyncClient() as client,
        client.stream("GET", f"{address}/live{page}", headers=shown) as answer,
    ):
        async for line in answer.aiter_lines():
            key, _, value = line.partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                received[name] = received.get(name, "") + value
            elif parts | {"problem"} <= received.keys():
                break
    assert received["problem"] == ""
    assert parts < received.keys()


def test_every_word_is_there_in_both_languages_and_used() -> None:
    english, chinese = (
        tomllib.loads((FOLDER / "locales" / f"{language}.toml").read_text()) for language in ("en", "zh")
    )
    assert all(english.values())
    assert all(chinese.values())
    catalogue = set(english)
    assert catalogue == set(chinese)
    fields = {
        key: [set(re.findall(r"{(\w+)}", text)) for text in (english[key], chinese[key])] for key in catalogue
    }
    assert all(in_chinese <= in_english for in_english, in_chinese in fields.values())
    sources = "".join(path.read_text() for path in (*FOLDER.glob("*.py"), *FOLDER.glob("templates/*.html")))
    used = {key for key in catalogue if f'"{key}"' in sources}
    assert used == catalogue
    for template in FOLDER.glob("templates/*.html"):
        Environment(autoescape=True).parse(template.read_text())
        assert set(re.findall(r't_app\("(\w+)"', template.read_text())) <= catalogue


async def _failed(blog: Blog, number: int, why: str) -> None:
    posts = blog.articles.posts
    async with posts.database.transaction() as connection:
        row = posts.table.update().where(posts.table.c.id == number)
        await connection.execute(row.values(rag_status="failed", rag_error=why))
