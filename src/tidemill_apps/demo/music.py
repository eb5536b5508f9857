"""The music application in the demo: a preview beside what happens, then a day's quota that is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tidemill import Tidemill
from tidemill.testing.providers import Ledger, Server
from tidemill_apps.common.providers.account import Account
from tidemill_apps.demo.midnight import ZONE, BeforeMidnight
from tidemill_apps.demo.provider import A_MINUTE, BELIEVED, PER_MINUTE, account_at, free_tier
from tidemill_apps.demo.screen import Bar, Screen
from tidemill_apps.demo.working import working
from tidemill_apps.music.limits import CALLS
from tidemill_apps.music.music import Music
from tidemill_apps.music.pipeline import Start
from tidemill_apps.music.planning import Preview
from tidemill_apps.music.sample import Sample
from tidemill_apps.music.settings import CallSettings, MusicSettings
from tidemill_apps.music.similar import Match
from tidemill_apps.music.simulated import describe_songs
from tidemill_apps.music.songs import Status
from tidemill_apps.music.standing import Stage
from tidemill_apps.music.syncing import sync

MIDNIGHT = 16.0
"""Seconds from the beginning until the provider's day turns."""
BATCH, FIRST = 5, 30
CALLS_A_BATCH = 2
JITTER = 0.5
AROUND_MIDNIGHT = 0.5
"""Seconds by which the provider's calendar may be off."""
LIKE, TEXT, FOUND = "sample-004", "calm, moonlight, late at night", 3
LOOK = 0.1


@dataclass(frozen=True)
class MusicTold:
    """What was seen. `books` are the simulator's, `minimum` is what the songs had to cost. `first` are the
    calls of the first half and `seconds` what it took; `closed` is how long the day's quota was gone. `like`
    another song, and `spoken_of` by a text, so many were found."""

    books: Ledger
    minimum: int
    songs: int
    completed: int
    preview: Preview
    first: int
    seconds: float
    closed: float
    like: int
    spoken_of: int


class MusicStory:
    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._clock = BeforeMidnight(MIDNIGHT)
        self._provider = free_tier(self._clock, describe_songs)
        self._songs = self._minimum = 0

    async def tell(self) -> MusicTold:
        async with self._opened(self._clock) as music, self._screen.following(lambda: self._look(music)):
            await self._sync(music)
            preview = await self._preview(music)
            seconds = await self._run(music, FIRST)
            first = len(self._books.bills)
            self._screen.say(f"it took {seconds:.1f} s and {first} calls, {len(self._books.refused)} refused")
            closed = await self._ride_out(music)
            completed = (await music.library.counts())[Status.COMPLETED]
            like = await self._like(music)
        async with self._opened() as music:
            spoken_of = await self._find(music)
        return MusicTold(
            books=self._books,
            minimum=self._minimum,
            songs=self._songs,
            completed=completed,
            preview=preview,
            first=first,
            seconds=seconds,
            closed=closed,
            like=like,
            spoken_of=spoken_of,
        )

    @property
    def _books(self) -> Ledger:
        return self._provider.ledger

    @asynccontextmanager
    async def _opened(self, clock: BeforeMidnight | None = None) -> AsyncIterator[Music]:
        """By the machine's own clock when it is None, as for whoever goes on with what the demo leaves."""
        app = Tidemill("sqlite:///music-jobs.db", clock=clock)
        async with Server(self._provider) as server:
            music = Music(app, _settings(account_at(server.url)))
            await music.prepare()
            await music.system_settings.write("queue_batch_size", BATCH)
            async with working(app):
                yield music

    async def _sync(self, music: Music) -> None:
        synced = await sync(Sample(), music.library)
        self._songs = synced.new
        self._minimum = CALLS_A_BATCH * sum(-(-part // BATCH) for part in (FIRST, self._songs - FIRST))
        self._screen.say(f"{self._songs} songs are there, half of them Chinese; {BATCH} go into one job")

    async def _preview(self, music: Music) -> Preview:
        preview = await music.pipeline.preview(Start(skip_sync=True, limit=FIRST))
        self._screen.say(
            f"dry run of {preview.songs} songs: {preview.jobs} jobs, {preview.calls} calls, "
            f"done in {preview.seconds or 0:.1f} s; nothing was sent"
        )
        return preview

    async def _run(self, music: Music, limit: int | None) -> float:
        began = asyncio.get_running_loop().time()
        await music.pipeline.start(Start(skip_sync=True, limit=limit))
        await _until(music, Stage.IDLE)
        return asyncio.get_running_loop().time() - began

    async def _ride_out(self, music: Music) -> float:
        """The other half, until the provider says that this was all for today, and from the next day on."""
        await music.pipeline.start(Start(skip_sync=True))
        self._screen.say("the other half is started; the account has not many calls left today")
        await _until(music, Stage.BREAKER, Stage.IDLE)
        began = asyncio.get_running_loop().time()
        shut = (await music.pipeline.standing()).breaker
        if shut is not None:
            left = (shut.until or 0) - self._clock.wall()
            self._screen.say(
                f"BREAKER: the day's quota is gone. All wait {left:.1f} s, for midnight in {ZONE}"
            )
        await _until(music, Stage.RUNNING, Stage.IDLE)
        closed = asyncio.get_running_loop().time() - began
        self._screen.say("midnight: one job tries, then the others follow")
        await _until(music, Stage.IDLE)
        return closed

    async def _like(self, music: Music) -> int:
        [song] = await music.library.stored([LIKE])
        found = await music.similar.to_song(LIKE, FOUND)
        self._screen.say(f"songs like {song.title}: {_told(found)}")
        return len(found)

    async def _find(self, music: Music) -> int:
        """The text's vector is one call more."""
        found = await music.search.find(TEXT, FOUND)
        self._minimum += 1
        self._screen.say(f"{TEXT}: {_told(found)}")
        return len(found)

    async def _look(self, music: Music) -> list[Bar]:
        counts = await music.library.counts()
        stands = await music.pipeline.standing()
        pool = await music.app.inspect.pool(CALLS)
        minute = pool.limits[0]
        books = self._books
        return [
            Bar("songs", counts[Status.COMPLETED], sum(counts.values()), stands.stage.value.upper()),
            Bar(
                "requests in this minute", round(minute.used), minute.amount, "the pool that all queues share"
            ),
            Bar("calls", len(books.bills), self._minimum, f"the simulator refused {len(books.refused)}"),
        ]


def _settings(account: Account) -> MusicSettings:
    return MusicSettings(
        chat=account,
        embeddings=account,
        calls=CallSettings(
            per_minute=PER_MINUTE,
            per_day=BELIEVED,
            zone=ZONE,
            jitter=JITTER,
            midnight_seconds=AROUND_MIDNIGHT,
        ),
        minute_seconds=A_MINUTE,
        call_seconds=0.1,
        resume_at=f"00:00 {ZONE}",
    )


def _told(found: list[Match]) -> str:
    return ", ".join(f"{match.song.title} ({match.likeness:.2f})" for match in found)


async def _until(music: Music, *stages: Stage) -> None:
    while (await music.pipeline.standing()).stage not in stages:  # noqa: ASYNC110 - it is in the store
        await asyncio.sleep(LOOK)
