"""Plans and enqueues jobs for waiting songs, several songs per job. Also corrects songs whose job has ended
or no longer exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import structlog
from msgspec import Struct

from tidemill import Context, Filter, Job, JobRequest, State, Task, Tidemill, split_into_chunks
from tidemill_apps.common.live_settings import LiveSettingsTable
from tidemill_apps.common.status import LIVE_STATES, load_jobs
from tidemill_apps.music.library import Library
from tidemill_apps.music.limits import EMBEDDING_QUEUE, FULL_QUEUE, METADATA_QUEUE, PIPELINE_QUEUE
from tidemill_apps.music.pipeline_state import load_run_start
from tidemill_apps.music.settings import LiveSettings
from tidemill_apps.music.sync import SyncPreview
from tidemill_apps.music.tables import Song, SongStatus

MAX_SONGS_PER_STEP = 5000
"""Songs per step of the enqueue job. A step's checkpoint is limited in size."""
Work = Literal["full", "metadata", "embedding"]
"""The work on songs: description and vector, or one of the two."""
QUEUES_BY_WORK: dict[Work, tuple[str, ...]] = {
    "full": (FULL_QUEUE, EMBEDDING_QUEUE),
    "metadata": (METADATA_QUEUE,),
    "embedding": (EMBEDDING_QUEUE,),
}
"""The queues that each kind of work fills. "full" also gives described songs their vector."""
NO_SYNC = SyncPreview()
WORK_BY_QUEUE: dict[str, Work] = {
    FULL_QUEUE: "full",
    METADATA_QUEUE: "metadata",
    EMBEDDING_QUEUE: "embedding",
}


class PlannedBatch(Struct, frozen=True):
    """A job that will be enqueued, with its songs. `id` is the job's id. `correlation` becomes the field
    `correlationId` of the payload."""

    id: str
    correlation: str
    songs: list[Song]


