"""Starts, pauses, resumes and stops the pipeline that describes and embeds songs. The sync and the enqueueing
are jobs themselves, so they continue after a restart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tidemill import ConfigurationError, Context, Filter, Job, Retry, SnoozeFor, State, Task, Tidemill, Unique
from tidemill_apps.common.status import LIVE_STATES, WAITING_STATES
from tidemill_apps.music.batches import WORK_BY_QUEUE, BatchEnqueuer, SongReconciler, Work
from tidemill_apps.music.library import Library
from tidemill_apps.music.limits import CALLS_POOL, PIPELINE_QUEUE, WORK_QUEUES
from tidemill_apps.music.pipeline_state import (
    PipelineStage,
    PipelineState,
    begin_run,
    derive_pipeline_state,
    end_run,
)
from tidemill_apps.music.preview import PreviewPlanner, StartPreview
from tidemill_apps.music.sync import SyncPreview, SyncResult

SYNC_TASK, ENQUEUE_TASK, RETRY_LEFT_OUT_TASK = "music-sync", "music-enqueue", "music-retry-left-out"
RECHECK_SECONDS = 30.0
"""Delay before the retry of left-out songs checks again whether other work is done."""
ENQUEUE_TIMEOUT_SECONDS = 3600.0
START_UNIQUE = Unique("start")
"""Shared by sync and enqueue, so that of simultaneous starts only one begins."""
SyncCallback = Callable[[Context, bool], Awaitable[SyncResult]]
PreviewSyncCallback = Callable[[bool], Awaitable[SyncPreview]]


class PipelineStartRequest(Struct, frozen=True, kw_only=True):
    """A request to start the pipeline.

    - `skip_sync`: True to start without reading the music server.
    - `hide_missing`: True to hide all songs that the music server no longer lists, however many.
    - `limit`: maximum number of songs; None for all.
    - `work`: `full` for description and vector, `metadata` or `embedding` for one of the two.
    """

    skip_sync: bool = False
    hide_missing: bool = False
    limit: int | None = None
    work: Work = "full"


class PipelineStartResult(Struct, frozen=True, kw_only=True):
    """The result of a start. `job` is the id of the sync or enqueue job. `existing=True`: that job was
    already active, and nothing new was started."""

    job: str
    stage: PipelineStage
    existing: bool = False


class PipelineStopResult(Struct, frozen=True, kw_only=True):
    """The result of a stop. It has three numbers: cancelled jobs, jobs that still run, and songs that wait
    for the next start."""

    cancelled: int
    running: int
    released: int


class PipelineRetryResult(Struct, frozen=True, kw_only=True):
    """The result of a retry.

    - `jobs`, `songs`: the number of retried jobs, and of their songs.
    - `waiting`: the number of failed songs without a failed job; they wait for the next start.
    """

    jobs: int
    songs: int
    waiting: int


class Pipeline:
    def __init__(
        self,
        app: Tidemill,
        library: Library,
        enqueuer: BatchEnqueuer,
        reconciler: SongReconciler,
        planner: PreviewPlanner,
        *,
        sync: SyncCallback,
        preview_sync: PreviewSyncCallback,
    ) -> None:
        self._app, self._library = app, library
        self._enqueuer, self._reconciler, self._planner = enqueuer, reconciler, planner
        self._sync_library, self._preview_sync = sync, preview_sync
        task = app.task(
            name=SYNC_TASK, queue=PIPELINE_QUEUE, unique=START_UNIQUE, retry=Retry(attempts=3, first=5.0)
        )
        self._sync: Task[Any, Any] = task(self._run_sync)
        task = app.task(
            name=ENQUEUE_TASK,
            queue=PIPELINE_QUEUE,
            unique=START_UNIQUE,
            timeout=ENQUEUE_TIMEOUT_SECONDS,
        )
        self._enqueue: Task[Any, Any] = task(self._run_enqueue)
        task = app.task(
            name=RETRY_LEFT_OUT_TASK,
            queue=PIPELINE_QUEUE,
            unique=lambda work: Unique(f"again {work}"),
            timeout=ENQUEUE_TIMEOUT_SECONDS,
        )
        self._retry_task: Task[Any, Any] = task(self._run_retry_left_out)

    async def start(self, request: PipelineStartRequest) -> PipelineStartResult:
        """Starts the pipeline. If a start is already active, it returns the job of that start and starts
        nothing."""
        _check_start_request(request)
        if (job := await self._own_job()) is not None:
            return PipelineStartResult(job=job.id, stage=_job_stage(job), existing=True)
        if request.skip_sync:
            handle = await self._enqueue.enqueue(work=request.work, limit=request.limit)
        else:
            handle = await self._sync.enqueue(request.work, request.limit, request.hide_missing)
        if handle.existing:
            return PipelineStartResult(job=handle.id, stage=_job_stage(await handle.status()), existing=True)
        return PipelineStartResult(
            job=handle.id, stage=PipelineStage.ENQUEUING if request.skip_sync else PipelineStage.SYNCING
        )

    async def preview(self, request: PipelineStartRequest) -> StartPreview:
        """Predicts what `start` would do. Enqueues and writes nothing."""
        _check_start_request(request)
        sync = SyncPreview() if request.skip_sync else await self._preview_sync(request.hide_missing)
        return await self._planner.preview(request.work, request.limit, sync)

    async def pause(self, by: str) -> PipelineStage:
        """Pauses the work queues and returns the new `PipelineStage`. Running jobs continue. Raises
        ConfigurationError if the pipeline is idle or syncing. `by` is the user's name."""
        stage = (await self.load_state()).stage
        if stage in (PipelineStage.IDLE, PipelineStage.SYNCING):
            raise ConfigurationError(
                f"pause: the pipeline is {stage}, and only what is enqueued can be paused; "
                + ("start it first" if stage is PipelineStage.IDLE else "wait until it enqueues, or stop it")
            )
        for queue in WORK_QUEUES:
            await self._app.inspect.pause(queue, reason=f"paused by {by}")
        return (await self.load_state()).stage

    async def resume(self) -> PipelineStage:
        """Ends a pause, opens the pool of provider calls, and returns the new `PipelineStage`. If a pause and
        a closure with a known end both stop the work, it ends only the pause."""
        paused = (await self.load_state()).paused_queues
        await self._unpause()
        state = await self.load_state()
        timed = state.breaker is not None and state.breaker.until is not None
        if state.block is None or (timed and paused):
            return state.stage
        await self._app.inspect.open_pool(CALLS_POOL)
        return (await self.load_state()).stage

    async def stop(self, by: str) -> PipelineStopResult:
        """Cancels waiting jobs, and a running sync or enqueue job. Jobs that run on songs finish, because
        their call is paid for. Also ends a pause. `by` is the user."""
        await end_run(self._library)
        cancelled = 0
        for queue in await self._queues_with_jobs((PIPELINE_QUEUE, *WORK_QUEUES)):
            states = LIVE_STATES if queue == PIPELINE_QUEUE else WAITING_STATES
            changed = await self._app.inspect.cancel(
                Filter(queue=queue, states=states), reason=f"the pipeline was stopped by {by}"
            )
            cancelled += changed.changed
        released = await self._reconciler.reconcile()
        await self._unpause()
        running = (await self.load_state()).counts[State.RUNNING]
        return PipelineStopResult(cancelled=cancelled, running=running, released=released)

    async def retry(self) -> PipelineRetryResult:
        """Retries the failed jobs and sets their songs back to waiting. The jobs reuse their paid
        checkpoints."""
        await self._begin_run()
        jobs = 0
        for queue in await self._queues_with_jobs(WORK_QUEUES):
            failed = Filter(queue=queue, states=(State.FAILED,))
            jobs += (await self._app.inspect.retry(failed)).changed
        songs, waiting = await self._reconciler.retry_failed()
        return PipelineRetryResult(jobs=jobs, songs=songs, waiting=waiting)

    async def retry_left_out(self, queue: str) -> None:
        """Enqueues a job that tries again the songs that were missing in an answer of the model. The job
        waits until all other work is done. `queue` is the queue of the songs."""
        await self._retry_task.enqueue(work=WORK_BY_QUEUE[queue])

    async def load_state(self) -> PipelineState:
        """Returns the state of the pipeline. It reads the start job before the queues; otherwise the pipeline
        could look idle while a start job ends."""
        own = await self._own_jobs()
        job = _find_start_job(own)
        return derive_pipeline_state(
            await self._app.inspect.overview(cached=True),
            PipelineStage.IDLE if job is None else _job_stage(job),
            retries_left_out=any(job.task == RETRY_LEFT_OUT_TASK for job in own),
        )

    async def last_error(self) -> str | None:
        """Returns the error of the newest sync or enqueue job, if that job failed or is being retried.
        Otherwise returns None."""
        job = await self._newest_start_job()
        if job is None or job.error is None or job.state not in (*LIVE_STATES, State.FAILED):
            return None
        return job.error.message

    async def found_nothing(self) -> bool:
        """True if the newest start has finished and enqueued no songs."""
        job = await self._newest_start_job()
        if job is None or job.task != ENQUEUE_TASK or job.state is not State.DONE or job.result is None:
            return False
        return bool(msgspec.json.decode(job.result) == 0)

    async def _newest_start_job(self) -> Job | None:
        """Returns the newest sync or enqueue job, or None if none is found."""
        newest = (await self._app.inspect.find(Filter(queue=PIPELINE_QUEUE), limit=10)).jobs
        return next((job for job in newest if job.task != RETRY_LEFT_OUT_TASK), None)

    async def _begin_run(self) -> None:
        state = await self.load_state()
        await begin_run(self._library, under_way=bool(state.live or state.retries_left_out))

    async def _unpause(self) -> None:
        """Resumes all work queues, including those without jobs."""
        for queue in WORK_QUEUES:
            await self._app.inspect.resume(queue)

    async def _queues_with_jobs(self, queues: tuple[str, ...]) -> list[str]:
        """Returns the names from `queues` whose queue has jobs."""
        there = await self._app.inspect.counts()
        return [queue for queue in queues if queue in there]

    async def _own_job(self) -> Job | None:
        return _find_start_job(await self._own_jobs())

    async def _own_jobs(self) -> Sequence[Job]:
        return (await self._app.inspect.find(Filter(queue=PIPELINE_QUEUE, states=LIVE_STATES), limit=10)).jobs

    async def _run_sync(self, ctx: Context, work: Work, limit: int | None, hide_missing: bool = False) -> int:
        """The handler of the sync job. It syncs the library, enqueues the enqueue job, and returns the number
        of listed songs. A retry creates no second enqueue job."""
        synced = await self._sync_library(ctx, hide_missing)
        await self._delete_failed_syncs()
        # The sync job still holds the unique key of all start jobs.
        successor = self._enqueue.using(id=f"{ctx.job_id}-enqueue", unique=None)
        await successor.enqueue(work=work, limit=limit)
        return synced.seen

    async def _delete_failed_syncs(self) -> None:
        """Deletes earlier sync jobs that failed, because the current sync has done their work."""
        await self._app.inspect.delete(Filter(queue=PIPELINE_QUEUE, task=SYNC_TASK, states=(State.FAILED,)))

    async def _run_enqueue(self, ctx: Context, work: Work, limit: int | None) -> int:
        await self._begin_run()
        return await self._enqueuer.enqueue(ctx, work, limit)

    async def _run_retry_left_out(self, ctx: Context, work: Work) -> int:
        for queue in (PIPELINE_QUEUE, *WORK_QUEUES):
            others = (await self._app.inspect.find(Filter(queue=queue, states=LIVE_STATES), limit=10)).jobs
            if any(job.task != RETRY_LEFT_OUT_TASK for job in others):
                raise SnoozeFor(
                    RECHECK_SECONDS, "songs that were left out go once more when all else is done"
                )
        return await self._enqueuer.enqueue_left_out(ctx, work)


def _find_start_job(own: Sequence[Job]) -> Job | None:
    """Returns the sync or enqueue job that is active, or None. If both are active, returns the sync job.
    `own` are the active jobs of the pipeline queue."""
    begun = [job for job in own if job.task != RETRY_LEFT_OUT_TASK]
    return min(begun, key=lambda job: (job.task != SYNC_TASK, job.seq), default=None)


def _job_stage(job: Job) -> PipelineStage:
    return PipelineStage.SYNCING if job.task == SYNC_TASK else PipelineStage.ENQUEUING


def _check_start_request(request: PipelineStartRequest) -> None:
    if request.limit is not None and request.limit < 1:
        raise ConfigurationError(
            f"limit: must be a whole number of songs, 1 or more, is {request.limit}; leave it out for all"
        )
    if request.hide_missing and request.skip_sync:
        raise ConfigurationError(
            "hideMissing: only a sync finds what is missing; have it sync, without skipSync"
        )
