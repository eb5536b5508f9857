"""Start, pause, resume and stop. Syncing and enqueuing are jobs themselves: whoever restarts everything in
the middle of them goes on where it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tidemill import (
    ConfigurationError,
    Context,
    Filter,
    Job,
    Retry,
    SnoozeFor,
    State,
    Task,
    Tidemill,
    Unique,
)
from tidemill_apps.music import runs
from tidemill_apps.music.enqueuing import WORK_OF, Enqueuer, Work
from tidemill_apps.music.library import Library
from tidemill_apps.music.limits import CALLS, PIPELINE_QUEUE, WORK_QUEUES
from tidemill_apps.music.planning import Planner, Preview
from tidemill_apps.music.standing import LIVE, PENDING, Stage, Standing, standing
from tidemill_apps.music.sweeping import Sweeper
from tidemill_apps.music.syncing import Foreseen, Synced

SYNC, ENQUEUE, AGAIN = "music-sync", "music-enqueue", "music-again"
LOOK_AGAIN = 30.0
"""Seconds until it is looked again whether all else is done."""
ENQUEUE_WITHIN = 3600.0
STARTED = Unique("start")
"""Whichever of the two a start begins with: of starts at the same instant one begins."""
Synchronise = Callable[[Context, bool], Awaitable[Synced]]
Foresee = Callable[[bool], Awaitable[Foreseen]]


class Start(Struct, frozen=True, kw_only=True):
    """`work`: everything, or one half of it only. `hide_missing`: what the music server does not list is
    gone for good, however much it is."""

    skip_sync: bool = False
    hide_missing: bool = False
    limit: int | None = None
    work: Work = "full"


class Started(Struct, frozen=True, kw_only=True):
    """The job that goes on with it. `existing`: it was begun before, and nothing new is."""

    job: str
    stage: Stage
    existing: bool = False


class Stopped(Struct, frozen=True, kw_only=True):
    """How many jobs were cancelled, how many run to their end, and how many songs wait again."""

    cancelled: int
    running: int
    released: int


class Retried(Struct, frozen=True, kw_only=True):
    """How many failed jobs run again, with how many songs; and how many songs that had failed wait for the
    next start, because their job is no more."""

    jobs: int
    songs: int
    waiting: int


class Pipeline:
    def __init__(
        self,
        app: Tidemill,
        library: Library,
        enqueuer: Enqueuer,
        sweeper: Sweeper,
        planner: Planner,
        *,
        synchronise: Synchronise,
        foresee: Foresee,
    ) -> None:
        self._app, self._library = app, library
        self._enqueuer, self._sweeper, self._planner = enqueuer, sweeper, planner
        self._synchronise, self._foresee = synchronise, foresee
        task = app.task(name=SYNC, queue=PIPELINE_QUEUE, unique=STARTED, retry=Retry(attempts=3, first=5.0))
        self._sync: Task[Any, Any] = task(self._synced)
        task = app.task(name=ENQUEUE, queue=PIPELINE_QUEUE, unique=STARTED, timeout=ENQUEUE_WITHIN)
        self._enqueue: Task[Any, Any] = task(self._enqueued)
        task = app.task(
            name=AGAIN,
            queue=PIPELINE_QUEUE,
            unique=lambda work: Unique(f"again {work}"),
            timeout=ENQUEUE_WITHIN,
        )
        self._again: Task[Any, Any] = task(self._asked_again)

    async def start(self, wanted: Start) -> Started:
        """What is under way is not begun again."""
        _check(wanted)
        if (job := await self._own_job()) is not None:
            return Started(job=job.id, stage=_stage_of(job), existing=True)
        if wanted.skip_sync:
            handle = await self._enqueue.enqueue(work=wanted.work, limit=wanted.limit)
        else:
            handle = await self._sync.enqueue(wanted.work, wanted.limit, wanted.hide_missing)
        if handle.existing:
            return Started(job=handle.id, stage=_stage_of(await handle.status()), existing=True)
        return Started(job=handle.id, stage=Stage.ENQUEUING if wanted.skip_sync else Stage.SYNCING)

    async def preview(self, wanted: Start) -> Preview:
        """What `start` would do. Nothing is sent, and of the music server nothing is written."""
        _check(wanted)
        foreseen = Foreseen() if wanted.skip_sync else await self._foresee(wanted.hide_missing)
        return await self._planner.preview(wanted.work, wanted.limit, foreseen)

    async def pause(self, by: str) -> Stage:
        """Running jobs go on; the rest waits until `resume`."""
        stage = (await self.standing()).stage
        if stage in (Stage.IDLE, Stage.SYNCING):
            raise ConfigurationError(
                f"pause: the pipeline is {stage}, and only what is enqueued can be paused; "
                + ("start it first" if stage is Stage.IDLE else "wait until it enqueues, or stop it")
            )
        for queue in WORK_QUEUES:
            await self._app.inspect.pause(queue, reason=f"paused by {by}")
        return (await self.standing()).stage

    async def resume(self) -> Stage:
        """Ends a pause of the queues and leaves the breaker to its time. Without such a pause it opens the
        pool, also before the breaker's time: a person knows when the provider answers again."""
        paused = (await self.standing()).paused_queues
        await self._unpause()
        stands = await self.standing()
        timed = stands.breaker is not None and stands.breaker.until is not None
        if stands.held is None or (timed and paused):
            return stands.stage
        await self._app.inspect.open_pool(CALLS)
        return (await self.standing()).stage

    async def stop(self, by: str) -> Stopped:
        """What waits is cancelled and its songs wait again. What runs goes on to its end: its call is paid
        for. A pause ends with it."""
        await runs.end(self._library)
        cancelled = 0
        for queue in await self._known((PIPELINE_QUEUE, *WORK_QUEUES)):
            states = LIVE if queue == PIPELINE_QUEUE else PENDING
            changed = await self._app.inspect.cancel(
                Filter(queue=queue, states=states), reason=f"the pipeline was stopped by {by}"
            )
            cancelled += changed.changed
        released = await self._sweeper.sweep()
        await self._unpause()
        running = (await self.standing()).counts[State.RUNNING]
        return Stopped(cancelled=cancelled, running=running, released=released)

    async def retry(self) -> Retried:
        """Failed jobs run again, each with what it has paid for, and their songs with them."""
        await self._begin()
        jobs = 0
        for queue in await self._known(WORK_QUEUES):
            failed = Filter(queue=queue, states=(State.FAILED,))
            jobs += (await self._app.inspect.retry(failed)).changed
        songs, waiting = await self._sweeper.retry_failed()
        return Retried(jobs=jobs, songs=songs, waiting=waiting)

    async def ask_again(self, queue: str) -> None:
        """Songs that were left out of an answer for the first time go once more, together, when all else is
        done. Said twice it is done once."""
        await self._again.enqueue(work=WORK_OF[queue])

    async def standing(self) -> Standing:
        """Asked in this order: a job that ends between the two has left its successors behind."""
        own = await self._own_jobs()
        job = _first(own)
        return standing(
            await self._app.inspect.overview(sparing=True),
            Stage.IDLE if job is None else _stage_of(job),
            again=any(job.task == AGAIN for job in own),
        )

    async def trouble(self) -> str | None:
        """What the newest job of a start failed with, for good or until it is tried again."""
        job = await self._newest()
        if job is None or job.error is None or job.state not in (*LIVE, State.FAILED):
            return None
        return job.error.message

    async def found_nothing(self) -> bool:
        """Whether the newest start, if it has come to its end, had nothing to send."""
        job = await self._newest()
        if job is None or job.task != ENQUEUE or job.state is not State.DONE or job.result is None:
            return False
        return bool(msgspec.json.decode(job.result) == 0)

    async def _newest(self) -> Job | None:
        """The job that a start was, or went on with, last."""
        newest = (await self._app.inspect.find(Filter(queue=PIPELINE_QUEUE), limit=10)).jobs
        return next((job for job in newest if job.task != AGAIN), None)

    async def _begin(self) -> None:
        stands = await self.standing()
        await runs.begin(self._library, under_way=bool(stands.live or stands.again))

    async def _unpause(self) -> None:
        """Of all that `pause` pauses: also queues that have no job."""
        for queue in WORK_QUEUES:
            await self._app.inspect.resume(queue)

    async def _known(self, queues: tuple[str, ...]) -> list[str]:
        """Those that have jobs."""
        there = await self._app.inspect.counts()
        return [queue for queue in queues if queue in there]

    async def _own_job(self) -> Job | None:
        return _first(await self._own_jobs())

    async def _own_jobs(self) -> Sequence[Job]:
        return (await self._app.inspect.find(Filter(queue=PIPELINE_QUEUE, states=LIVE), limit=10)).jobs

    async def _synced(self, ctx: Context, work: Work, limit: int | None, hide_missing: bool = False) -> int:
        """Its successor has an id of its own making: a sync that runs again begins no second one. No other
        start stands in its way: what a start was told to be on its way is done."""
        synced = await self._synchronise(ctx, hide_missing)
        await self._delete_failed_syncs()
        successor = self._enqueue.using(id=f"{ctx.job_id}-enqueue", unique=None)
        await successor.enqueue(work=work, limit=limit)
        return synced.seen

    async def _delete_failed_syncs(self) -> None:
        """This sync has done their work: as dead letters they would ask for a person."""
        await self._app.inspect.delete(Filter(queue=PIPELINE_QUEUE, task=SYNC, states=(State.FAILED,)))

    async def _enqueued(self, ctx: Context, work: Work, limit: int | None) -> int:
        await self._begin()
        return await self._enqueuer.enqueue(ctx, work, limit)

    async def _asked_again(self, ctx: Context, work: Work) -> int:
        for queue in (PIPELINE_QUEUE, *WORK_QUEUES):
            others = (await self._app.inspect.find(Filter(queue=queue, states=LIVE), limit=10)).jobs
            if any(job.task != AGAIN for job in others):
                raise SnoozeFor(LOOK_AGAIN, "songs that were left out go once more when all else is done")
        return await self._enqueuer.enqueue_again(ctx, work)


def _first(own: Sequence[Job]) -> Job | None:
    """What a start began with, or goes on with."""
    begun = [job for job in own if job.task != AGAIN]
    return min(begun, key=lambda job: (job.task != SYNC, job.seq), default=None)


def _stage_of(job: Job) -> Stage:
    return Stage.SYNCING if job.task == SYNC else Stage.ENQUEUING


def _check(wanted: Start) -> None:
    if wanted.limit is not None and wanted.limit < 1:
        raise ConfigurationError(
            f"limit: must be a whole number of songs, 1 or more, is {wanted.limit}; leave it out for all"
        )
    if wanted.hide_missing and wanted.skip_sync:
        raise ConfigurationError(
            "hideMissing: only a sync finds what is missing; have it sync, without skipSync"
        )
