"""Points held against the rows: what nobody can find any more goes, and what says another title or hiding
than its row, since a run that was overtaken wrote last, is labelled again."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemill_apps.articles.posts import Post, Posts, Status
from tidemill_apps.articles.vectors import Vectors, label_of


class Swept(msgspec.Struct, frozen=True):
    """How many points are gone, and the articles whose points say another title or hiding than their rows."""

    gone: int
    mislabelled: set[int]


async def sweep(vectors: Vectors, posts: Posts) -> Swept:
    """A page of points is read before its rows: what those say was true when the points were there."""
    gone, mislabelled = 0, set[int]()
    async for page in vectors.pages():
        rows = {post.id: post for post in await posts.many({_of(point)["postId"] for point in page})}
        stale = [point for point in page if _is_stale(_of(point), rows)]
        await vectors.delete(str(point.id) for point in stale)
        gone += len(stale)
        mislabelled |= {_of(point)["postId"] for point in page if _is_mislabelled(_of(point), rows)}
    return Swept(gone, mislabelled)


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
