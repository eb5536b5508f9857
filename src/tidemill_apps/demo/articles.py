"""The articles part of the demo: many articles per call, an edit during a call, a hidden article, and
searches."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from statistics import median

from tidemill import Tidemill
from tidemill.testing.simulator import RequestLog, SimulatorServer
from tidemill_apps.articles.posts import Post, PostStatus
from tidemill_apps.articles.samples import SampleArticle, load_samples
from tidemill_apps.articles.service import Articles
from tidemill_apps.articles.settings import ArticlesSettings
from tidemill_apps.common.model_clients import ProviderAccount
from tidemill_apps.demo.environment import (
    EMBEDDINGS_PER_MINUTE,
    MINUTE_SECONDS,
    create_account,
    create_embeddings_tier,
    run_worker,
)
from tidemill_apps.demo.screen import DemoProgressBar, DemoScreen

ARTICLES_PER_CALL = 10
"""Articles of one chunk per call."""
LINGER_SECONDS = 1.0
QUESTION_NUMBERS = (0, 25, 38, 33)
"""Questions that share words with their article; simulated vectors know nothing else."""
POLL_SECONDS = 0.05
EDITED_TEXT = "A walrus owns the yellow umbrella. 海象有一把黄雨伞。"
EDIT_QUESTION = "Who owns the yellow umbrella? 谁有一把黄雨伞"


@dataclass(frozen=True)
class ArticlesDemoResult:
    """The measurements of the articles part of the demo.

    - `calls`, `minimum`: provider calls made for embedding, and the smallest number that was needed.
    - `articles`, `completed`: the number of all articles, and of embedded articles.
    - `save`: median duration of a save in seconds.
    - `again`: True if the edited article is found by its new text.
    - `questions`, `found`: the number of questions, and of questions that found their article.
    - `hidden`: True if search no longer finds the hidden article.
    - `hiding`: provider calls that hiding the article caused; 0 is expected.
    """

    request_log: RequestLog
    calls: int
    minimum: int
    articles: int
    completed: int
    save: float
    again: bool
    questions: int
    found: int
    hidden: bool
    hiding: int


class ArticlesDemo:
    def __init__(self, screen: DemoScreen) -> None:
        self._screen = screen
        self._samples = load_samples()
        self._minimum = -(-len(self._samples) // ARTICLES_PER_CALL) + 1
        self._app = Tidemill("sqlite:///articles-jobs.db")
        self._provider = create_embeddings_tier(self._app.clock)

    async def run(self) -> ArticlesDemoResult:
        async with SimulatorServer(self._provider) as server:
            articles = Articles(self._app, _build_settings(create_account(server.url)))
            save = await self._write(articles)
            async with run_worker(self._app):
                async with self._screen.show_progress(lambda: self._load_progress(articles)):
                    edited = await self._edit(articles)
                    await self._embedded(articles)
                calls = len(self._request_log.bills)
                return await self._search(articles, edited, save, calls)

    async def _search(self, articles: Articles, edited: Post, save: float, calls: int) -> ArticlesDemoResult:
        asked = [self._samples[number] for number in QUESTION_NUMBERS]
        again = await self._finds(articles, EDIT_QUESTION, edited.title)
        found = sum([await self._finds(articles, one.question, one.title) for one in asked])
        hidden, hiding = await self._hide(articles, asked[0])
        return ArticlesDemoResult(
            request_log=self._request_log,
            calls=calls,
            minimum=self._minimum,
            articles=len(self._samples),
            completed=(await articles.posts.count_by_status())[PostStatus.COMPLETED],
            save=save,
            again=again,
            questions=len(asked),
            found=found,
            hidden=hidden,
            hiding=hiding,
        )

    @property
    def _request_log(self) -> RequestLog:
        return self._provider.request_log

    async def _write(self, articles: Articles) -> float:
        loop, took = asyncio.get_running_loop(), []
        for sample in self._samples:
            began = loop.time()
            await articles.create(sample.title, sample.content)
            took.append(loop.time() - began)
        self._screen.log(
            f"{len(self._samples)} articles are written, half of them Chinese; then a worker starts"
        )
        return median(took)

    async def _edit(self, articles: Articles) -> Post:
        """Waits until an article's provider call is running, changes the article's text, and returns the
        article."""
        while not (under_way := await self._under_way(articles)):  # noqa: ASYNC110 - it is in a table
            await asyncio.sleep(POLL_SECONDS)
        post = under_way[0]
        await articles.change(post.id, content=EDITED_TEXT)
        self._screen.log(
            f"rewritten while its call is under way: {post.title}; its new text says who owns a yellow "
            "umbrella, and it runs once more"
        )
        return post

    async def _embedded(self, articles: Articles) -> None:
        while (await articles.posts.count_by_status())[PostStatus.COMPLETED] < len(self._samples):  # noqa: ASYNC110 - as above
            await asyncio.sleep(POLL_SECONDS)

    async def _hide(self, articles: Articles, sample: SampleArticle) -> tuple[bool, int]:
        """Hides the article of `sample` and searches for it. Returns True if the search no longer finds the
        article, and the number of provider calls that this caused."""
        before = len(self._request_log.bills)
        [post] = [post for post in await articles.posts.load_recent(100) if post.title == sample.title]
        await articles.change(post.id, hide="1")
        self._screen.log(f"hidden: {sample.title}; who asks for it again finds something else, or nothing")
        gone = not await self._finds(articles, sample.question, sample.title)
        return gone, len(self._request_log.bills) - before

    async def _finds(self, articles: Articles, question: str, title: str) -> bool:
        found = await articles.search(question, limit=1)
        self._screen.log(f"{question} → {found[0].title if found else 'nothing'}")
        return [one.title for one in found] == [title]

    async def _under_way(self, articles: Articles) -> list[Post]:
        apart = {self._samples[number].title for number in QUESTION_NUMBERS}
        posts = await articles.posts.load_recent(len(self._samples))
        return [
            post for post in posts if post.rag_status == PostStatus.PROCESSING and post.title not in apart
        ]

    async def _load_progress(self, articles: Articles) -> list[DemoProgressBar]:
        counts = await articles.posts.count_by_status()
        return [
            DemoProgressBar(
                "articles",
                counts[PostStatus.COMPLETED],
                len(self._samples),
                f"{counts[PostStatus.PROCESSING]} in a call",
            ),
            DemoProgressBar(
                "calls",
                len(self._request_log.bills),
                self._minimum,
                f"the simulator refused {len(self._request_log.refused)}",
            ),
        ]


def _build_settings(account: ProviderAccount) -> ArticlesSettings:
    return ArticlesSettings(
        embeddings=account,
        inputs_per_call=ARTICLES_PER_CALL,
        requests_per_window=EMBEDDINGS_PER_MINUTE,
        window_seconds=MINUTE_SECONDS,
        linger=LINGER_SECONDS,
    )
