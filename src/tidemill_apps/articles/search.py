"""Finds articles by meaning.

An urgent job embeds the question, so that the pool counts the provider call. Every hit is checked against its
article row.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec

from tidemill import ConfigurationError, StoreUnavailable, Task, Tidemill
from tidemill_apps.articles.posts import Post, Posts
from tidemill_apps.articles.vectors import ArticleVectors, VectorHit

SEARCH_DEADLINE_SECONDS = 15.0
MAX_CACHED_QUESTIONS = 256
MAX_SEARCH_PASSES = 3
MAX_PAGES_PER_PASS = 10


class SearchUnavailable(StoreUnavailable):
    """The question cannot be compared with the stored vectors."""


class ArticleMatch(msgspec.Struct, frozen=True, kw_only=True):
    """An article that a search found. `chunkText` is its chunk that is nearest to the question."""

    postId: int  # noqa: N815 - as everywhere in the API
    title: str
    chunkIndex: int  # noqa: N815 - as above
    chunkText: str  # noqa: N815 - as above
    score: float


class ArticleSearch:
    """Searches articles. `query` is the task that embeds a question."""

    def __init__(
        self, app: Tidemill, posts: Posts, vectors: ArticleVectors, query: Task[[str], list[float]]
    ) -> None:
        self._app = app
        self._posts, self._vectors, self._query = posts, vectors, query
        self._cached_vectors: OrderedDict[str, list[float]] = OrderedDict()

    async def search(self, text: str, limit: int) -> list[ArticleMatch]:
        """Returns up to `limit` visible articles, the nearest first, each article once. Raises
        AnswerUnavailable if the question cannot be embedded within 15 s."""
        found: list[ArticleMatch] = []
        try:
            await self._vectors.check_available()  # before the question is paid for
            vector = await self._embed_question(text)
            for _ in range(MAX_SEARCH_PASSES):
                found, replaced = await self._search_pass(vector, limit)
                if not replaced:
                    break
        except ConfigurationError as error:
            raise SearchUnavailable(str(error)) from error
        return found

    async def _search_pass(self, vector: list[float], limit: int) -> tuple[list[ArticleMatch], bool]:
        found: dict[int, ArticleMatch] = {}
        page, replaced = max(4 * limit, 20), False
        for number in range(MAX_PAGES_PER_PASS):
            hits = await self._vectors.search(vector, page, number * page)
            rows = {post.id: post for post in await self._posts.load({hit.postId for hit in hits})}
            replaced = replaced or any(_is_replaced(hit, rows) for hit in hits)
            _collect_matches(found, hits, rows)
            if len(found) >= limit or len(hits) < page:
                break
        return list(found.values())[:limit], replaced

    async def _embed_question(self, text: str) -> list[float]:
        """Returns the vector of the question `text`. The last 256 questions are cached, because people repeat
        a question for each page of results."""
        if text in self._cached_vectors:
            self._cached_vectors.move_to_end(text)
            return self._cached_vectors[text]
        vector = await self._app.answer(self._query.job(text), within=SEARCH_DEADLINE_SECONDS)
        self._cached_vectors[text] = vector
        while len(self._cached_vectors) > MAX_CACHED_QUESTIONS:
            self._cached_vectors.popitem(last=False)
        return vector


def _collect_matches(
    found: dict[int, ArticleMatch], hits: Sequence[VectorHit], rows: Mapping[int, Post]
) -> None:
    for hit in hits:
        post = rows.get(hit.postId)
        if post is None or post.hidden or post.id in found or not hit.belongs_to(post):
            continue
        found[post.id] = ArticleMatch(
            postId=post.id,
            title=post.title,
            chunkIndex=hit.chunkIndex,
            chunkText=hit.chunkText,
            score=hit.score,
        )


def _is_replaced(hit: VectorHit, rows: Mapping[int, Post]) -> bool:
    return hit.postId in rows and hit.version < rows[hit.postId].rag_current
