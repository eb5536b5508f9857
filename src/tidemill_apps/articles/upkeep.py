"""Small tasks beside embedding: the label of vectors, everything again, and the vector of a question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidemill import ConfigurationError, SnoozeFor, StoreUnavailable, Task, Tidemill
from tidemill_apps.articles.forgetting import forget
from tidemill_apps.articles.posts import Posts
from tidemill_apps.articles.requesting import Requests
from tidemill_apps.articles.standing import Standing
from tidemill_apps.articles.vectors import Vectors
from tidemill_apps.common.providers.calls import AnswerUnusable
from tidemill_apps.common.providers.embeddings import Embedded

AWAY = 15.0
FULL = 30.0
NIGHTLY = "nightly"


async def refresh(posts: Posts, vectors: Vectors, post_id: int) -> bool:
    """The vectors of an article get the title and the hiding it has now; those of one that is gone go. False:
    it has no vectors."""
    standing = Standing(posts)
    try:
        while (post := await posts.get(post_id)) is not None:
            if not post.rag_current:  # asked for when another article of that id was deleted
                await vectors.forget(post_id, unversioned=True)
            await vectors.label(post)
            if await standing.labelled(post):
                return post.rag_chunks > 0
        await forget(posts, vectors, post_id)
    except StoreUnavailable as error:
        raise SnoozeFor(AWAY, str(error)) from error
    return False


async def reembed(requests: Requests, after: int, go_on: Callable[[int], Awaitable[object]]) -> int:
    """Asks for every article; when the queue is full, the rest is left to a job that comes later."""
    asked, rest = await requests.request_until_full(after)
    if rest is not None:
        await go_on(rest)
    return asked


def every_night(app: Tidemill, reembed: Task[..., int], cron: str, zone: str) -> None:
    try:
        app.schedule(NIGHTLY, reembed, cron=cron, tz=zone)
    except ConfigurationError as error:
        problem = str(error).removeprefix(f"schedule {NIGHTLY!r}: cron: ")
        raise ConfigurationError(f"ARTICLES_NIGHTLY: {problem}") from None


def only_vector(answer: Embedded) -> list[float]:
    [vector] = answer.vectors
    if vector is None:
        raise AnswerUnusable("the provider gave no vector for the question", answer.response)
    return vector
