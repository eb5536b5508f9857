"""The music part of the demo: a dry run is compared with the real run, and then the day's quota is used
up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tidemill import Tidemill
from tidemill.testing.simulator import RequestLog, SimulatorServer
from tidemill_apps.common.model_clients import ProviderAccount
from tidemill_apps.demo.environment import (
    DECLARED_REQUESTS_PER_DAY,
    MINUTE_SECONDS,
    REQUESTS_PER_MINUTE,
    ZONE,
    MidnightClock,
    create_account,
    create_free_tier,
    run_worker,
)
from tidemill_apps.demo.screen import DemoProgressBar, DemoScreen
from tidemill_apps.music.connections import SampleSource, simulate_descriptions
from tidemill_apps.music.limits import CALLS_POOL
from tidemill_apps.music.pipeline_control import PipelineStartRequest
from tidemill_apps.music.pipeline_state import PipelineStage
from tidemill_apps.music.preview import StartPreview
from tidemill_apps.music.search import SimilarSong
from tidemill_apps.music.service import Music
from tidemill_apps.music.settings import CallSettings, MusicSettings
from tidemill_apps.music.sync import sync_library
from tidemill_apps.music.tables import SongStatus

SECONDS_TO_MIDNIGHT = 16.0
"""Seconds from the start until the provider's midnight."""
BATCH_SIZE, FIRST_RUN_SONGS = 5, 30
CALLS_PER_BATCH = 2
JITTER_SECONDS = 0.5
MIDNIGHT_MARGIN_SECONDS = 0.5
"""Seconds by which the provider's clock may differ."""
SIMILAR_TO_SONG, SEARCH_TEXT, MAX_MATCHES = "sample-004", "calm, moonlight, late at night", 3
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class MusicDemoResult:
    """The measurements of the music part of the demo.

    - `minimum`: the number of provider calls needed.
    - `songs`, `completed`: the number of all songs, and of completed songs.
    - `preview`: the prediction of the dry run.
    - `first`, `seconds`: provider calls and duration of the first run.
    - `closed`: seconds for which the pool was closed.
    - `like`: how many songs were found that are similar to a given song.
    - `found_by_text`: how many songs were found by a text.
    """

    request_log: RequestLog
    minimum: int
    songs: int
    completed: int
    preview: StartPreview
    first: int
    seconds: float
    closed: float
    like: int
    found_by_text: int


