"""The Music object: database, queues, pools, tasks and periodic functions on a Tidemill application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from tidemill import Context, Tidemill
from tidemill.telemetry.events import AttemptStopped, JobFailed
from tidemill.web import HTTPError
from tidemill_apps.common.database import Database, check_separate_files
from tidemill_apps.common.live_settings import LiveSettingsTable
from tidemill_apps.music.batches import RECONCILE_INTERVAL_SECONDS, BatchEnqueuer, SongReconciler
from tidemill_apps.music.connections import MusicConnections, ProviderKind, find_simulated_providers
from tidemill_apps.music.library import Library
from tidemill_apps.music.limits import SYNC_INTERVAL_SECONDS, LiveSettingsSync, MusicPools, declare_queues
from tidemill_apps.music.pipeline_control import ENQUEUE_TASK, RETRY_LEFT_OUT_TASK, Pipeline
from tidemill_apps.music.pipeline_state import load_run_start
from tidemill_apps.music.preview import PreviewPlanner
from tidemill_apps.music.search import SimilarityIndex, TextSearch
from tidemill_apps.music.settings import LiveSettings, MusicSettings
from tidemill_apps.music.subsonic import SubsonicError
from tidemill_apps.music.sync import SyncPreview, SyncResult, preview_sync, sync_library
from tidemill_apps.music.tasks import declare_tasks

DATABASE_VARIABLE = "MUSIC_DATABASE_URL"


class Music:
    def __init__(self, app: Tidemill, settings: MusicSettings) -> None:
        check_separate_files(app, settings.database_url, DATABASE_VARIABLE)
        self.app, self.settings = app, settings
        self.database = Database(settings.database_url, DATABASE_VARIABLE, MusicSettings().database_url)
        self.library = Library(self.database, self.wall)
        self.similar = SimilarityIndex(self.library)
        self.live_settings = LiveSettingsTable(
            self.library.flags, LiveSettings(queue_rate_limit_max=settings.metadata_starts)
        )
        self.connections = MusicConnections(app, settings)
        declare_queues(app)
        self.pools = MusicPools(app, settings)
        self.tasks = declare_tasks(app, self.pools, self.library, self.connections, self._retry_left_out)
        self.search = TextSearch(app, self.pools.calls, self.connections, self.similar)
        self.reconciler = SongReconciler(
            app, self.library, enqueue_task=ENQUEUE_TASK, retry_task=RETRY_LEFT_OUT_TASK
        )
        self.settings_sync = LiveSettingsSync(app, self.live_settings, self.pools)
        enqueuer = BatchEnqueuer(app, self.library, self.live_settings, self.tasks)
        planner = PreviewPlanner(app, settings, enqueuer, self.tasks, self.search.task)
        self.pipeline = Pipeline(
            app,
            self.library,
            enqueuer,
            self.reconciler,
            planner,
            sync=self._sync_library,
            preview_sync=self._preview_sync,
        )
        app.periodic("music settings", every=SYNC_INTERVAL_SECONDS)(self.settings_sync.apply)
        reconcile = app.periodic("music songs", every=RECONCILE_INTERVAL_SECONDS)
        self._reconciliation = reconcile(self.reconciler.reconcile)
        self._prepared = False
        app.lifespan(self.lifespan)
        app.on(JobFailed, AttemptStopped)(self._wake_reconciler)

    @property
    def simulated(self) -> tuple[ProviderKind, ...]:
        """The simulated providers; every page shows them."""
        return find_simulated_providers(self.settings)

    def wall(self) -> float:
        """Returns the time of the application's clock, which a test may replace."""
        return self.app.clock.wall()

    async def prepare(self) -> None:
        """Creates missing tables, columns and settings. Only the first call does this. A worker calls it at
        its start, a process without a worker at its first request."""
        if not self._prepared:
            await self.library.prepare()
            await self.live_settings.prepare()
            self._prepared = True

    async def close(self) -> None:
        await self.connections.close()
        await self.database.close()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[Music]:
        """Opens the connections while a worker runs."""
        await self.prepare()
        await self.connections.open()
        try:
            yield self
        finally:
            await self.close()

    async def _sync_library(self, ctx: Context, confirmed: bool) -> SyncResult:
        source = (await self.connections.open()).source

        def progress(synced: SyncResult) -> None:
            ctx.progress_sync(0.0, f"{synced.seen} songs read, {synced.new} of them new")

        synced = await sync_library(source, self.library, progress, confirmed=confirmed)
        if synced.hidden or synced.missing:
            ctx.log(f"not listed any more: {synced.hidden} songs hidden, {synced.missing} left as they are")
        return synced

    async def _preview_sync(self, confirmed: bool) -> SyncPreview:
        try:
            return await preview_sync(
                (await self.connections.open()).source, self.library, confirmed=confirmed
            )
        except SubsonicError as error:
            raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}; or plan without a sync") from error

    async def _retry_left_out(self, queue: str) -> None:
        since = await load_run_start(self.library)
        if since is not None and await self.library.count_left_out(since):
            await self.pipeline.retry_left_out(queue)

    def _wake_reconciler(self, _: JobFailed | AttemptStopped) -> None:
        self._reconciliation.wake()
