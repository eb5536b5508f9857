"""The three tasks, each on a queue of its own. What they do is in `analysis`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tidemill import Context, Retry, Task, Tidemill
from tidemill_apps.music import analysis
from tidemill_apps.music.analysis import Counted
from tidemill_apps.music.connections import Connections
from tidemill_apps.music.library import Library
from tidemill_apps.music.limits import EMBEDDING, FULL, METADATA, Pools
from tidemill_apps.music.songs import Song

RETRY = Retry(attempts=3, first=5.0)
TIMEOUT = 600.0
WARN_BYTES = 64_000
"""A batch of a hundred songs is no mistake."""
NAMES = {FULL: "batch-analyze", METADATA: "batch-describe", EMBEDDING: "batch-embed"}


LeftOut = Callable[[str], Awaitable[None]]
"""Called when a job of that queue did not get all songs of its batch as far as they should be."""


def tasks(
    app: Tidemill, pools: Pools, library: Library, connections: Connections, left_out: LeftOut
) -> dict[str, Task[Any, Any]]:
    """By the queue each is on."""
    calls = pools.calls

    async def seen(queue: str, counted: Counted, songs: list[Song]) -> Counted:
        if counted["count"] < len(songs):
            await left_out(queue)
        return counted

    async def analyze(ctx: Context, correlationId: str, songs: list[Song]) -> Counted:  # noqa: ARG001, N803 - the payload's own names
        to = await connections.open()
        counted = await analysis.analyse(ctx, library, to.chat, to.embeddings, calls, songs)
        return await seen(FULL, counted, songs)

    async def describe(ctx: Context, correlationId: str, songs: list[Song]) -> Counted:  # noqa: ARG001, N803 - as above
        to = await connections.open()
        return await seen(METADATA, await analysis.describe(ctx, library, to.chat, calls, songs), songs)

    async def embed(ctx: Context, correlationId: str, songs: list[Song]) -> Counted:  # noqa: ARG001, N803 - as above
        to = await connections.open()
        return await seen(EMBEDDING, await analysis.embed(ctx, library, to.embeddings, calls, songs), songs)

    return {
        queue: app.task(
            name=NAMES[queue],
            queue=queue,
            pool=[calls, pools.starts[queue]],
            retry=RETRY,
            timeout=TIMEOUT,
            warn_bytes=WARN_BYTES,
        )(handler)
        for queue, handler in ((FULL, analyze), (METADATA, describe), (EMBEDDING, embed))
    }
