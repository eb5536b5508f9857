"""Vectors of an article that is gone go, too."""

from __future__ import annotations

from tidemill_apps.articles.posts import Posts, Status
from tidemill_apps.articles.standing import Standing
from tidemill_apps.articles.vectors import Vectors


async def forget(posts: Posts, vectors: Vectors, post_id: int) -> None:
    """In an existing table the id may be another article's by the time they go, and vectors of that one have
    gone with them: it is embedded again."""
    await vectors.forget(post_id)
    post = await posts.get(post_id)
    if post is not None and (post.rag_current or post.rag_status == Status.PROCESSING):
        await Standing(posts).again([post])