class BatchEnqueuer:
    """Enqueues waiting songs as jobs, several songs per job. `tasks` maps each queue name to the task of its
    jobs."""

    def __init__(
        self,
        app: Tidemill,
        library: Library,
        settings: LiveSettingsTable[LiveSettings],
        tasks: dict[str, Task[Any, Any]],
    ) -> None:
        self._app, self._library, self._settings, self._tasks = app, library, settings, tasks

    async def enqueue(self, ctx: Context, work: Work, limit: int | None) -> int:
        """Enqueues jobs for all waiting songs, or for at most `limit` songs, and returns the number of jobs.
        `work` selects the queues. A retry of the job of `ctx` enqueues the same jobs again."""
        jobs, left, total = 0, limit, max(1, sum((await self.count_songs(work, limit)).values()))
        for queue in QUEUES_BY_WORK[work]:
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

    async def enqueue_left_out(self, ctx: Context, work: Work) -> int:
        """Enqueues jobs for songs that a model has left out exactly once in the current run, and returns the
        number of jobs. A song is left out if the answer has no usable result for it."""
        jobs = 0
        for queue in QUEUES_BY_WORK[work]:
            planned = await ctx.step(f"{queue} left out", self._choose_left_out, queue, paid=False)
            if planned:
                await self._send(queue, planned)
            jobs += len(planned)
        return jobs

    async def count_songs(
        self, work: Work, limit: int | None, after: SyncPreview = NO_SYNC
    ) -> dict[str, int]:
        """Returns, per queue name, the number of songs that `enqueue` would enqueue. `after` is the predicted
        effect of a sync that runs first; by default no sync runs."""
        left, found = limit, {}
        for queue in QUEUES_BY_WORK[work]:
            of = SongStatus.DESCRIBED if queue == EMBEDDING_QUEUE else SongStatus.PENDING
            new = after.new if of is SongStatus.PENDING else 0
            songs = max(0, await self._library.count_waiting(of) + new - after.gone.get(of, 0))
            found[queue] = songs if left is None else min(songs, left)
            left = None if left is None else left - found[queue]
        return found

    async def count_jobs(self, songs: Mapping[str, int]) -> dict[str, int]:
        """Returns, per queue name, how many jobs are needed for the songs. `songs` maps queue names to
        numbers of songs."""
        size = (await self._settings.read()).live.queue_batch_size
        return {queue: -(-number // size) for queue, number in songs.items()}

    async def _choose(self, queue: str, left: int | None) -> list[PlannedBatch]:
        most = MAX_SONGS_PER_STEP if left is None else min(left, MAX_SONGS_PER_STEP)
        return await self._plan_batches(await self._load_free(queue, most))

    async def _choose_left_out(self, queue: str) -> list[PlannedBatch]:
        since = await load_run_start(self._library)
        return (
            []
            if since is None
            else await self._plan_batches(await self._load_free(queue, MAX_SONGS_PER_STEP, since))
        )

    async def _plan_batches(self, songs: Sequence[Song]) -> list[PlannedBatch]:
        size = (await self._settings.read()).live.queue_batch_size
        batches = split_into_chunks(songs, size, at=self._app.clock.wall())
        return [
            PlannedBatch(f"{id_}_{self._app.entropy.new_id()[-8:]}", id_, list(songs))
            for id_, songs in batches
        ]

    async def _send(self, queue: str, planned: Sequence[PlannedBatch]) -> None:
        """Stores the id of the planned job with each song, and then enqueues the jobs. In the opposite order
        a song could get into two jobs."""
        await self._library.mark_queued(
            {one.id: [song.navidrome_id for song in one.songs] for one in planned}
        )
        await self._app.enqueue_many([self._request(queue, one) for one in planned])

    def _request(self, queue: str, one: PlannedBatch) -> JobRequest[Any]:
        return self._tasks[queue].using(id=one.id).job(correlationId=one.correlation, songs=one.songs)

    async def _load_free(self, queue: str, most: int, left_out_since: int | None = None) -> list[Song]:
        library = self._library
        find = library.load_described if queue == EMBEDDING_QUEUE else library.load_pending
        return await find(most, left_out_since=left_out_since)


log = structlog.get_logger("tidemill_apps.music")

RECONCILE_INTERVAL_SECONDS = 30.0


class SongReconciler:
    def __init__(self, app: Tidemill, library: Library, *, enqueue_task: str, retry_task: str) -> None:
        """`enqueue_task` and `retry_task` are the names of the tasks whose jobs enqueue work on songs."""
        self._app, self._library, self._enqueue_task, self._retry_task = (
            app,
            library,
            enqueue_task,
            retry_task,
        )

    async def reconcile(self) -> int:
        """Corrects songs whose job has ended or is missing, and returns their number. Songs of a failed job
        are marked as failed. The others wait again, unless their missing job may still be enqueued."""
        held = await self._library.load_songs_by_job()
        sending = await self._is_sending()
        jobs = await load_jobs(self._app, [job for job in held if job is not None])
        over: list[str | None] = []
        right = 0
        for id_ in held:
            job = None if id_ is None else jobs.get(id_)
            if job is not None and job.state is State.FAILED:
                right += await self._fail(job)
            elif (
                id_ is None
                or (job is None and not sending)
                or (job is not None and job.state not in LIVE_STATES)
            ):
                over.append(id_)
        if over:
            right += await self._library.release(*over)
        if right:
            log.info("songs_reconciled", songs=right)
        return right

    async def retry_failed(self) -> tuple[int, int]:
        """Sets failed songs back to waiting, after an operator has retried their jobs. Returns two numbers:
        songs whose job will run again, and songs whose job has ended or is missing."""
        jobs = await load_jobs(self._app, await self._library.load_failed_jobs())
        coming = await self._library.return_songs_to_jobs(
            [id_ for id_, job in jobs.items() if job.state in LIVE_STATES]
        )
        return coming, await self._library.retry_failed(
            but=[id_ for id_, job in jobs.items() if job.state in (*LIVE_STATES, State.FAILED)]
        )

    async def _fail(self, job: Job) -> int:
        tried = job.reason == "failed" and job.attempts > 1
        why = f"tried {job.attempts} times" if tried else job.reason or "its job failed"
        said = "" if job.error is None else f": {job.error.message}"
        return await self._library.mark_failed(job.id, f"{why}{said}")

    async def _is_sending(self) -> bool:
        """True if an enqueue job is active or a retry job runs. A retry job that only waits does not count,
        because it has stored no job ids yet."""
        own = (await self._app.inspect.find(Filter(queue=PIPELINE_QUEUE, states=LIVE_STATES), limit=10)).jobs
        running = (job.task for job in own if job.state is State.RUNNING)
        return self._retry_task in running or self._enqueue_task in (job.task for job in own)
