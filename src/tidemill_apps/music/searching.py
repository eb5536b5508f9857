"""Songs like what a text says. The text's vector is a call as any other: a job makes it, ahead of the
backlog and within the same limits."""

from __future__ import annotations

import hashlib
import math

from tidemill import (
    Context,
    Explanation,
    JobCancelled,
    JobFailed,
    Pool,
    ResultTimeout,
    Retry,
    Tidemill,
    Unique,
)
from tidemill.web import Refused
from tidemill_apps.common.shut import shut
from tidemill_apps.music.asking import ask_vectors
from tidemill_apps.music.connections import Connections
from tidemill_apps.music.similar import Match, Similar

QUEUE, NAME = "music-search", "music-embed-text"
URGENT = 0
WITHIN = 20.0
LATER = 60.0
"""Seconds, when nobody can say when a call will be free."""
UNAVAILABLE = 503


class Search:
    def __init__(self, app: Tidemill, calls: Pool, connections: Connections, similar: Similar) -> None:
        self._app, self._calls, self._similar = app, calls, similar
        app.queue(QUEUE)

        async def embed_text(ctx: Context, text: str) -> list[float] | None:
            to = await connections.open()
            return (await ask_vectors(ctx, to.embeddings, calls, [text])).vectors[0]

        self.task = app.task(
            name=NAME,
            queue=QUEUE,
            pool=calls,
            priority=URGENT,
            retry=Retry(attempts=1),
            unique=lambda text: Unique(hashlib.sha256(text.encode()).hexdigest()),
        )(embed_text)

    async def find(self, text: str, count: int) -> list[Match]:
        await self._mind_closed()
        job = await self.task.enqueue(text)
        why = await self._app.explain(job.id)
        if self._is_far_off(why):
            await job.cancel("no call is free for so long")
            raise self._late(why, f"no call is free within {WITHIN:g} s")
        try:
            vector = await job.result(timeout=WITHIN)
        except (ResultTimeout, JobCancelled):  # who asked the same and waited for longer has cancelled it
            why = await self._app.explain(job.id)
            await job.cancel("nobody waits for it any more")
            raise self._late(why, f"the text's vector was not there within {WITHIN:g} s") from None
        except JobFailed as error:
            raise Refused(UNAVAILABLE, f"the text's vector could not be made: {error}; try later") from error
        if vector is None:
            raise Refused(UNAVAILABLE, "text: the provider gave no vector for it; say it in other words")
        return await self._similar.to_vector(vector, count)

    def _is_far_off(self, why: Explanation) -> bool:
        """When a call will be free is often known."""
        return why.starts_at is not None and why.starts_at > self._app.clock.wall() + WITHIN

    def _late(self, why: Explanation, told: str) -> Refused:
        wait = LATER if why.starts_at is None else why.starts_at - self._app.clock.wall()
        return Refused(UNAVAILABLE, f"{told}. {why.sentence} Try later.", headers=_after(wait))

    async def _mind_closed(self) -> None:
        """Who knows that nobody will answer in time does not let people wait for it."""
        closed = await shut(self._app, self._calls.name)
        if closed is not None and closed.outlasts(self._app.clock.wall() + WITHIN):
            how = "resume once that is mended" if closed.until is None else "try later"
            later = {} if closed.until is None else _after(closed.until - self._app.clock.wall())
            raise Refused(UNAVAILABLE, f"no call is made for now: {closed.reason}; {how}", headers=later)


def _after(seconds: float) -> dict[str, str]:
    return {"retry-after": f"{math.ceil(max(1.0, seconds))}"}
