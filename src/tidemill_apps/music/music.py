"""The music application on a given Tidemill: queues, pools, tasks, what goes on beside
them, routes and pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidemill import Context, Tidemill
from tidemill.telemetry.events import JobFailed, JobLost
from tidemill.web import Refused
from tidemill_apps.common.apart import keep_apart
from tidemill_apps.common.database import Database
from tidemill_apps.music import following, pages, routes, runs, settings_page, sweeping
from tidemill_apps.music.connections import Connections
from tidemill_apps.music.enqueuing import Enqueuer
from tidemill_apps.music.following import Follower
from tidemill_apps.music.halves import Half, simulated_halves
from tidemill_apps.music.library import Library
from tidemill_apps.music.limits import Pools, declare_queues
from tidemill_apps.music.looping import Repeated
from tidemill_apps.music.pipeline import AGAIN, ENQUEUE, Pipeline
from tidemill_apps.music.planning import Planner
from tidemill_apps.music.searching import UNAVAILABLE, Search
from tidemill_apps.music.settings import MusicSettings
from tidemill_apps.music.similar import Similar
from tidemill_apps.music.subsonic import SubsonicError
from tidemill_apps.music.sweeping import Sweeper
from tidemill_apps.music.syncing import Foreseen, Synced, foresee, sync
from tidemill_apps.music.system_settings import Live, SystemSettings
from tidemill_apps.music.working import tasks

DATABASE_URL = "MUSIC_DATABASE_URL"


class Music:
    def __init__(self, app: Tidemill, settings: MusicSettings) -> None:
        keep_apart(app, settings.database_url, DATABASE_URL)
        self.app, self.settings = app, settings
        self.database = Database(settings.database_url, DATABASE_URL, MusicSettings().database_url)
        self.library = Library(self.database, self.wall)
        self.similar = Similar(self.library)
        self.system_settings = SystemSettings(
            self.database, Live(queue_rate_limit_max=settings.metadata_starts)
        )
        self.connections = Connections(app, settings)
        declare_queues(app)
        self.pools = Pools(app, settings)
        self.tasks = tasks(app, self.pools, self.library, self.connections, self._left_out)
        self.search = Search(app, self.pools.calls, self.connections, self.similar)
        self.sweeper = Sweeper(app, self.library, enqueues=ENQUEUE, again=AGAIN)
        self.follower = Follower(app, self.system_settings, self.pools)
        enqueuer = Enqueuer(app, self.library, self.system_settings, self.tasks)
        planner = Planner(app, settings, enqueuer, self.tasks, self.search.task)
        self.pipeline = Pipeline(
            app,
            self.library,
            enqueuer,
            self.sweeper,
            planner,
            synchronise=self._synchronise,
            foresee=self._foresee,
        )
        self._following = Repeated(
            self.follower.follow, following.LOOK_EVERY, failing="settings_cannot_be_followed"
        )
        self._sweeping = Repeated(self.sweeper.sweep, sweeping.LOOK_EVERY, failing="songs_cannot_be_swept")
        self._prepared = False
        app.lifespan(self.opened)
        app.on(JobFailed, JobLost)(self._ended_badly)
        settings_page.declare(self)
        routes.declare(self)
        pages.declare(self)

    @property
    def simulated(self) -> tuple[Half, ...]:
        """What a simulator stands in for: told wherever a person sees it."""
        return simulated_halves(self.settings)

    def wall(self) -> float:
        """By the clock the application has at the moment: a test gives it another one."""
        return self.app.clock.wall()

    async def prepare(self) -> None:
        """Tables, columns and settings that are missing. Done once; a process without a worker comes here by
        its first request."""
        if not self._prepared:
            await self.library.prepare()
            await self.system_settings.prepare()
            self._prepared = True

    async def close(self) -> None:
        await self.connections.close()
        await self.database.close()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Music]:
        """As long as a worker runs."""
        await self.prepare()
        await self.connections.open()
        try:
            async with self._following.going_on(), self._sweeping.going_on():
                yield self
        finally:
            await self.close()

    async def _synchronise(self, ctx: Context, sure: bool) -> Synced:
        source = (await self.connections.open()).source

        def progress(synced: Synced) -> None:
            ctx.progress_sync(0.0, f"{synced.seen} songs read, {synced.new} of them new")

        synced = await sync(source, self.library, progress, sure=sure)
        if synced.hidden or synced.missing:
            ctx.log(f"not listed any more: {synced.hidden} songs hidden, {synced.missing} left as they are")
        return synced

    async def _foresee(self, sure: bool) -> Foreseen:
        try:
            return await foresee((await self.connections.open()).source, self.library, sure=sure)
        except SubsonicError as error:
            raise Refused(UNAVAILABLE, f"{error}; or plan without a sync") from error

    async def _left_out(self, queue: str) -> None:
        since = await runs.since(self.library)
        if since is not None and await self.library.left_out(since):
            await self.pipeline.ask_again(queue)

    def _ended_badly(self, _: JobFailed | JobLost) -> None:
        self._sweeping.wake()
