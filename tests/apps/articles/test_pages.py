"""The pages of articles: what they show, what their buttons do, and how a browser sees them."""

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

from tests.apps.articles.blog import ADMIN, VIEWER, Blog, blog_in
from tests.web.asgi import Answer
from tests.web.signed import FORM
from tidemill_apps.articles import words
from tidemill_apps.articles.articles import POOL
from tidemill_apps.articles.progress import Progress
from tidemill_apps.articles.samples import samples
from tidemill_apps.common.providers.account import Account

FOLDER = Path(words.__file__).parent


@pytest.fixture
async def blog(tmp_path: Path) -> AsyncIterator[Blog]:
    async with blog_in(tmp_path) as blog:
        yield blog


async def look(blog: Blog, path: str, language: str = "en") -> Answer:
    return await blog.call("GET", path, accept="text/html", accept_language=language)


async def press(blog: Blog, path: str, form: str = "") -> Answer:
    """A button, as its form is sent."""
    return await blog.call("POST", path, form.encode(), content_type=FORM, accept="text/html")


async def test_an_empty_blog_offers_samples_half_of_which_are_chinese(blog: Blog) -> None:
    assert "Add sample articles" in (await look(blog, "/articles")).text
    assert (await press(blog, "/articles/samples")).status == 303
    assert sum((await blog.articles.posts.counts()).values()) == len(samples()) == 40
    assert sum(bool(re.search("[\u4e00-\u9fff]", one.title)) for one in samples()) == 20
    assert len({one.question for one in samples()}) == 40
    shown = await look(blog, "/articles")
    assert "冰川怎样塑造山谷" in shown.text
    await press(blog, "/articles/samples")
    assert sum((await blog.articles.posts.counts()).values()) == 40


async def test_the_page_says_that_it_runs_on_a_simulator_and_only_then(blog: Blog, tmp_path: Path) -> None:
    for path in ("/articles", "/articles/1"):
        await blog.write()
        assert "simulator" in (await look(blog, path)).text
        assert "模拟器" in (await look(blog, path, "zh")).text
    real = Account(provider="openai", base_url="http://127.0.0.1:9/v1", model="m")
    (tmp_path / "real").mkdir()
    async with blog_in(tmp_path / "real", embeddings=real) as other:
        assert "simulator" not in (await look(other, "/articles")).text


async def test_a_failed_article_shows_why_and_is_tried_again(tmp_path: Path) -> None:
    away = Account(provider="openai", base_url="http://127.0.0.1:9/v1", model="m")
    async with blog_in(tmp_path, embeddings=away) as blog:
        number = await blog.write("<错误>")
        await _failed(blog, number, "the <provider> is away")
        shown = (await look(blog, "/articles")).text
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
    shown = (await look(blog, "/articles/1")).text
    assert 'value="茶"' in shown
    assert ">\n水</textarea>" in shown  # a browser drops the first line end
    assert (await press(blog, "/articles/1/save", "title=t&content=new&hide=0")).status == 303
    post = await blog.articles.posts.get(1)
    assert post is not None
    assert (post.title, post.content, post.hide) == ("t", "new", "0")
    assert (await press(blog, "/articles/1/embed")).status == 303
    assert (await press(blog, "/articles/embed")).status == 303
    assert (await press(blog, "/articles/1/delete")).status == 303
    for path in ("/articles/1", "/articles/x"):
        assert (await look(blog, path)).status == 404
    for path in ("/articles/1/save", "/articles/1/delete", "/articles/1/embed"):
        assert (await press(blog, path, "title=t")).status == 404


@pytest.mark.parametrize(
    "content", ["\n# 茶\n\n水要烧开。\n", "# Tea\r\n\r\nBoil the water.\r\n", "水\r要\r烧开"]
)
async def test_what_a_browser_sends_back_unchanged_is_not_embedded_again(blog: Blog, content: str) -> None:
    number = await blog.write("茶", content)
    async with blog.working():
        await blog.embedded(number)
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
    async with blog.working():
        await blog.embedded(number)
        shown = await look(blog, "/articles/search?text=the+rising+tide")
    assert shown.status == 200, shown.text
    assert "How a tide mill works" in shown.text
    assert "<pond>" not in shown.text


