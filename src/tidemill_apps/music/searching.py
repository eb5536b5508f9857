"""Songs like what a text says. The text's vector is a call as any other: a job makes it, ahead of the
backlog and within the same limits."""

from __future__ import annotations

import hashlib

from tidemill import Context, JobCancelled, JobFailed, Pool, ResultTimeout, Retry, Tidemill, Unique
from tidemill.web import Refused
from tidemill_apps.music.asking import ask_vectors
from tidemill_apps.music.connections import Connections
from tidemill_apps.music.similar import Match, Similar

QUEUE, NAME = "music-search", "music-embed-text"
URGENT = 0
WITHIN = 20.0
UNAVAILABLE = 503


class Search:
    def __init__(self, app: Tidemill, calls: Pool, connections: Connections, similar: Similar) -> None:
        self._similar = similar
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
        job = await self.task.enqueue(text)
        try:
            vector = await job.result(timeout=WITHIN)
        except (ResultTimeout, JobCancelled):  # who asked the same and waited for longer has cancelled it
            await job.cancel("nobody waits for it any more")
            raise Refused(
                UNAVAILABLE,
                f"text: within {WITHIN:g} s no call was free for its vector, or no worker runs; try later",
                headers={"retry-after": "60"},
            ) from None
        except JobFailed as error:
            raise Refused(UNAVAILABLE, f"text: its vector could not be made: {error}; try later") from error
        if vector is None:
            raise Refused(UNAVAILABLE, "text: the provider gave no vector for it; say it in other words")
        return await self._similar.to_vector(vector, count)
