"""How far embedding is, as it changes (E13): server-sent events, or the same by WebSocket.

However many watch, the store and the table are read once, at most once a second, and only while somebody
does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from tidemill import Job
from tidemill.web import Asked, Events, Refused
from tidemill_apps.articles.glance import Glance, Line
from tidemill_apps.articles.holding import Holding
from tidemill_apps.articles.triggers import LARGEST
from tidemill_apps.articles.waiting import Running, Waiting, post_of
from tidemill_apps.articles.words import said

if TYPE_CHECKING:
    from tidemill_apps.articles.articles import Articles


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """Without `post`, all of them."""

    post: Annotated[int, Meta(ge=1, le=LARGEST)] | None = None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Articles by `rag_status`; `fraction` of them are done with, one way or the other. `held` is why nothing
    is embedded for now, None while articles are."""

    pending: int
    processing: int
    completed: int
    failed: int
    total: int
    fraction: float
    held: str | None


class OnePost(msgspec.Struct, frozen=True, kw_only=True, rename={"post_id": "postId"}):
    post_id: int
    title: str
    rag_status: str | None
    rag_error: str | None
    fraction: float | None


class Progress:
    def __init__(self, articles: Articles) -> None:
        self._posts, self._holding = articles.posts, Holding(articles)
        self._glance, self._waiting = Glance(articles.posts), Waiting(articles)

    async def follow(self, asked: Asked) -> Events:
        """An article that is not there is told before the stream begins."""
        watched: int | None = asked.query.post
        last = asked.headers.get("last-event-id")
        if watched is None:
            return Events(asked.looks.watch(("articles", "progress"), self._all, last))
        if not await self._glance.of([watched]):
            raise Refused(404, said(asked.language, "unknown", post=watched), field="post")

        async def make() -> dict[str, str]:
            return {"post": _written(await self.of(watched))}

        return Events(asked.looks.watch(("articles", "progress", watched), make, last))

    async def counts(self) -> Counts:
        found = await self._posts.counts()
        total = sum(found.values())
        ended = found["completed"] + found["failed"]
        return Counts(
            **found,
            total=total,
            fraction=round(ended / total, 4) if total else 1.0,
            held=await self._holding.reason(),
        )

    async def processing(self) -> tuple[Running, ...]:
        return (await self._waiting.status()).processing_tasks

    async def of(self, post_id: int) -> OnePost:
        line = (await self._glance.of([post_id])).get(post_id)
        job = next((job for job in await self._waiting.running() if post_of(job) == post_id), None)
        return _one(post_id, line, job)

    async def _all(self) -> dict[str, str]:
        return {"counts": _written(await self.counts()), "processing": _written(await self.processing())}


def _one(post_id: int, line: Line | None, job: Job | None) -> OnePost:
    """One that was deleted meanwhile has nothing any more."""
    done = line is not None and line.rag_status == "completed"
    return OnePost(
        post_id=post_id,
        title=line.title if line else "",
        rag_status=line.rag_status if line else None,
        rag_error=line.rag_error if line else None,
        fraction=job.progress if job else (1.0 if done else None),
    )


def _written(value: Any) -> str:
    return msgspec.json.encode(value).decode()