class MusicDemo:
    def __init__(self, screen: DemoScreen) -> None:
        self._screen = screen
        self._clock = MidnightClock(SECONDS_TO_MIDNIGHT)
        self._provider = create_free_tier(self._clock, simulate_descriptions)
        self._songs = self._minimum = 0

    async def run(self) -> MusicDemoResult:
        async with (
            self._opened(self._clock) as music,
            self._screen.show_progress(lambda: self._load_progress(music)),
        ):
            await self._sync(music)
            preview = await self._preview(music)
            seconds = await self._run(music, FIRST_RUN_SONGS)
            first = len(self._request_log.bills)
            self._screen.log(
                f"it took {seconds:.1f} s and {first} calls, {len(self._request_log.refused)} refused"
            )
            closed = await self._wait_for_midnight(music)
            completed = (await music.library.count_by_status())[SongStatus.COMPLETED]
            like = await self._like(music)
        async with self._opened() as music:
            found_by_text = await self._find(music)
        return MusicDemoResult(
            request_log=self._request_log,
            minimum=self._minimum,
            songs=self._songs,
            completed=completed,
            preview=preview,
            first=first,
            seconds=seconds,
            closed=closed,
            like=like,
            found_by_text=found_by_text,
        )

    @property
    def _request_log(self) -> RequestLog:
        return self._provider.request_log

    @asynccontextmanager
    async def _opened(self, clock: MidnightClock | None = None) -> AsyncIterator[Music]:
        """Runs the music application with a simulator and a worker while the `async with` block runs.
        `clock=None`: it uses the machine's clock, like a user who continues after the demo."""
        app = Tidemill("sqlite:///music-jobs.db", clock=clock)
        async with SimulatorServer(self._provider) as server:
            music = Music(app, _build_settings(create_account(server.url)))
            await music.prepare()
            await music.live_settings.write("queue_batch_size", BATCH_SIZE)
            async with run_worker(app):
                yield music

    async def _sync(self, music: Music) -> None:
        synced = await sync_library(SampleSource(), music.library)
        self._songs = synced.new
        self._minimum = CALLS_PER_BATCH * sum(
            -(-part // BATCH_SIZE) for part in (FIRST_RUN_SONGS, self._songs - FIRST_RUN_SONGS)
        )
        self._screen.log(f"{self._songs} songs are there, half of them Chinese; {BATCH_SIZE} go into one job")

    async def _preview(self, music: Music) -> StartPreview:
        preview = await music.pipeline.preview(PipelineStartRequest(skip_sync=True, limit=FIRST_RUN_SONGS))
        self._screen.log(
            f"dry run of {preview.songs} songs: {preview.jobs} jobs, {preview.calls} calls, "
            f"done in {preview.seconds or 0:.1f} s; nothing was sent"
        )
        return preview

    async def _run(self, music: Music, limit: int | None) -> float:
        began = asyncio.get_running_loop().time()
        await music.pipeline.start(PipelineStartRequest(skip_sync=True, limit=limit))
        await _wait_for_stage(music, PipelineStage.IDLE)
        return asyncio.get_running_loop().time() - began

    async def _wait_for_midnight(self, music: Music) -> float:
        """Starts the second run and waits until it has finished. The day's quota is used up during the run,
        and the pool closes until midnight. Returns for how many seconds the pool was closed."""
        await music.pipeline.start(PipelineStartRequest(skip_sync=True))
        self._screen.log("the other half is started; the account has not many calls left today")
        await _wait_for_stage(music, PipelineStage.BREAKER, PipelineStage.IDLE)
        began = asyncio.get_running_loop().time()
        shut = (await music.pipeline.load_state()).breaker
        if shut is not None:
            left = (shut.until or 0) - self._clock.wall()
            self._screen.log(
                f"BREAKER: the day's quota is gone. All wait {left:.1f} s, for midnight in {ZONE}"
            )
        await _wait_for_stage(music, PipelineStage.RUNNING, PipelineStage.IDLE)
        closed = asyncio.get_running_loop().time() - began
        self._screen.log("midnight: one job tries, then the others follow")
        await _wait_for_stage(music, PipelineStage.IDLE)
        return closed

    async def _like(self, music: Music) -> int:
        [song] = await music.library.load_rows([SIMILAR_TO_SONG])
        found = await music.similar.to_song(SIMILAR_TO_SONG, MAX_MATCHES)
        self._screen.log(f"songs like {song.title}: {_format_matches(found)}")
        return len(found)

    async def _find(self, music: Music) -> int:
        """Searches songs by a text and returns the number of songs found. The search costs one provider
        call."""
        found = await music.search.find(SEARCH_TEXT, MAX_MATCHES)
        self._minimum += 1
        self._screen.log(f"{SEARCH_TEXT}: {_format_matches(found)}")
        return len(found)

    async def _load_progress(self, music: Music) -> list[DemoProgressBar]:
        counts = await music.library.count_by_status()
        stands = await music.pipeline.load_state()
        pool = await music.app.inspect.pool(CALLS_POOL)
        minute = pool.limits[0]
        request_log = self._request_log
        return [
            DemoProgressBar(
                "songs", counts[SongStatus.COMPLETED], sum(counts.values()), stands.stage.value.upper()
            ),
            DemoProgressBar(
                "requests in this minute", round(minute.used), minute.amount, "the pool that all queues share"
            ),
            DemoProgressBar(
                "calls",
                len(request_log.bills),
                self._minimum,
                f"the simulator refused {len(request_log.refused)}",
            ),
        ]


def _build_settings(account: ProviderAccount) -> MusicSettings:
    return MusicSettings(
        chat=account,
        embeddings=account,
        calls=CallSettings(
            per_minute=REQUESTS_PER_MINUTE,
            per_day=DECLARED_REQUESTS_PER_DAY,
            zone=ZONE,
            jitter=JITTER_SECONDS,
            midnight_seconds=MIDNIGHT_MARGIN_SECONDS,
        ),
        minute_seconds=MINUTE_SECONDS,
        call_seconds=0.1,
        resume_at=f"00:00 {ZONE}",
    )


def _format_matches(found: list[SimilarSong]) -> str:
    return ", ".join(f"{match.song.title} ({match.similarity:.2f})" for match in found)


async def _wait_for_stage(music: Music, *stages: PipelineStage) -> None:
    while (await music.pipeline.load_state()).stage not in stages:  # noqa: ASYNC110 - it is in the store
        await asyncio.sleep(POLL_SECONDS)
