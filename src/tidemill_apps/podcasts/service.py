"""The class `Podcasts`. It declares the pool and the task, creates, generates and deletes podcasts, and
reconciles their rows with their jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import column, select, table

from tidemill import ConfigurationError, Job, Limit, Pool, State, Tidemill
from tidemill.telemetry.events import JobFailed
from tidemill_apps.common.database import Database, check_separate_files
from tidemill_apps.common.messages import MessageCatalogue
from tidemill_apps.common.object_storage import ObjectStorage
from tidemill_apps.common.speech import open_speech
from tidemill_apps.common.status import load_jobs
from tidemill_apps.podcasts.cover import load_cover
from tidemill_apps.podcasts.episodes import Episodes
from tidemill_apps.podcasts.plan import GenerationPlan, part_key, plan_generation, write_script
from tidemill_apps.podcasts.settings import PREFIX, PodcastsSettings
from tidemill_apps.podcasts.tables import NewPodcast, Podcast, PodcastStatus
from tidemill_apps.podcasts.tasks import PodcastGenerator, declare_generation

DATABASE_VARIABLE, ARTICLES_VARIABLE = f"{PREFIX}DATABASE_URL", f"{PREFIX}ARTICLES_URL"
SPEECH_POOL = "speech"
MESSAGES = MessageCatalogue(Path(__file__).with_name("locales"))
MINUTE_SECONDS = 60.0


class Podcasts:
    def __init__(self, app: Tidemill, settings: PodcastsSettings) -> None:
        check_separate_files(app, settings.database_url, DATABASE_VARIABLE)
        self.app, self.settings = app, settings.checked()
        load_cover(settings.cover)  # a wrong file is reported now, not in a job
        example = PodcastsSettings().database_url
        database = Database(settings.database_url, DATABASE_VARIABLE, example)
        self.episodes = Episodes(database, lambda: app.clock.wall(), lambda: app.entropy.new_id())  # noqa: PLW0108 - a test may replace both
        self._articles = Database(settings.articles_url, ARTICLES_VARIABLE) if settings.articles_url else None
        self.storage = ObjectStorage(settings.storage, f"{PREFIX}STORAGE_")
        self.speech = open_speech(settings.speech)
        self.pool = self._declare_pool()
        self._generator = PodcastGenerator(settings, self.episodes, self.storage, self.speech, self.pool)
        self.generate = declare_generation(app, settings, self.pool, self._generator)
        self._reconciliation = app.periodic("podcasts", every=settings.reconcile_seconds)(self.reconcile)
        app.lifespan(self._lifespan)
        app.on(JobFailed)(self._wake)

    async def plan(self, new: NewPodcast) -> GenerationPlan:
        """Predicts the cost and length of a podcast. It creates nothing."""
        script = write_script(self.speech, new)
        return await plan_generation(self.speech, self.storage, script, new.language)

    async def create(self, new: NewPodcast) -> Podcast:
        """Creates a podcast and enqueues its generation. Raises SpeechUnavailable if nothing can speak."""
        self.speech.check()
        return await self._enqueue(await self.episodes.create(new))

    async def regenerate(self, podcast_id: int) -> Podcast | None:
        """Generates a podcast again. Stored parts are not paid for again. A podcast that waits or runs does
        not change. Returns None if it does not exist."""
        self.speech.check()
        podcast = await self.episodes.request(podcast_id)
        return await self._enqueue(podcast) if podcast is not None and not podcast.is_done else podcast

    async def delete(self, podcast_id: int) -> bool:
        """Deletes a podcast, its files, and the parts that no other podcast uses."""
        podcast = await self.episodes.get(podcast_id)
        unused = await self.episodes.delete(podcast_id)
        if podcast is None or unused is None:
            return False
        keys = (podcast.audio_key, podcast.transcript_key, *map(part_key, unused))
        await self._generator.delete_files(*keys)
        return True

    async def load_article(self, article_id: int) -> tuple[str, str] | None:
        """Returns title and content of an article; None if it does not exist."""
        if self._articles is None:
            raise ConfigurationError(
                f"article: {ARTICLES_VARIABLE} is not set; set it to the database of the feeds application, "
                "or send the text"
            )
        articles = table(self.settings.articles_table, column("id"), column("title"), column("content"))
        query = select(articles.c.title, articles.c.content).where(articles.c.id == article_id)
        async with self._articles.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else (str(row.title or ""), str(row.content or ""))

    async def reconcile(self) -> None:
        """Compares rows with their jobs. Enqueues a job that is missing, and marks a row as failed if its job
        has failed. A failed podcast is generated once more after an hour (Q14)."""
        unfinished = {row.job_id: row for row in await self.episodes.load_unfinished() if row.job_id}
        jobs = await load_jobs(self.app, unfinished)
        for job_id, row in unfinished.items():
            job = jobs.get(job_id)
            if job is None and row.status == PodcastStatus.PENDING:
                await self._enqueue(row)
            elif job is None or job.state in (State.FAILED, State.CANCELLED) or job.state is State.DONE:
                await self._fail(row, job)

    async def close(self) -> None:
        await self.speech.close()
        await self.episodes.database.close()
        if self._articles is not None:
            await self._articles.close()

    async def _enqueue(self, podcast: Podcast) -> Podcast:
        """Enqueues the job whose id the row holds. If the podcast already has a live job, the row gets that
        job's id."""
        named = podcast.job_id or self.app.entropy.new_id()
        handle = await self.generate.using(id=named).enqueue(podcast.id)
        if handle.id != podcast.job_id:
            await self.episodes.set_job(podcast, handle.id)
        return await self.episodes.get(podcast.id) or podcast

    async def _fail(self, row: Podcast, job: Job | None) -> None:
        """Marks a podcast as failed. Its first failure enqueues one regeneration."""
        error = job.error.message if job is not None and job.error is not None else "its job was deleted"
        error = "it was cancelled" if job is not None and job.state is State.CANCELLED else error
        wait = self.settings.regenerate_seconds
        again = bool(wait) and not row.regenerations and job is not None and job.state is State.FAILED
        at, next_job = self.app.clock.wall() + wait, self.app.entropy.new_id()
        if again:
            # Enqueued first: a regeneration without a row that waits for it finds its podcast and runs.
            await self.generate.using(id=next_job, delay=wait, unique=None).enqueue(row.id)
        await self.episodes.fail(row, error, at if again else None, next_job)

    def _declare_pool(self) -> Pool:
        settings = self.settings
        if 0 < settings.characters_per_minute < self.speech.limit:
            raise ConfigurationError(
                f"{PREFIX}CHARACTERS_PER_MINUTE: must be {self.speech.limit} or more, the longest part, is "
                f"{settings.characters_per_minute}; raise it, or lower {PREFIX}SPEECH_LIMIT"
            )
        limits = [Limit.concurrent(settings.calls_at_once)]
        if settings.characters_per_minute:
            limits.append(Limit.characters(settings.characters_per_minute, per=MINUTE_SECONDS))
        if settings.requests_per_minute:
            limits.append(Limit.requests(settings.requests_per_minute, per=MINUTE_SECONDS))
        return self.app.pool(SPEECH_POOL, *limits, jitter=settings.jitter)

    def _wake(self, event: JobFailed) -> None:
        if event.task == self.generate.name:
            self._reconciliation.wake()

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[Podcasts]:
        await self.episodes.prepare()
        try:
            yield self
        finally:
            await self.close()