async def test_while_no_call_is_made_every_place_says_why(blog: Blog) -> None:
    number = await blog.write("磨坊")
    hour = blog.app.clock.wall() + 3600
    for until, how in ((None, "tidemill pools open embeddings"), (hour, "try later")):
        await blog.app.inspect.close_pool(POOL, by="ann", reason="密钥<无效>", until=until)
        for path in ("/articles", f"/articles/{number}"):
            shown = (await look(blog, path)).text
            assert "no call is made to the provider for now: 密钥&lt;无效&gt;" in shown
            assert ('href="/pools/embeddings"' in shown) == (until is None)
        assert (await Progress(blog.articles).counts()).held == "密钥<无效>"
        answer = await blog.call("GET", "/api/post/search?text=x")
        assert (answer.status, answer.json["status"]) == (503, False)
        assert f"密钥<无效>; {how}" in answer.json["message"].replace(
            "once that is mended, open the pool: ", ""
        )
    answer = await blog.call("GET", "/api/post/search?text=x", accept_language="zh")
    assert re.fullmatch("目前不会调用服务商.密钥<无效>; 请稍后再试", answer.json["message"])
    await blog.app.inspect.open_pool(POOL)
    assert "no call is made" not in (await look(blog, "/articles")).text


async def test_the_page_is_the_same_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    async with blog_in(tmp_path, database_url=postgres_url) as blog:
        number = await blog.write("磨坊")
        await _failed(blog, number, "away")
        assert (await press(blog, "/articles/samples")).status == 303
        shown = (await look(blog, "/articles")).text
        assert ("磨坊" in shown, "away" in shown, "冰川怎样塑造山谷" in shown) == (True, True, True)
        assert (await press(blog, "/articles/retry")).status == 303
        assert (await press(blog, "/articles/embed")).status == 303
        assert (await blog.call("GET", "/api/embedding/queue/status")).json["data"]["queueLength"] == 41


async def test_who_may_only_look_reads_and_searches_what_is_not_hidden(blog: Blog) -> None:
    async def seen(path: str) -> Answer:
        return await blog.call("GET", path, who=VIEWER, accept="text/html")

    assert "No articles yet" in (await seen("/articles")).text
    shown = await blog.write("潮汐磨坊", "涨潮时水灌满水池。")
    hidden = await blog.write("草稿", "涨潮以后。", hide="1")
    async with blog.working():
        await blog.embedded(shown, hidden)
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
    [("/articles", {"figures", "failures", "queue", "newest"}), ("/articles/1", {"standing"})],
)
async def test_the_parts_of_a_page_are_drawn_while_somebody_looks(
    blog: Blog, page: str, parts: set[str]
) -> None:
    await blog.write("活的")
    shown = {"authorization": f"Bearer {await blog.token(ADMIN)}"}
    told: dict[str, str] = {}
    async with (
        asyncio.timeout(30),
        blog.listening() as address,
        httpx2.AsyncClient() as client,
        client.stream("GET", f"{address}/live{page}", headers=shown) as answer,
    ):
        async for line in answer.aiter_lines():
            key, _, value = line.partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                told[name] = told.get(name, "") + value
            elif parts | {"trouble"} <= told.keys():
                break
    assert told["trouble"] == ""
    assert parts < told.keys()


def test_every_word_is_there_in_both_languages_and_used() -> None:
    catalogue = tomllib.loads((FOLDER / "words.toml").read_text())
    assert all(set(entry) == {"en", "zh"} and all(entry.values()) for entry in catalogue.values())
    fields = {
        key: [set(re.findall(r"{(\w+)}", text)) for text in entry.values()]
        for key, entry in catalogue.items()
    }
    assert all(chinese <= english for english, chinese in fields.values())
    sources = "".join(path.read_text() for path in (*FOLDER.glob("*.py"), *FOLDER.glob("templates/*.html")))
    used = {key for key in catalogue if f'"{key}"' in sources}
    assert used == set(catalogue)
    for template in FOLDER.glob("templates/*.html"):
        Environment(autoescape=True).parse(template.read_text())
        assert set(re.findall(r'say\("(\w+)"', template.read_text())) <= set(catalogue)


async def _failed(blog: Blog, number: int, why: str) -> None:
    posts = blog.articles.posts
    async with posts.database.transaction() as connection:
        row = posts.table.update().where(posts.table.c.id == number)
        await connection.execute(row.values(rag_status="failed", rag_error=why))
