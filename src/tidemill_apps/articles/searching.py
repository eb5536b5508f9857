"""Finding articles by meaning.

The question is embedded by a job, as everything that is paid for: the pool counts it, and lets it go before
all others. What is near is held against the rows, which alone know which version counts and what is hidden.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec

from tidemill import ConfigurationError, JobError, StoreUnavailable, Task, Tidemill
from tidemill_apps.articles.posts import Post, Posts
from tidemill_apps.articles.vectors import Hit, Vectors
from tidemill_apps.common.shut import Shut, shut

PATIENCE = 15.0
REMEMBERED = 256
LOOKS = 3
PAGES = 10


class SearchUnavailable(StoreUnavailable):
    """The question could not be embedded now, or not be held against the vectors there are."""


class SearchShut(SearchUnavailable):
    """No call is made for longer than anybody would wait for an answer."""

    def __init__(self, shut: Shut) -> None:
        super().__init__(f"no call is made for now: {shut.reason}")
        self.shut = shut


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An article, with the chunk of it that is nearest."""

    postId: int  # noqa: N815 - as everywhere in the API
    title: str
    chunkIndex: int  # noqa: N815 - as above
    chunkText: str  # noqa: N815 - as above
    score: float


class Searching:
    """`pool`: the name of the one that questions are embedded through."""

    def __init__(
        self, app: Tidemill, posts: Posts, vectors: Vectors, query: Task[[str], list[float]], pool: str
    ) -> None:
        self._app, self._pool = app, pool
        self._posts, self._vectors, self._query = posts, vectors, query
        self._asked: OrderedDict[str, list[float]] = OrderedDict()

    async def search(self, text: str, limit: int) -> list[Found]:
        """The nearest first, each article once. While an article's vectors are replaced, its old ones may be
        near and no longer count: then it is looked again."""
        found: list[Found] = []
        try:
            await self._vectors.mind_away()  # before the question is paid for
            vector = await self._vector_of(text)
            for _ in range(LOOKS):
                found, replaced = await self._look(vector, limit)
                if not replaced:
                    break
        except ConfigurationError as error:
            raise SearchUnavailable(str(error)) from error
        return found

    async def _look(self, vector: list[float], limit: int) -> tuple[list[Found], bool]:
        found: dict[int, Found] = {}
        page, replaced = max(4 * limit, 20), False
        for number in range(PAGES):
            hits = await self._vectors.search(vector, page, number * page)
            rows = {post.id: post for post in await self._posts.many({hit.postId for hit in hits})}
            replaced = replaced or any(_is_replaced(hit, rows) for hit in hits)
            _collect(found, hits, rows)
            if len(found) >= limit or len(hits) < page:
                break
        return list(found.values())[:limit], replaced

    async def _vector_of(self, text: str) -> list[float]:
        """Kept for a while: people ask the same again, page by page."""
        if text in self._asked:
            self._asked.move_to_end(text)
            return self._asked[text]
        closed = await shut(self._app, self._pool)
        if closed is not None and closed.outlasts(self._app.clock.wall() + PATIENCE):
            raise SearchShut(closed)
        try:
            vector = await (await self._query.enqueue(text)).result(PATIENCE)
        except JobError as error:
            raise SearchUnavailable(
                f"the question could not be embedded: {error}; try again, and see that a worker runs"
            ) from error
        self._asked[text] = vector
        while len(self._asked) > REMEMBERED:
            self._asked.popitem(last=False)
        return vector


def _collect(found: dict[int, Found], hits: Sequence[Hit], rows: Mapping[int, Post]) -> None:
    for hit in hits:
        post = rows.get(hit.postId)
        if post is None or post.hidden or post.id in found or not hit.counts_for(post):
            continue
        found[post.id] = Found(
            postId=post.id,
            title=post.title,
            chunkIndex=hit.chunkIndex,
            chunkText=hit.chunkText,
            score=hit.score,
        )


def _is_replaced(hit: Hit, rows: Mapping[int, Post]) -> bool:
    return hit.postId in rows and hit.version < rows[hit.postId].rag_current
