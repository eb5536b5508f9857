"""From songs that wait to jobs of so many songs each.

Which song goes into which job is decided once and kept with the job that enqueues: run again after a crash,
it sends the same jobs by the same ids, and a job that was sent before is not sent twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from tidemill import Context, JobRequest, Task, Tidemill, split
from tidemill_apps.music import runs
from tidemill_apps.music.library import Library
from tidemill_apps.music.limits import EMBEDDING, FULL, METADATA
from tidemill_apps.music.songs import Song, Status
from tidemill_apps.music.syncing import Foreseen
from tidemill_apps.music.system_settings import SystemSettings

SONGS_A_ROUND = 5000
"""Decided and kept in one step: what a step may keep is bounded."""
Work = Literal["full", "metadata", "embedding"]
"""What the songs are to get: all of it, or only one half."""
QUEUES: dict[Work, tuple[str, ...]] = {
    "full": (FULL, EMBEDDING),
    "metadata": (METADATA,),
    "embedding": (EMBEDDING,),
}
"""Which queues that fills. With everything wanted, songs that have all but their vector need no more."""
NO_SYNC = Foreseen()
WORK_OF: dict[str, Work] = {FULL: "full", METADATA: "metadata", EMBEDDING: "embedding"}


class Planned(Struct, frozen=True):
    """One job before it is sent. `id` is the job's, `correlation` is what its payload carries."""

    id: str
    correlation: str
    songs: list[Song]


class Enqueuer:
    """`tasks` by the queue they are on."""

    def __init__(
        self, app: Tidemill, library: Library, settings: SystemSettings, tasks: dict[str, Task[Any, Any]]
    ) -> None:
        self._app, self._library, self._settings, self._tasks = app, library, settings, tasks

    async def enqueue(self, ctx: Context, work: Work, limit: int | None) -> int:
        """Answers the number of jobs."""
        jobs, left, total = 0, limit, max(1, sum((await self.foreseen(work, limit)).values()))
        for queue in QUEUES[work]:
            number = 0
            while left is None or left > 0:
                number += 1
                planned = await ctx.step(f"{queue} {number}", self._choose, queue, left, paid=False)
                if not planned:
                    break
                await self._send(queue, planned)
                jobs += len(planned)
                songs = sum(len(each.songs) for each in planned)
                left = None if left is None else left - songs
                await ctx.progress(min(1.0, songs * number / total), f"{jobs} jobs enqueued")
        return jobs

    async def enqueue_again(self, ctx: Context, work: Work) -> int:
        """Songs that were left out of one answer of this run, and no others. In one round: none goes more
        than once."""
        jobs = 0
        for queue in QUEUES[work]:
            planned = await ctx.step(f"{queue} again", self._choose_again, queue, paid=False)
            if planned:
                await self._send(queue, planned)
            jobs += len(planned)
        return jobs

    async def foreseen(self, work: Work, limit: int | None, after: Foreseen = NO_SYNC) -> dict[str, int]:
        """How many songs it would take after such a sync, by queue."""
        left, found = limit, {}
        for queue in QUEUES[work]:
            of = Status.DESCRIBED if queue == EMBEDDING else Status.PENDING
            new = after.new if of is Status.PENDING else 0
            songs = max(0, await self._library.waiting(of) + new - after.gone.get(of, 0))
            found[queue] = songs if left is None else min(songs, left)
            left = None if left is None else left - found[queue]
        return found

    async def batches(self, songs: Mapping[str, int]) -> dict[str, int]:
        """How many jobs it would make of them now, by queue."""
        size = (await self._settings.read()).live.queue_batch_size
        return {queue: -(-number // size) for queue, number in songs.items()}

    async def _choose(self, queue: str, left: int | None) -> list[Planned]:
        most = SONGS_A_ROUND if left is None else min(left, SONGS_A_ROUND)
        return await self._planned(await self._free(queue, most))

    async def _choose_again(self, queue: str) -> list[Planned]:
        since = await runs.since(self._library)
        return [] if since is None else await self._planned(await self._free(queue, SONGS_A_ROUND, since))

    async def _planned(self, songs: Sequence[Song]) -> list[Planned]:
        size = (await self._settings.read()).live.queue_batch_size
        batches = split(songs, size, at=self._app.clock.wall())
        return [
            Planned(f"{id_}_{self._app.entropy.new_id()[-8:]}", id_, list(songs)) for id_, songs in batches
        ]

    async def _send(self, queue: str, planned: Sequence[Planned]) -> None:
        """Marked first: see `Library.mark_queued`."""
        await self._library.mark_queued(
            {one.id: [song.navidrome_id for song in one.songs] for one in planned}
        )
        await self._app.enqueue_many([self._request(queue, one) for one in planned])

    def _request(self, queue: str, one: Planned) -> JobRequest[Any]:
        return self._tasks[queue].using(id=one.id).job(correlationId=one.correlation, songs=one.songs)

    async def _free(self, queue: str, most: int, out_since: int | None = None) -> list[Song]:
        library = self._library
        find = library.described_without_vector if queue == EMBEDDING else library.pending
        return await find(most, out_since=out_since)
