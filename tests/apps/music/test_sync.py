"""The library follows the music server, and a second sync costs little."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.apps.music.audio_files import Recording
from tests.apps.music.fake_source import Listing
from tests.apps.music.library_fixtures import column, put, track
from tests.apps.music.subsonic_server import MusicServer
from tidemill_apps.music.connections import SampleSource
from tidemill_apps.music.library import Library
from tidemill_apps.music.subsonic import SubsonicClient
from tidemill_apps.music.sync import SyncPreview, SyncResult, preview_sync, sync_library
from tidemill_apps.music.tables import SongStatus


class Counting(httpx2.AsyncClient):
    def __init__(self) -> None:
        super().__init__()
        self.requests: list[str] = []

    async def post(self, url: Any, **more: Any) -> httpx2.Response:
        self.requests.append(str(url).rpartition("/")[2].removesuffix(".view"))
        return await super().post(url, **more)


@pytest.fixture
async def client(subsonic: MusicServer) -> AsyncIterator[tuple[SubsonicClient, Counting]]:
    async with Counting() as http:
        given = (subsonic.url, subsonic.user, subsonic.password)
        yield SubsonicClient(*given, http, lambda: "salt", token=False), http


async def test_a_real_server_is_read_once_and_then_asked_little(
    subsonic: MusicServer, client: tuple[SubsonicClient, Counting], either: Library
) -> None:
    held = subsonic.hold(12)
    server, http = client
    assert await sync_library(server, either) == SyncResult(seen=12, new=12, changed=0)
    songs = await either.load_pending()
    assert sorted((song.title, song.artist) for song in songs) == sorted(
        (one.title, one.artist) for one in held
    )
    before = await column(either, "changed_at")
    http.requests.clear()
    assert await sync_library(server, either) == SyncResult()
    assert http.requests == ["getIndexes", "getScanStatus"]
    subsonic.rescan()
    assert await sync_library(server, either) == SyncResult(seen=12)
    assert await column(either, "changed_at") == before


async def test_new_songs_and_new_names_come_with_the_next_sync(
    subsonic: MusicServer, client: tuple[SubsonicClient, Counting], library: Library
) -> None:
    subsonic.hold(4)
    server, _ = client
    await sync_library(server, library)
    ids = {
        row.title: row.navidrome_id for row in await library.load_rows(list(await column(library, "title")))
    }
    await put(library, list(ids.values()), status=SongStatus.COMPLETED, job_id="before", description="听过")
    subsonic.hold(5)
    subsonic.rename(3, Recording("改了名字的歌", "林晚", "潮汐 3", "民谣"))
    assert await sync_library(server, library) == SyncResult(seen=5, new=1, changed=1)
    assert {song.title for song in await library.load_pending()} == {"Tide Song 4", "改了名字的歌"}
    again = await library.load_row(ids["潮汐之歌 第3首"])
    assert again is not None
    assert (again.status, again.job_id) == (SongStatus.PENDING, None)


async def test_progress_is_reported_after_every_page(library: Library) -> None:
    reports: list[SyncResult] = []
    listing = Listing([track(0), track(1)], [track(2)])
    await sync_library(listing, library, reports.append)
    assert reports == [SyncResult(2, 2, 0), SyncResult(3, 3, 0)]


async def test_a_sync_that_was_interrupted_reads_all_again_and_writes_what_is_missing(
    library: Library,
) -> None:
    listing = Listing([track(0), track(1)], [])
    with pytest.raises(ConnectionError):
        await sync_library(listing, library)
    assert len(await library.load_pending()) == 2
    listing.listed = [[track(0), track(1)], [track(2)]]
    assert await sync_library(listing, library) == SyncResult(seen=3, new=1)
    assert listing.reads == 2


async def test_a_server_that_does_not_say_when_it_changed_is_read_every_time(library: Library) -> None:
    listing = Listing([track(0)], modified=0)
    await sync_library(listing, library)
    assert await sync_library(listing, library) == SyncResult(seen=1)
    assert listing.reads == 2


async def test_a_sync_with_another_server_uses_no_result_of_the_first(library: Library) -> None:
    first, second = Listing([track(0)]), Listing([track(1)])
    second.url = "http://another"
    await sync_library(first, library)
    assert await sync_library(second, library) == SyncResult(seen=1, new=1, hidden=1)
    assert await sync_library(first, library) == SyncResult(seen=1, changed=1, hidden=1)


async def test_a_sync_preview_counts_new_songs_and_writes_nothing(either: Library) -> None:
    listing = Listing([track(0), track(1)], [track(2), track(3)])
    assert await preview_sync(listing, either) == SyncPreview(4)
    assert await column(either, "title") == {}
    await sync_library(listing, either)
    assert await preview_sync(listing, either) == SyncPreview(0)
    await put(either, ["s0", "s1"], status=SongStatus.COMPLETED)
    listing.listed = [
        [track(0), track(1, title="改名")],
        [track(2, title="x"), track(3, album="y"), track(4)],
    ]
    listing.modified = 2
    assert await preview_sync(listing, either) == SyncPreview(2)
    assert len(await either.load_pending()) == 2
    await sync_library(listing, either)
    assert len(await either.load_pending()) == 4


async def test_the_sample_is_a_source_too_and_half_of_it_is_chinese(library: Library) -> None:
    assert await sync_library(SampleSource(), library) == SyncResult(seen=60, new=60)
    assert await sync_library(SampleSource(), library) == SyncResult()
    titles = (await column(library, "title")).values()
    assert (
        sum(not title.isascii() and any("\u3400" < one < "\u9fff" for one in title) for title in titles) == 30
    )
