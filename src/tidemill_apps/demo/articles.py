"""The articles application in the demo: many in one call, an edit in the middle of it, a hiding, a search."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from statistics import median

from tidemill import Tidemill
from tidemill.testing.providers import Ledger, Server
from tidemill_apps.articles.articles import Articles
from tidemill_apps.articles.posts import Post, Status
from tidemill_apps.articles.samples import Sample, samples
from tidemill_apps.articles.settings import ArticlesSettings
from tidemill_apps.common.providers.account import Account
from tidemill_apps.demo.provider import A_MINUTE, EMBEDDINGS_PER_MINUTE, account_at, embeddings_tier
from tidemill_apps.demo.screen import Bar, Screen
from tidemill_apps.demo.working import working

A_CALL = 10
"""Articles of one piece that a call takes."""
LINGER = 1.0
ASKED = (0, 25, 38, 33)
"""Questions that share words with their article: that is all a simulated vector knows of a text."""
LOOK = 0.05
EDITED = "A walrus owns the yellow umbrella. 海象有一把黄雨伞。"
ABOUT_THE_EDIT = "Who owns the yellow umbrella? 谁有一把黄雨伞"


@dataclass(frozen=True)
class ArticlesTold:
    """What was seen. `save` is how long people wait for one, half of the time, `minimum` the number of calls
    that the articles had to cost; `again`: whether the edit is found by its new text; `hiding`: how many
    calls were made because of a hiding."""

    books: Ledger
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


class ArticlesStory:
    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._samples = samples()
        self._minimum = -(-len(self._samples) // A_CALL) + 1
        self._app = Tidemill("sqlite:///articles-jobs.db")
        self._provider = embeddings_tier(self._app.clock)

    async def tell(self) -> ArticlesTold:
        async with Server(self._provider) as server:
            articles = Articles(self._app, _settings(account_at(server.url)))
            save = await self._write(articles)
            async with working(self._app):
                async with self._screen.following(lambda: self._look(articles)):
                    edited = await self._edit(articles)
                    await self._embedded(articles)
                calls = len(self._books.bills)
                return await self._search(articles, edited, save, calls)

    async def _search(self, articles: Articles, edited: Post, save: float, calls: int) -> ArticlesTold:
        asked = [self._samples[number] for number in ASKED]
        again = await self._finds(articles, ABOUT_THE_EDIT, edited.title)
        found = sum([await self._finds(articles, one.question, one.title) for one in asked])
        hidden, hiding = await self._hide(articles, asked[0])
        return ArticlesTold(
            books=self._books,
            calls=calls,
            minimum=self._minimum,
            articles=len(self._samples),
            completed=(await articles.posts.counts())[Status.COMPLETED],
            save=save,
            again=again,
            questions=len(asked),
            found=found,
            hidden=hidden,
            hiding=hiding,
        )

    @property
    def _books(self) -> Ledger:
        return self._provider.ledger

    async def _write(self, articles: Articles) -> float:
        loop, took = asyncio.get_running_loop(), []
        for sample in self._samples:
            began = loop.time()
            await articles.create(sample.title, sample.content)
            took.append(loop.time() - began)
        self._screen.say(
            f"{len(self._samples)} articles are written, half of them Chinese; then a worker starts"
        )
        return median(took)

    async def _edit(self, articles: Articles) -> Post:
        """One of those whose call is under way."""
        while not (under_way := await self._under_way(articles)):  # noqa: ASYNC110 - it is in a table
            await asyncio.sleep(LOOK)
        post = under_way[0]
        await articles.change(post.id, content=EDITED)
        self._screen.say(
            f"rewritten while its call is under way: {post.title}; its new text says who owns a yellow "
            "umbrella, and it runs once more"
        )
        return post

    async def _embedded(self, articles: Articles) -> None:
        while (await articles.posts.counts())[Status.COMPLETED] < len(self._samples):  # noqa: ASYNC110 - as above
            await asyncio.sleep(LOOK)

    async def _hide(self, articles: Articles, sample: Sample) -> tuple[bool, int]:
        """Whether it is found no more, and how many calls that took. Its question was asked before, so that
        asking again costs nothing."""
        before = len(self._books.bills)
        [post] = [post for post in await articles.posts.recent(100) if post.title == sample.title]
        await articles.change(post.id, hide="1")
        self._screen.say(f"hidden: {sample.title}; who asks for it again finds something else, or nothing")
        gone = not await self._finds(articles, sample.question, sample.title)
        return gone, len(self._books.bills) - before

    async def _finds(self, articles: Articles, question: str, title: str) -> bool:
        found = await articles.search(question, limit=1)
        self._screen.say(f"{question} → {found[0].title if found else 'nothing'}")
        return [one.title for one in found] == [title]

    async def _under_way(self, articles: Articles) -> list[Post]:
        apart = {self._samples[number].title for number in ASKED}
        posts = await articles.posts.recent(len(self._samples))
        return [post for post in posts if post.rag_status == Status.PROCESSING and post.title not in apart]

    async def _look(self, articles: Articles) -> list[Bar]:
        counts = await articles.posts.counts()
        return [
            Bar(
                "articles",
                counts[Status.COMPLETED],
                len(self._samples),
                f"{counts[Status.PROCESSING]} in a call",
            ),
            Bar(
                "calls",
                len(self._books.bills),
                self._minimum,
                f"the simulator refused {len(self._books.refused)}",
            ),
        ]


def _settings(account: Account) -> ArticlesSettings:
    return ArticlesSettings(
        embeddings=account,
        inputs_per_call=A_CALL,
        requests_per_window=EMBEDDINGS_PER_MINUTE,
        window_seconds=A_MINUTE,
        linger=LINGER,
    )
