"""Points held against the rows: what nobody can find any more goes, and what says another title or hiding
than its row, since a run that was overtaken wrote last, is labelled again. A row that is completed and has no
points is embedded again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from sqlalchemy import select

from tidemill_apps.articles.posts import Post, Posts, Status
from tidemill_apps.articles.vectors import Vectors, label_of

FEW_ARTICLES = 10
LARGE_SHARE = 0.2


class Swept(msgspec.Struct, frozen=True):
    """How many points are gone, the articles whose points say another title or hiding than their rows, and of
    `completed` articles those without all of their vectors."""

    gone: int
    mislabelled: set[int]
    completed: int
    without_vectors: list[Post]

    @property
    def is_plausible(self) -> bool:
        """False for a large share: the collection is another one or was emptied, and a person decides whether
        to pay for all vectors again."""
        return len(self.without_vectors) <= max(FEW_ARTICLES, LARGE_SHARE * self.completed)


class _Completed(msgspec.Struct, frozen=True):
    version: int
    chunks: int
    job: str | None


async def sweep(vectors: Vectors, posts: Posts) -> Swept:
    """A page of points is read before its rows: what those say was true when the points were there. Completed
    rows are read before all points: their points were there before."""
    gone, mislabelled = 0, set[int]()
    completed, points = await _completed(posts), Counter[tuple[int, int]]()
    async for page in vectors.pages():
        rows = {post.id: post for post in await posts.many({_of(point)["postId"] for point in page})}
        stale = [point for point in page if _is_stale(_of(point), rows)]
        await vectors.delete(str(point.id) for point in stale)
        gone += len(stale)
        mislabelled |= {_of(point)["postId"] for point in page if _is_mislabelled(_of(point), rows)}
        points.update((_of(point)["postId"], _of(point).get("version", 0)) for point in page)
    lacking = [
        id_ for id_, row in completed.items() if points[id_, row.version] < (row.chunks or not row.version)
    ]
    unchanged = [post for post in await posts.many(lacking) if completed[post.id] == _as_completed(post)]
    return Swept(gone, mislabelled, len(completed), unchanged)


async def _completed(posts: Posts) -> dict[int, _Completed]:
    """Without their texts. A text without words has no chunks. Hidden articles are not found by search, so
    they are not paid for."""
    columns = posts.table.c
    wanted = (columns.id, columns.rag_current, columns.rag_chunks, columns.rag_job)
    meant = (columns.rag_status == Status.COMPLETED.value, posts.has_text(), posts.is_shown())
    query = select(*wanted).where(*meant)
    await posts.prepare()
    async with posts.database.reading() as connection:
        return {row[0]: _Completed(*row[1:]) for row in await connection.execute(query)}


def _as_completed(post: Post) -> _Completed | None:
    if post.rag_status != Status.COMPLETED:
        return None
    return _Completed(post.rag_current, post.rag_chunks, post.rag_job)


def _of(point: Any) -> dict[str, Any]:
    return point.payload or {}


def _is_stale(payload: dict[str, Any], posts: dict[int, Post]) -> bool:
    """Of an article that is gone, of a version before the one that is searched, or of a chunk it does not
    have. Above that version are the points of a run that is under way or comes again, unless none is wanted:
    then they are those of another article that had the id."""
    post, version = posts.get(payload["postId"]), payload.get("version", 0)
    if post is None or version < post.rag_current:
        return True
    if version > post.rag_current:
        return post.rag_status in (None, Status.COMPLETED)
    return bool(version and payload["chunkIndex"] >= post.rag_chunks)


def _is_mislabelled(payload: dict[str, Any], posts: dict[int, Post]) -> bool:
    """Those that are known to wait for their label get it anyway."""
    post = posts.get(payload["postId"])
    if post is None or not post.rag_current or post.rag_label != post.rag_labelled:
        return False
    said = {name: payload.get(name) for name in label_of(post)}
    return payload.get("version", 0) == post.rag_current and said != label_of(post)
