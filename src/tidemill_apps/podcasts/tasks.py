"""The task `podcast:generation`: speaks the parts of a podcast, joins them and publishes the episode."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

from tidemill import Context, GiveUp, Pool, Retry, StoreUnavailable, Task, Tidemill, Unique
from tidemill_apps.common.audio import check_part, count_seconds, decode, encode_mp3
from tidemill_apps.common.object_storage import ObjectStorage
from tidemill_apps.common.sentences import Language
from tidemill_apps.common.speech import (
    SpeechAdapter,
    SpeechUnavailable,
    hash_part,
    measure,
    predict_seconds,
)
from tidemill_apps.podcasts.cover import load_cover
from tidemill_apps.podcasts.episodes import Episodes
from tidemill_apps.podcasts.plan import Script, count_characters, part_key, price, write_script
from tidemill_apps.podcasts.settings import PodcastsSettings
from tidemill_apps.podcasts.tables import FinishedEpisode, Podcast
from tidemill_apps.podcasts.timeline import (
    EpisodeTags,
    build_chapters,
    format_vtt,
    time_parts,
    write_tags,
)

GENERATION_TASK, QUEUE = "podcast:generation", "podcast"
QUEUE_WEIGHT = 10
MAX_ATTEMPTS = 4
UNIQUE_SECONDS = 300.0
SPOKEN_SHARE = 0.8
"""The share of the progress bar for speech; the rest is for loudness and encoding."""


class GenerationResult(TypedDict):
    """The result of a job. `calls` is the number of speech calls that this attempt made."""

    status: str
    calls: int


class PodcastGenerator:
    """Generates one podcast at a time. All audio that was paid for is stored before anything else."""

    def __init__(
        self,
        settings: PodcastsSettings,
        episodes: Episodes,
        storage: ObjectStorage,
        speech: SpeechAdapter,
        pool: Pool,
    ) -> None:
        self._settings, self._episodes, self._storage = settings, episodes, storage
        self._speech, self._pool = speech, pool

    async def run(self, ctx: Context, podcast_id: int) -> GenerationResult:
        """Generates the podcast, unless it is done or deleted. While the database or the storage is
        unavailable, the job waits and loses no attempt."""
        try:
            podcast = await self._episodes.begin(podcast_id, ctx.job_id)
            if podcast is None:
                return {"status": "nothing to do", "calls": 0}
            return await self._generate(ctx, podcast)
        except SpeechUnavailable as error:
            raise GiveUp(str(error)) from None

    async def _generate(self, ctx: Context, podcast: Podcast) -> GenerationResult:
        language = podcast.language
        script = await asyncio.to_thread(write_script, self._speech, podcast)
        await self._episodes.register_parts(podcast.id, script.digests)
        calls = 0
        for number, part in enumerate(script.parts):
            done = SPOKEN_SHARE * number / len(script.parts)
            await ctx.progress(done, f"part {number + 1} of {len(script.parts)}")
            calls += await self._speak(ctx, podcast, part.text, language)
        await ctx.progress(SPOKEN_SHARE, "loudness and MP3")
        finished = await self._publish(podcast, script, language)
        published = await self._episodes.finish(podcast.id, ctx.job_id, finished)
        if not published and await self._episodes.get(podcast.id) is None:
            await self.delete_files(finished.audio_key, finished.transcript_key)
        return {"status": "done" if published else "deleted meanwhile", "calls": calls}

    async def _speak(self, ctx: Context, podcast: Podcast, text: str, language: Language) -> bool:
        """Stores the audio of one part, unless it is stored already. Returns True if it made a call."""
        digest = hash_part(self._speech, language, text)
        if await self._storage.size(part_key(digest)) is not None:
            return False
        units = self._units(text)

        async def speak(part: str) -> float:
            await self._episodes.record_cost(podcast.id, digest, price(self._speech, part))
            reply = await self._speech.speak(part, language, call_id=f"{ctx.job_id} {digest[:16]}")
            if reply.response is not None:
                ctx.used(self._pool, reply.response)
            seconds = check_part(await decode(reply.audio), predict_seconds(self._speech, part))
            await self._storage.put(part_key(digest), reply.audio)
            return seconds

        # The claim holds the unit of `concurrent`; the calls of a podcast follow one another.
        async with ctx.spend(self._pool, concurrent=0, **units):
            await ctx.step(f"speech {digest[:16]}", speak, text, paid=True)
        return True

    def _units(self, text: str) -> dict[str, Any]:
        """Returns the units of a call, as far as the pool counts them."""
        counted = bool(self._settings.characters_per_minute)
        return {"characters": measure(self._speech.unit, text)} if counted else {}

    async def _publish(self, podcast: Podcast, script: Script, language: Language) -> FinishedEpisode:
        """Joins the stored parts and writes audio and transcript to the storage. A repeated generation does
        not change a file that a player is reading."""
        with tempfile.TemporaryDirectory(prefix="tidemill-podcast-") as folder:
            samples, mp3 = Path(folder) / "episode.pcm", Path(folder) / "episode.mp3"
            seconds = await self._join(script.digests, samples)
            await encode_mp3(samples, mp3)
            timed = time_parts(script.parts, seconds)
            speaker = self._speech.label(language)
            tags = EpisodeTags(
                title=podcast.title,
                author=self._settings.feed_author,
                album=self._settings.feed_title,
                language=language,
                speaker=speaker,
                cover=load_cover(self._settings.cover),
                chapters=build_chapters(script.sections, timed),
            )
            await asyncio.to_thread(write_tags, mp3, tags)
            digest = hashlib.sha256("".join((podcast.title, *script.digests)).encode()).hexdigest()[:16]
            audio_key = f"episodes/{podcast.id}/{digest}.mp3"
            transcript_key = f"episodes/{podcast.id}/{digest}.vtt"
            await self._storage.put(transcript_key, format_vtt(timed).encode())
            await self._storage.put(audio_key, mp3)
            return FinishedEpisode(
                speaker=speaker,
                characters=count_characters(self._speech, script),
                duration=round(sum(seconds), 3),
                size=mp3.stat().st_size,
                audio_key=audio_key,
                transcript_key=transcript_key,
            )

    async def _join(self, digests: Sequence[str], samples: Path) -> list[float]:
        """Writes the samples of all parts into one file. Returns the length of each part in seconds."""
        seconds = []
        with samples.open("wb") as file:
            for digest in digests:
                audio = await self._storage.get(part_key(digest))
                if audio is None:
                    raise GiveUp(
                        f"the audio of a part was deleted ({digest[:16]}); generate the podcast again"
                    )
                decoded = await decode(audio)
                seconds.append(count_seconds(decoded))
                file.write(decoded)
        return seconds

    async def delete_files(self, *keys: str | None) -> None:
        """Deletes files that no row names. A file that cannot be deleted stays, which harms no reader."""
        for key in keys:
            if key is not None:
                with suppress(StoreUnavailable):
                    await self._storage.delete(key)


def declare_generation(
    app: Tidemill, settings: PodcastsSettings, pool: Pool, generator: PodcastGenerator
) -> Task[[int], GenerationResult]:
    """Declares the queue and the task (Q6)."""
    app.queue(QUEUE, weight=QUEUE_WEIGHT, concurrency=settings.concurrency, key_concurrency=1)

    @app.task(
        name=GENERATION_TASK,
        queue=QUEUE,
        key=lambda podcast_id: f"podcast-{podcast_id}",
        unique=lambda podcast_id: Unique(f"podcast-{podcast_id}", at_most=UNIQUE_SECONDS),
        pool=pool,
        cost={"requests": 0, **({"characters": 0} if settings.characters_per_minute else {})},
        retry=Retry(attempts=MAX_ATTEMPTS, first=settings.retry_seconds),
        timeout=settings.timeout,
    )
    async def generate(ctx: Context, podcast_id: int) -> GenerationResult:
        return await generator.run(ctx, podcast_id)

    return generate
